"""What the machine and the API have of claims: volumes, pool files, devices, mounts, staging directories."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.claim_users import MIB, NAMESPACE
from tests.e2e.clusters import CORE, Cluster
from tests.e2e.commands import run
from tests.e2e.failures import Document

from kubecore import loop_devices

CLAIMS = f"{CORE}/namespaces/{NAMESPACE}/persistentvolumeclaims"
SNAPSHOTS = f"/apis/snapshot.storage.k8s.io/v1/namespaces/{NAMESPACE}/volumesnapshots"
_CONTENTS = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"
_ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
_NODES = ("node01", "node02")
_READ_POOL = r"""
cd /var/lib/storage
for state in shared/csi nodes/*/csi; do
  for record in $state/.virtplane/volumes/*/record.json $state/snapshots/*/record.json; do
    [ -e "$record" ] || continue
    printf '%s\t%s\t%s\n' "$record" "$(stat -c %s "${record%record.json}disk")" "$(cat "$record")"
  done
  find $state/.virtplane/pending $state/.virtplane/volumes $state/snapshots -mindepth 1 -maxdepth 1
done
"""
_POD_OF_CSI = re.compile(r"/pods/([0-9a-f-]{36})/volume(?:s|Devices)/kubernetes.io~csi")
_STAGED = "/plugins/kubernetes.io/csi/"
_DIRECTORIES = (
    "plugins/kubernetes.io/csi/*/*",
    "plugins/kubernetes.io/csi/volumeDevices/*/*",
    "pods/*/volumes/kubernetes.io~csi/*",
    "pods/*/volumeDevices/kubernetes.io~csi/*",
)
"""Of volumes in use, below a kubelet's directory."""


@dataclass(frozen=True)
class PoolFile:
    """A volume's or a snapshot's folder in a pool, as its record has it; `length` is that of its image."""

    place: str
    identifier: str
    size: int
    length: int


def pool_files(cluster: Cluster) -> tuple[list[PoolFile], list[str]]:
    """The volumes and snapshots in the pools, and all folders there, whole or not."""
    namespace = cluster.state / "nodes/node01/ns/mnt"
    listing = run("nsenter", f"--mount={namespace}", "sh", "-c", _READ_POOL).stdout.splitlines()
    files, folders = [], []
    for line in listing:
        place, *rest = line.split("\t")
        if rest:
            record = json.loads(rest[1])
            files.append(PoolFile(place, record["id"], record["content"]["size"], int(rest[0])))
        else:
            folders.append(place)
    return files, folders


def volumes_of_claims(cluster: Cluster) -> list[Document]:
    """The PersistentVolumes that were made for claims of the namespace."""
    return [
        volume
        for volume in cluster.items(f"{CORE}/persistentvolumes")
        if volume["spec"].get("claimRef", {}).get("namespace") == NAMESPACE
    ]


def mismatches(cluster: Cluster) -> list[str]:
    """Where claims, volumes and pool files are not one for one, or their sizes differ."""
    claims, volumes = cluster.items(CLAIMS), volumes_of_claims(cluster)
    files, folders = pool_files(cluster)
    by_name = {volume["metadata"]["name"]: volume for volume in volumes}
    found = [
        f"claims have twice {name}" for name in _twice(each["spec"].get("volumeName") for each in claims)
    ]
    handles = [volume["spec"]["csi"]["volumeHandle"] for volume in volumes]
    found += [f"volumes have twice {handle}" for handle in _twice(handles)]
    found += [f"in pools twice: {name}" for name in _twice(file.identifier for file in files)]
    for claim in claims:
        volume = by_name.pop(claim["spec"].get("volumeName"), None)
        if volume is not None and volume["spec"]["claimRef"].get("uid") == claim["metadata"]["uid"]:
            found += _differences(claim, volume, files)
        elif claim["status"]["phase"] != "Pending":
            found.append(f"claim {claim['metadata']['name']} has no volume")
    found += [f"volume {name} without a claim" for name in by_name]
    contents = {each["status"].get("snapshotHandle") for each in cluster.items(_CONTENTS) if "status" in each}
    known = {*handles, *contents}
    found += [f"{file.place} without a volume" for file in files if file.identifier not in known]
    present = {file.identifier for file in files}
    found += [f"no pool file of {name}" for name in known if name not in present]
    whole = {file.place.rpartition("/")[0] for file in files}
    return found + [f"half made: {folder}" for folder in folders if folder not in whole]


def _twice(names: Iterable[str | None]) -> list[str]:
    return [name for name, count in Counter(names).items() if name and count > 1]


def _differences(claim: Document, volume: Document, files: Iterable[PoolFile]) -> list[str]:
    name, handle = claim["metadata"]["name"], volume["spec"]["csi"]["volumeHandle"]
    wanted = in_bytes(claim["spec"]["resources"]["requests"]["storage"])
    sizes = {
        "claim": in_bytes(claim["status"].get("capacity", {}).get("storage", "0")),
        "volume": in_bytes(volume["spec"]["capacity"]["storage"]),
    }
    for file in files:
        if file.identifier == handle:
            sizes |= {"record": file.size, "image": min(file.length, file.size)}
    wrong = {what: size for what, size in sizes.items() if size != wanted}
    return [f"claim {name} wants {wanted} bytes, but {wrong}"] if wrong else []


def in_bytes(quantity: str) -> int:
    """The bytes of a quantity as the API writes sizes of volumes."""
    if quantity.endswith("Gi"):
        return int(quantity[:-2]) * 1024 * MIB
    return int(quantity[:-2]) * MIB if quantity.endswith("Mi") else int(quantity)


def left_of_pods(cluster: Cluster) -> list[str]:
    """Mounts and directories of CSI volumes of pods that do not exist."""
    uids = {pod["metadata"]["uid"] for pod in cluster.items(f"{CORE}/pods")}
    places = [place for node in _NODES for place in (*_mounts(cluster, node), *_directories(cluster, node))]
    return [place for place in places if (pod := _POD_OF_CSI.search(place)) and pod[1] not in uids]


def left_of_claims(cluster: Cluster) -> list[str]:
    """Everything that claims left behind, where there is none any more."""
    found = [f"volume {each['metadata']['name']}" for each in volumes_of_claims(cluster)]
    found += [f"snapshot content {each['metadata']['name']}" for each in cluster.items(_CONTENTS)]
    found += [f"attachment {each['metadata']['name']}" for each in cluster.items(_ATTACHMENTS)]
    files, folders = pool_files(cluster)
    found += [file.place for file in files] + folders
    for node in _NODES:
        found += [
            place for place in _mounts(cluster, node) if "kubernetes.io~csi" in place or _STAGED in place
        ]
        found += _directories(cluster, node)
    return found + _loop_devices(cluster)


def _loop_devices(cluster: Cluster) -> list[str]:
    pools = loop_devices.of_file((cluster.state / "pool.img").stat())
    assert len(pools) == 1, "the pool has one loop device"
    return [f"/dev/loop{number} over a pool file" for number in loop_devices.of_file_system(pools[0])]


def _mounts(cluster: Cluster, node: str) -> list[str]:
    agent = cluster.component(f"node-{node}")
    lines = Path(f"/proc/{agent}/mountinfo").read_text().splitlines()
    return [f"{node}: {line.split()[4]}" for line in lines]


def _directories(cluster: Cluster, node: str) -> list[str]:
    kubelet = cluster.state / "nodes" / node / "kubelet"
    found = [path for pattern in _DIRECTORIES for path in kubelet.glob(pattern)]
    return [str(path) for path in found if path.name not in ("publish", "staging")]

"""Pods that use claims, and the ledger in which they write what they know to be on the disk.

Each pod first compares its volume with everything that earlier pods of the claim wrote down; then it writes
a token of its own, waits until it is on the disk, and only then writes it into the ledger as well. The ledger
is a folder of the machine:

    CLAIM/slots/N    a place in the volume that a pod has taken: a file, or a block of a device
    CLAIM/acks/N     the token in that place, which is surely on the disk
    problems/POD     what a pod found to be missing or wrong
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.failures import Document
from tests.support.shellpods import IMAGE

NAMESPACE = "claims"
LABEL = "churn"
SHARED, LOCAL = "hostpath", "hostpath-local"
BLOCK, FILES = "Block", "Filesystem"
MIB = 2**20
SIZES = {BLOCK: 32, FILES: 300}
"""In MiB, of new claims: XFS takes no less than 256."""

_SCRIPT = r"""
set -u
claim=${CLAIM:-data-$POD}; book=/ledger/$claim
mkdir -p $book/slots $book/acks /ledger/problems
problem() { echo "$claim: $1" >> /ledger/problems/$POD; }
seen() {
  if [ -b /dev/data ]; then dd if=/dev/data bs=4096 skip=$1 count=1 2>/dev/null | tr -d ' '
  else cat /data/$1 2>&1; fi
}
for ack in $book/acks/*; do
  [ -e $ack ] || continue
  found=$(seen ${ack##*/}); wanted=$(cat $ack)
  [ "$found" = "$wanted" ] || problem "$ack: '$found', not '$wanted'"
done
n=0; while ! mkdir $book/slots/$n 2>/dev/null; do n=$((n+1)); done
token=$POD/$n
if [ -b /dev/data ]; then
  printf '%-4095s\n' $token | dd of=/dev/data bs=4096 seek=$n conv=notrunc,fsync 2>/tmp/error
else echo $token | dd of=/data/$n conv=fsync 2>/tmp/error
fi || { problem "writing $n: $(cat /tmp/error)"; exit 1; }
echo $token > $book/slots/$n/ack && mv $book/slots/$n/ack $book/acks/$n
trap 'exit 0' TERM
while :; do sleep 600 & wait $!; done
"""


@dataclass(frozen=True)
class Ledger:
    """What pods wrote down."""

    folder: Path

    def acknowledged(self, claim: str) -> dict[str, str]:
        """The tokens that are surely in a claim's volume, by their places."""
        return {file.name: file.read_text() for file in (self.folder / claim / "acks").glob("*")}

    def problems(self) -> dict[str, str]:
        """What pods found to be wrong, by pod."""
        return {file.name: file.read_text() for file in (self.folder / "problems").glob("*")}

    def copied(self, tokens: Mapping[str, str], claim: str) -> None:
        """A claim is made as a copy of what had these tokens."""
        for place, token in tokens.items():
            (self.folder / claim / "slots" / place).mkdir(parents=True, exist_ok=True)
            acks = self.folder / claim / "acks"
            acks.mkdir(exist_ok=True)
            (acks / place).write_text(token)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True)
class Claim:
    """A claim as a user wants it; `node` is where the volume is to be, if that is known."""

    name: str
    storage_class: str
    mode: str
    mib: int
    node: str = ""
    source: Document = field(default_factory=dict)

    def manifest(self) -> Document:
        """The PersistentVolumeClaim."""
        spec: Document = {
            "accessModes": ["ReadWriteMany" if self.storage_class == SHARED else "ReadWriteOnce"],
            "volumeMode": self.mode,
            "storageClassName": self.storage_class,
            "resources": {"requests": {"storage": f"{self.mib}Mi"}},
        }
        if self.source:
            spec["dataSource"] = self.source
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": _meta(self.name),
            "spec": spec,
        }

    def pod_spec(self, ledger: Ledger, node: str = "") -> Document:
        """The specification of pods that use the claim; a template's claim is known by the pod's name."""
        environment: list[Document] = [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "CLAIM", "value": self.name},
        ]
        main: Document = {
            "name": "main",
            "image": IMAGE,
            "command": ["sh", "-c", _SCRIPT],
            "env": environment,
            "volumeMounts": [{"name": "ledger", "mountPath": "/ledger"}],
        }
        if self.mode == BLOCK:
            main["volumeDevices"] = [{"name": "data", "devicePath": "/dev/data"}]
        else:
            main["volumeMounts"].append({"name": "data", "mountPath": "/data"})
        where = node or self.node
        return {
            "terminationGracePeriodSeconds": 1,
            "containers": [main],
            "volumes": [
                {"name": "ledger", "hostPath": {"path": str(ledger.folder), "type": "Directory"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": self.name}},
            ],
            **({"nodeSelector": {"kubernetes.io/hostname": where}} if where else {}),
        }


def pod(name: str, claim: Claim, ledger: Ledger, node: str = "") -> Document:
    """A bare pod."""
    spec = claim.pod_spec(ledger, node)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _meta(name), "spec": spec}


def deployment(name: str, claim: Claim, ledger: Ledger, replicas: int) -> Document:
    """A Deployment whose pods all use one claim."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(name),
        "spec": {"replicas": replicas, **_of_pods(name, claim, ledger)},
    }


def stateful_set(name: str, claim: Claim, ledger: Ledger, replicas: int, *, keeps: bool) -> Document:
    """A StatefulSet, of which each pod has a claim of its own, like `claim`; `keeps` them when it goes."""
    of_pods = _of_pods(name, claim, ledger)
    spec = of_pods["template"]["spec"]
    spec["containers"][0]["env"].pop()
    spec["volumes"].pop()
    template = claim.manifest()
    template["metadata"] = {"name": "data", "labels": {LABEL: "claims"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _meta(name),
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain" if keeps else "Delete"},
            "volumeClaimTemplates": [template],
            **of_pods,
        },
    }


def snapshot(name: str, claim: str, storage_class: str) -> Document:
    """A VolumeSnapshot; the classes of snapshots are named as those of volumes."""
    return {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": _meta(name),
        "spec": {"volumeSnapshotClassName": storage_class, "source": {"persistentVolumeClaimName": claim}},
    }


def _of_pods(name: str, claim: Claim, ledger: Ledger) -> Document:
    labels = {LABEL: "claims", "app": name}
    template = {"metadata": {"labels": labels}, "spec": claim.pod_spec(ledger)}
    return {"selector": {"matchLabels": {"app": name}}, "template": template}


def _meta(name: str) -> Document:
    return {"name": name, "namespace": NAMESPACE, "labels": {LABEL: "claims"}}

"""A node whose disk runs full under its guests, whatever kind of disk they write to."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.claims import Claims, claim, device
from tests.e2e.clusters import CORE, GUEST_IMAGE, KUBEVIRT, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.commands import program, run
from tests.e2e.failures import Document
from tests.e2e.support import Console, wait_for
from tests.support.clusters import clean_up

pytestmark = [
    pytest.mark.host,
    pytest.mark.guest,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

_POOL = "/var/lib/storage"
_BALLAST = f"{_POOL}/ballast"
_SIZE = "64Mi"
_WRITTEN_MIB = 6
_LEFT_MIB = 4
"""Less than any guest writes."""
_BOOT_SECONDS = 180
"""Eight guests boot at once."""
_INSTALLATION = f"{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"
_DATA_VOLUMES = f"/apis/cdi.kubevirt.io/v1beta1/namespaces/{NAMESPACE}/datavolumes"
_HOST_DISK = f"{_POOL}/host/disk.img"
_ONE_POOL = f"""
set -e
mkdir -p {_POOL}/pods /var/lib/kubelet/pods {_POOL}/host
mount --bind {_POOL}/pods /var/lib/kubelet/pods
mount --make-private /var/lib/kubelet/pods
mount --make-shared /var/lib/kubelet/pods
truncate -s 64M {_HOST_DISK}
chown -R 107:107 {_POOL}/host
"""
"""What pods have on the node's disk is in the pool too: one thing runs full, and no pod is evicted for it."""
_SOURCES: dict[str, Document] = {
    "image": {"containerDisk": {"image": GUEST_IMAGE, "imagePullPolicy": "IfNotPresent"}},
    "empty": {"emptyDisk": {"capacity": _SIZE}},
    "host": {"hostDisk": {"type": "Disk", "path": _HOST_DISK}},
    "overlay": {"ephemeral": {"persistentVolumeClaim": {"claimName": "below"}}},
    "files": {"persistentVolumeClaim": {"claimName": "files"}},
    "blocks": {"persistentVolumeClaim": {"claimName": "blocks"}},
    "imported": {"dataVolume": {"name": "imported"}},
}
"""Every kind of disk that takes room as it is written, by the names of their machines."""


@pytest.fixture(scope="module")
def small(guest_archive: Path) -> Iterator[Cluster]:
    """A node whose pods and volumes share a small disk, with machines that may use its files."""
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="virtplane-e2e-")))
    try:
        run(program("kindling"), "up", "--state", cluster.state, "--storage", "900Mi", seconds=150)
        _in_node(cluster, _ONE_POOL)
        cluster.up()
        developer = {"developerConfiguration": {"featureGates": ["HostDisk"]}}
        cluster.request("PATCH", _INSTALLATION, {"spec": {"configuration": developer}})
        cluster.load(guest_archive)
        yield cluster
    finally:
        cluster.reset()


def _in_node(cluster: Cluster, script: str) -> None:
    run("nsenter", f"--mount={cluster.state / 'nodes/node01/ns/mnt'}", "sh", "-c", script)


def _with_disk(name: str, source: Document) -> Document:
    """A machine with one more disk, whose serial number is ``data``."""
    wanted = manifest(name, grace=1)
    spec = wanted["spec"]["template"]["spec"]
    spec["domain"]["devices"]["disks"].append({"name": "data", "disk": {"bus": "virtio"}, "serial": "data"})
    spec["volumes"].append({"name": "data", **source})
    return wanted


def _blank(name: str) -> Document:
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": _SIZE}}}
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {"name": name},
        "spec": {"source": {"blank": {}}, "storage": storage},
    }


def _write(console: Console) -> str:
    """Have the guest begin to write what it knows the sum of."""
    disk = device(console, "data")
    console.run(f"dd if=/dev/urandom of=/tmp/data bs=1M count={_WRITTEN_MIB} 2>/dev/null", 60)
    written = console.run("md5sum </tmp/data", 60)
    console.send(f"dd if=/tmp/data of=/dev/{disk} bs=1M conv=fsync 2>/tmp/said; echo $? >/tmp/code\n")
    return written


def _written(console: Console) -> tuple[str, str]:
    """The exit code of that, and the sum of what is on the disk."""
    console.expect("~ # ", 60)
    code = console.run("cat /tmp/code")
    disk = device(console, "data")
    console.run("echo 3 >/proc/sys/vm/drop_caches")
    return code, console.run(f"dd if=/dev/{disk} bs=1M count={_WRITTEN_MIB} 2>/dev/null | md5sum", 60)


def _is_paused(machine: Machine) -> bool:
    conditions = (machine.instance() or {}).get("status", {}).get("conditions", ())
    said = {each["type"]: each for each in conditions}
    return said.get("Paused", {}).get("reason") == "PausedIOError" and machine.status() == "Paused"


def _tells_why(machine: Machine) -> bool:
    """The node's kernel says ENOSPC of a write that found no room, and EIO of one that found too little."""
    return any(
        event["reason"] == "IOerror" and str(event["message"]).endswith("volume: data")
        for event in machine.events()
    )


@pytest.fixture
def sources(small: Cluster) -> Iterator[None]:
    """The claims and the data volume of the machines."""
    claims = Claims(small)
    for name, mode in (("below", "Block"), ("files", "Filesystem"), ("blocks", "Block")):
        claims.create(claim(name, _SIZE, mode))
    small.request("POST", _DATA_VOLUMES, _blank("imported"))
    yield
    small.request("DELETE", f"{_DATA_VOLUMES}/imported")
    claims.remove()


@pytest.fixture
def consoles(small: Cluster, sources: None) -> Iterator[dict[Machine, Console]]:
    """A machine for each kind of disk, another with an empty one, and consoles with somebody logged in."""
    kinds = {**_SOURCES, "other": _SOURCES["empty"]}
    machines = [small.create(_with_disk(name, source)) for name, source in kinds.items()]
    try:
        for machine in machines:
            machine.wait_running(120)
        with ExitStack() as opened:
            yield {machine: opened.enter_context(machine.console(_BOOT_SECONDS)) for machine in machines}
    finally:
        clean_up(machines)


@pytest.mark.feature("STO-67")
def test_every_kind_of_disk_pauses_its_guest_while_there_is_no_room_and_loses_nothing(
    small: Cluster, consoles: dict[Machine, Console]
) -> None:
    *writers, other = consoles
    kept = _write(consoles[other])
    assert _written(consoles[other]) == ("0", kept)
    size = f"$(( $(df -m --output=avail {_POOL} | tail -1) - {_LEFT_MIB} ))M"
    _in_node(small, f"fallocate -l {size} {_BALLAST}")
    wanted = {machine.name: _write(consoles[machine]) for machine in writers}
    for machine in writers:
        wait_for(f"{machine.name} is paused", partial(_is_paused, machine), 60)
        wait_for(f"an event names the disk of {machine.name}", partial(_tells_why, machine), 15)
    kept = _write(consoles[other])  # where it has room already
    assert _written(consoles[other]) == ("0", kept)
    assert other.is_running()
    assert "Ready" in small.kubectl("get", "nodes", "--no-headers").split()
    assert not [pod for pod in small.items(f"{CORE}/pods") if pod["status"]["phase"] == "Failed"]

    _in_node(small, f"rm {_BALLAST}")
    for machine in writers:
        wait_for(f"{machine.name} runs again", machine.is_running, 90)
    found = {machine.name: _written(consoles[machine]) for machine in writers}
    assert found == {name: ("0", written) for name, written in wanted.items()}

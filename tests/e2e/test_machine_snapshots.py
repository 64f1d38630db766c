"""Snapshots, restores and clones of virtual machines, and disks that only one guest may have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.e2e.claims import CLAIMS, Claims, claim, device, is_gone, with_claims
from tests.e2e.clusters import NAMESPACE, Cluster, Machine
from tests.e2e.failures import Document
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(600)]

_SNAPSHOT = "/apis/snapshot.kubevirt.io/v1beta1"
SNAPSHOTS = f"{_SNAPSHOT}/namespaces/{NAMESPACE}/virtualmachinesnapshots"
RESTORES = f"{_SNAPSHOT}/namespaces/{NAMESPACE}/virtualmachinerestores"
CLONES = f"/apis/clone.kubevirt.io/v1beta1/namespaces/{NAMESPACE}/virtualmachineclones"
VOLUME_SNAPSHOTS = f"/apis/snapshot.storage.k8s.io/v1/namespaces/{NAMESPACE}/volumesnapshots"
DISKS = ("files", "blocks")
"""A claim of each volume mode."""


@pytest.fixture
def machines() -> Iterator[list[Machine]]:
    """Machines that are deleted after the test."""
    made: list[Machine] = []
    yield made
    clean_up(made)


def _reference(machine: str) -> Document:
    return {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": machine}


def _create(cluster: Cluster, path: str, name: str, spec: Document) -> Callable[[], Document]:
    """Create a snapshot, restore or clone; gives what reads its status."""
    kinds = {SNAPSHOTS: "VirtualMachineSnapshot", RESTORES: "VirtualMachineRestore"}
    kind, group = kinds.get(path, "VirtualMachineClone"), "/".join(path.split("/")[2:4])
    cluster.request(
        "POST", path, {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}
    )

    def status() -> Document:
        found: Document = cluster.request("GET", f"{path}/{name}").get("status", {})
        return found

    return status


def _snapshot(cluster: Cluster, name: str) -> Document:
    status = _create(cluster, SNAPSHOTS, name, {"source": _reference("origin")})
    wait_for(f"snapshot {name} is ready", lambda: status().get("readyToUse"), 60)
    return status()


def _write(machine: Machine, text: str) -> None:
    with machine.console() as console:
        for name in DISKS:
            console.run(f"echo {text} | dd of=/dev/{device(console, name)} conv=fsync 2>/dev/null")


def _read(machine: Machine) -> list[str]:
    with machine.console() as console:
        return [console.run(f"dd if=/dev/{device(console, name)} bs=6 count=1 2>/dev/null") for name in DISKS]


def _stop(machine: Machine) -> None:
    machine.cluster.virtctl("stop", machine.name)
    wait_for(f"{machine.name} is off", lambda: machine.instance() is None, 60)


def _start(machine: Machine) -> None:
    machine.cluster.virtctl("start", machine.name)
    machine.wait_running()


def _claims(machine: Machine) -> list[str]:
    """The claims of the disks that the running guest has."""
    volumes = (machine.instance() or {})["spec"]["volumes"]
    found = (volume.get("persistentVolumeClaim") for volume in volumes)
    return [each["claimName"] for each in found if each]


def _restore(cluster: Cluster, snapshot: str, **policies: str) -> None:
    spec = {"target": _reference("origin"), "virtualMachineSnapshotName": snapshot, **policies}
    status = _create(cluster, RESTORES, f"to-{snapshot}", spec)
    wait_for(f"{snapshot} is restored", lambda: status().get("complete"), 60)


@pytest.mark.feature("SNP-02", "SNP-12", "SNP-15", "SNP-19", "VMC-85", "VMC-86")
def test_a_machine_returns_to_its_snapshots_and_is_cloned(
    cluster: Cluster, claims: Claims, machines: list[Machine]
) -> None:
    for name, mode, size in zip(DISKS, ("Filesystem", "Block"), ("320Mi", "64Mi"), strict=True):
        claims.create(claim(name, size, mode))
    origin = cluster.create(with_claims("origin", *DISKS))
    machines.append(origin)
    origin.wait_running()
    _write(origin, "first-")
    taken = _snapshot(cluster, "online")
    assert taken["snapshotVolumes"] == {"includedVolumes": list(DISKS)}
    assert "Online" in taken["indications"]
    _write(origin, "second")
    _stop(origin)
    assert "indications" not in _snapshot(cluster, "offline")
    _restore(cluster, "online")
    _start(origin)
    assert _read(origin) == ["first-", "first-"]
    _stop(origin)
    _restore(cluster, "offline", volumeRestorePolicy="InPlace")
    _start(origin)
    assert _claims(origin) == list(DISKS)
    assert _read(origin) == ["second", "second"]

    source = {"apiGroup": "snapshot.kubevirt.io", "kind": "VirtualMachineSnapshot", "name": "offline"}
    status = _create(cluster, CLONES, "copying", {"source": source, "target": _reference("copy")})
    wait_for("the clone is made", lambda: status().get("phase") == "Succeeded", 60)
    copy = Machine(cluster, "copy")
    machines.append(copy)
    _start(copy)
    assert _read(copy) == ["second", "second"]

    disks_of_copy = _claims(copy)
    clean_up(machines)
    wait_for("the restore goes with its machine", partial(is_gone, cluster, f"{RESTORES}/to-online"), 30)
    for path in (f"{SNAPSHOTS}/online", f"{SNAPSHOTS}/offline"):
        cluster.request("DELETE", path)
        wait_for(f"{path} is gone", partial(is_gone, cluster, path), 30)
    wait_for("no volume snapshot is left", lambda: not cluster.items(VOLUME_SNAPSHOTS), 30)
    # The disks did not go with the machine that was copied, and those of its copy do not go with that one.
    for name in disks_of_copy:
        cluster.request("DELETE", f"{CLAIMS}/{name}")
    claims.remove()
    wait_for("no claim is left", lambda: not cluster.items(CLAIMS), 30)
    wait_for("the clone is gone", partial(is_gone, cluster, f"{CLONES}/copying"), 30)


def _told(machine: Machine) -> str:
    """What the instance's condition Synchronized says."""
    conditions = (machine.instance() or {}).get("status", {}).get("conditions", ())
    return next((str(each["message"]) for each in conditions if each["type"] == "Synchronized"), "")


def test_two_guests_cannot_have_one_disk(cluster: Cluster, claims: Claims, machines: list[Machine]) -> None:
    """A claim of one node is waited for; of one that many may use, QEMU locks the file."""
    claims.create(claim("alone", "64Mi", "Block", access="ReadWriteOnce"))
    claims.create(claim("locked", "320Mi", "Filesystem"))
    machines += [cluster.create(with_claims("owner", "alone", "locked"))]
    machines[0].wait_running()
    machines += [cluster.create(with_claims(f"no-{name}", name)) for name in ("alone", "locked")]
    _, waiting, locked = machines
    text = f"PVC {NAMESPACE}/alone is a disk of VMI owner alone, waiting for that VMI to end"
    wait_for("the second guest waits", lambda: _told(waiting) == text, 30)
    why = "another guest uses disk locked, which is not shareable"
    wait_for("the lock is named", lambda: why in _told(locked), 60)
    assert waiting.pods() == []
    assert machines[0].is_running()
    machines[0].delete()
    waiting.wait_running()
    locked.wait_running(120)

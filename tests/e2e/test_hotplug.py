"""Volumes that come to a running guest and leave it: claims of both kinds."""

from __future__ import annotations

import re
from functools import partial

import pytest
from tests.e2e.claims import CLAIMS, Claims, claim, is_gone
from tests.e2e.clusters import KUBEVIRT, NAMESPACE, Cluster, Machine, is_ready_again, manifest
from tests.e2e.commands import run
from tests.e2e.failures import Document
from tests.e2e.processes import kill
from tests.e2e.support import Console, wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(400)]

_DATA_VOLUMES = f"/apis/cdi.kubevirt.io/v1beta1/namespaces/{NAMESPACE}/datavolumes"
_INSTALLATION = f"{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"
_VIRT_CONTROLLER = "system:serviceaccount:kubevirt:kubevirt-controller"
_PLUGGED = ("files", "blocks", "empty")
_MIB = 2048
"""Sectors of 512 bytes."""


def _disk(console: Console, serial: str) -> str:
    """The guest's name of a disk (``sda``, ``vdc``), empty where it has none."""
    shown = f"grep -qs {serial} $d/serial $d/device/vpd_pg80"
    return console.run(f"(cd /sys/block; for d in sd* vd*; do {shown} && echo $d; done)")


def _entry(machine: Machine, name: str) -> Document:
    entries = (machine.instance() or {}).get("status", {}).get("volumeStatus", [])
    found: Document = next((each for each in entries if each["name"] == name), {})
    return found


def _has_phase(machine: Machine, phase: str, *names: str) -> bool:
    return all(_entry(machine, name).get("phase") == phase for name in names)


def _is_rid_of(machine: Machine, *names: str) -> bool:
    return not any(_entry(machine, name) for name in names)


@pytest.mark.feature("VML-29", "VML-30", "VML-31", "VML-32", "VML-33", "CTL-39", "CTL-40")
@pytest.mark.feature("SUP-04", "SUP-05", "CTL-56", "CTL-58", "VML-34", "VML-37")
def test_volumes_come_and_go_while_the_guest_runs(cluster: Cluster, claims: Claims) -> None:
    for name, mode in (("files", "Filesystem"), ("blocks", "Block")):
        claims.create(claim(name, "64Mi", mode))
    claims.create(claim("dump", "2Gi", "Filesystem"))
    claims.create(claim("beside", "64Mi", "Filesystem"))
    machine = cluster.create(manifest("plugged", grace=2))
    try:
        machine.wait_running()
        with machine.console() as console:
            _plug_write_and_unplug(cluster, machine, console)
            _plug_again_and_grow(cluster, machine, console)
            _dump_memory(cluster, machine, console)
            _mount_beside(cluster, machine, console)
            _plug_blank(cluster, machine, console)
        _reboot(cluster, machine)
        _lose_virt_handler_between(cluster, machine)
        with machine.console() as console:
            for name in ("files", "blocks"):
                assert _read(console, name) == name
            _delete_claim_in_use(cluster, console)
    finally:
        clean_up([machine])
    wait_for("the claim goes with its last user", partial(is_gone, cluster, f"{CLAIMS}/blocks"), 30)
    assert not is_gone(cluster, f"{CLAIMS}/files")
    assert "/hotplug-disks/" not in _mounts_of_node(cluster)


def _plug(cluster: Cluster, machine: Machine) -> None:
    cluster.virtctl("addvolume", "plugged", "--volume-name=files", "--serial=files")
    cluster.virtctl("addvolume", "plugged", "--volume-name=blocks", "--bus=virtio")
    wait_for("both are plugged", partial(_has_phase, machine, "Ready", "files", "blocks"), 60)


def _plug_write_and_unplug(cluster: Cluster, machine: Machine, console: Console) -> None:
    _plug(cluster, machine)
    for name in ("files", "blocks"):
        disk = wait_for(f"the guest sees {name}", partial(_disk, console, name), 20)
        console.run(f"echo {name} | dd of=/dev/{disk} conv=fsync 2>/dev/null")
    for name in ("files", "blocks"):
        cluster.virtctl("removevolume", "plugged", f"--volume-name={name}")
    wait_for("both are unplugged", partial(_is_rid_of, machine, "files", "blocks"), 60)
    for name in ("files", "blocks"):
        assert not _disk(console, name)
    attachments = [pod for pod in machine.pods() if pod["metadata"]["name"].startswith("hp-volume-")]
    assert not attachments
    seen = {event["reason"] for event in machine.events()}
    assert {"VolumeMountedToPod", "VolumeReady", "VolumeUnMountedFromPod", "VolumeUnplugged"} <= seen


def _plug_again_and_grow(cluster: Cluster, machine: Machine, console: Console) -> None:
    _plug(cluster, machine)
    for name in ("files", "blocks"):
        assert _read(console, name) == name
        more = {"spec": {"resources": {"requests": {"storage": "128Mi"}}}}
        cluster.request("PATCH", f"{CLAIMS}/{name}", more)
    for name in ("files", "blocks"):
        wait_for(f"{name} has grown", partial(_has_grown, console, name), 60)


def _read(console: Console, name: str) -> str:
    disk = wait_for(f"the guest sees {name}", partial(_disk, console, name), 20)
    return console.run(f"dd if=/dev/{disk} bs={len(name)} count=1 2>/dev/null")


def _has_grown(console: Console, name: str) -> bool:
    return int(console.run(f"cat /sys/block/{_disk(console, name)}/size")) > 90 * _MIB


def _dump_memory(cluster: Cluster, machine: Machine, console: Console) -> None:
    cluster.virtctl("memory-dump", "get", "plugged", "--claim-name=dump")
    wait_for("the memory is dumped", lambda: _dump(machine).get("phase") == "Completed", 90)
    file = str(_dump(machine)["fileName"])
    assert re.fullmatch(r"plugged-dump-\d{8}-\d{6}\.memory\.dump", file)
    found = cluster.request("GET", f"{CLAIMS}/dump")
    assert found["metadata"]["annotations"]["kubevirt.io/memory-dump"] == file
    assert _is_rid_of(machine, "dump")
    assert console.run("echo alive") == "alive"
    cluster.virtctl("memory-dump", "remove", "plugged")
    wait_for("nothing is left of it", lambda: not _dump(machine), 30)
    # But the claim, with the dump in it.
    found = cluster.request("GET", f"{CLAIMS}/dump")
    assert found["metadata"]["annotations"]["kubevirt.io/memory-dump"] == file


def _dump(machine: Machine) -> Document:
    found: Document = machine.vm().get("status", {}).get("memoryDumpRequest", {})
    return found


def _mount_beside(cluster: Cluster, machine: Machine, console: Console) -> None:
    """A claim for backups and the like: the launcher's pod has it, the guest does not."""
    _set_gates(cluster, ["UtilityVolumes"])
    try:
        _mount_twice(cluster, machine, console)
    finally:
        _set_gates(cluster, None)


def _mount_twice(cluster: Cluster, machine: Machine, console: Console) -> None:
    seen_before = console.run("ls /sys/block")
    volume = {"name": "kept", "claimName": "beside"}
    for text in ("first", "second"):
        wait_for("it may be added", partial(_set_utility, cluster, volume), 20)
        wait_for("it is mounted", partial(_has_phase, machine, "MountedToPod", "kept"), 60)
        folder = "/var/run/kubevirt/hotplug-disks/kept"
        as_qemu = ("nsenter", f"--target={machine.launcher()}", "--mount", "--setuid=107", "--setgid=107")
        # What was written before is still there.
        assert run(*as_qemu, "ls", folder).stdout.split() == (["first"] if text == "second" else [])
        run(*as_qemu, "touch", f"{folder}/{text}")
        assert console.run("ls /sys/block") == seen_before
        assert _set_utility(cluster)
        wait_for("nothing is left of it", partial(_is_rid_of, machine, "kept"), 60)
        assert "/hotplug-disks/kept" not in _mounts_of_node(cluster)


def _set_gates(cluster: Cluster, gates: list[str] | None) -> None:
    configuration = {"developerConfiguration": {"featureGates": gates}}
    cluster.request("PATCH", _INSTALLATION, {"spec": {"configuration": configuration}})


def _set_utility(cluster: Cluster, *volumes: Document) -> bool:
    """Only controllers of KubeVirt may; refused while virt-api does not know of the gate. Raises ApiError."""
    path = f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachineinstances/plugged"
    change = {"spec": {"utilityVolumes": list(volumes)}}
    return bool(cluster.request("PATCH", path, change, user=_VIRT_CONTROLLER))


def _plug_blank(cluster: Cluster, machine: Machine, console: Console) -> None:
    """More room for a guest: an empty disk of a data volume."""
    storage = {"resources": {"requests": {"storage": "2Gi"}}}
    wanted: Document = {"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume"}
    wanted |= {"metadata": {"name": "empty"}, "spec": {"source": {"blank": {}}, "storage": storage}}
    cluster.request("POST", _DATA_VOLUMES, wanted)
    cluster.virtctl("addvolume", "plugged", "--volume-name=empty")
    wait_for("it is plugged", partial(_has_phase, machine, "Ready", "empty"), 90)
    disk = wait_for("the guest sees it", partial(_disk, console, "empty"), 20)
    # A file system of the claim takes a part.
    assert 1.9 * 1024 * _MIB < int(console.run(f"cat /sys/block/{disk}/size")) <= 2048 * _MIB
    assert console.run(f"dd if=/dev/{disk} bs=1M count=1 2>/dev/null | tr -d '\\0' | wc -c") == "0"
    console.run(f"echo empty | dd of=/dev/{disk} conv=fsync 2>/dev/null")


def _reboot(cluster: Cluster, machine: Machine) -> None:
    """What is plugged stays until it is unplugged, over reboots and restarts."""
    first, process = machine.uid(), machine.qemu()
    with machine.console() as console:
        console.send("reboot\n")
        console.expect("login: ", 120)
    assert (machine.uid(), machine.qemu()) == (first, process)
    with machine.console() as console:
        for name in _PLUGGED:
            assert _read(console, name) == name
    cluster.virtctl("restart", "plugged")
    machine.wait_restarted(first, 120)
    with machine.console() as console:
        for name in _PLUGGED:
            assert _read(console, name) == name
    cluster.virtctl("removevolume", "plugged", "--volume-name=empty")
    wait_for("it is unplugged", partial(_is_rid_of, machine, "empty"), 60)
    cluster.request("DELETE", f"{_DATA_VOLUMES}/empty")


def _lose_virt_handler_between(cluster: Cluster, machine: Machine) -> None:
    """Between a request and what it leads to, in both directions; consoles end with it."""
    for command, flags, what in (
        ("removevolume", (), "files is unplugged"),
        ("addvolume", ("--serial=files",), "files is plugged"),
    ):
        before, process = cluster.component_pod("virt-handler"), cluster.component("virt-handler")
        cluster.virtctl(command, "plugged", "--volume-name=files", *flags)
        kill(process)
        reached = partial(_is_rid_of if command == "removevolume" else _is_ready, machine, "files")
        wait_for(what, reached, 90)
        wait_for("virt-handler is ready", partial(is_ready_again, cluster, "virt-handler", before), 60)


def _is_ready(machine: Machine, *names: str) -> bool:
    return _has_phase(machine, "Ready", *names)


def _delete_claim_in_use(cluster: Cluster, console: Console) -> None:
    """It stays until nobody uses it any more."""
    cluster.request("DELETE", f"{CLAIMS}/blocks")
    assert cluster.request("GET", f"{CLAIMS}/blocks")["metadata"]["deletionTimestamp"]
    disk = _disk(console, "blocks")
    console.run(f"echo after | dd of=/dev/{disk} conv=fsync 2>/dev/null")
    assert _read(console, "blocks").startswith("after")


def _mounts_of_node(cluster: Cluster) -> str:
    namespace = f"--mount={cluster.state / 'nodes/node01/ns/mnt'}"
    return run("nsenter", namespace, "cat", "/proc/self/mountinfo").stdout

"""A storage pool that runs full, a node that stops under a guest, and `down` and `up`, on a small cluster."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.claim_users import MIB, SHARED, SIZES
from tests.e2e.claims import CLAIMS, Claims, claim, device, with_claims
from tests.e2e.clusters import CORE, Cluster, Machine, is_ready
from tests.e2e.commands import ROOT, run
from tests.e2e.failures import Document
from tests.e2e.import_churn import VOLUMES, Importers, Volume, users_of_disks
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up

from kubecore import loop_devices

pytestmark = [
    pytest.mark.host,
    pytest.mark.guest,
    pytest.mark.timeout(400),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

_HPP = "/apis/hostpathprovisioner.kubevirt.io/v1beta1/hostpathprovisioners/hostpath-provisioner"
_PERSISTENT_VOLUMES = f"{CORE}/persistentvolumes"
_FULL = "Storage pools are full, writes to new blocks of their volumes fail: "
_POOL = "/var/lib/storage"
_SUM = "dd if=/dev/{disk} bs=1M count=8 2>/dev/null | md5sum"
_LEFT_MIB = 48
"""What is left of the pool when guests begin to write, under emulation slowly."""
_NO_ROOM = re.compile("no space left on device|input/output error|DataVolume too small", re.IGNORECASE)
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


def _virtplane(cluster: Cluster, *command: str) -> None:
    module = (sys.executable, "-m", "virtplane.cli.main")
    run(*module, *command, "--state", cluster.state, seconds=150, cwd=ROOT)


@pytest.fixture(scope="module")
def small(guest_archive: Path) -> Iterator[Cluster]:
    """Two nodes with a pool that a guest fills in seconds."""
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="virtplane-e2e-")))
    try:
        _virtplane(cluster, "up", "--nodes", "2", "--storage", "600Mi")
        cluster.load(guest_archive)
        yield cluster
    finally:
        cluster.reset()


@pytest.fixture
def small_claims(small: Cluster) -> Iterator[Claims]:
    made = Claims(small)
    yield made
    made.remove()


def _condition(found: Document, kind: str) -> Document:
    conditions = found.get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == kind), {})


def _fullness(cluster: Cluster) -> str:
    """What the HostPathProvisioner says of full pools; empty while none is."""
    return str(_condition(cluster.request("GET", _HPP), "StoragePoolFull").get("message", ""))


def _sum_of(machine: Machine, serial: str) -> str:
    with machine.console() as console:
        return console.run(_SUM.format(disk=device(console, serial)), 60)


def _fill(machine: Machine, serial: str) -> str:
    """Write random data, of which the sum is given."""
    with machine.console() as console:
        disk = device(console, serial)
        console.run(f"dd if=/dev/urandom of=/dev/{disk} bs=1M count=8 conv=fsync", 60)
    return _sum_of(machine, serial)


def _nearly_fill(cluster: Cluster, left_mib: int = _LEFT_MIB) -> None:
    """Leave little of the pool."""
    size = f"$(( $(df -m --output=avail {_POOL} | tail -1) - {left_mib} ))M"
    _in_node(cluster, f"fallocate -l {size} {_POOL}/ballast")


def _in_node(cluster: Cluster, script: str) -> None:
    run("nsenter", f"--mount={cluster.state / 'nodes/node01/ns/mnt'}", "sh", "-c", script)


@pytest.fixture
def disks(small: Cluster, tmp_path: Path) -> Iterator[Importers]:
    """DataVolumes in a namespace of their own, and a server that needs seconds for a disk."""
    with users_of_disks(small, tmp_path, MIB) as made:
        yield made


def test_disks_that_find_the_pool_full_say_so_and_are_whole_once_there_is_room(
    small: Cluster, disks: Importers
) -> None:
    for mode in SIZES:
        source = {"http": {"url": f"{disks.images.address}/0.img"}}
        disks.want(Volume(f"import-{mode.lower()}", "import", 0, mode, SHARED, source))
        disks.want(Volume(f"upload-{mode.lower()}", "upload", 1, mode, SHARED, {"upload": {}}))
    ready = {"import": "ImportInProgress", "upload": "UploadReady"}

    def is_ready() -> bool:
        return all(ready[name.partition("-")[0]] == phase for name, phase in disks.phases().items())

    wait_for("users have asked for their disks", disks.catch_up, 30)
    wait_for("all are being filled", is_ready, 120)
    _nearly_fill(small, 6)
    imports = [each.name for each in disks.volumes if each.kind == "import"]
    for volume in disks.volumes:
        if volume.kind == "upload":
            disks.upload(volume)
    try:
        wait_for("importers say it", lambda: all(_says_full(small, name) for name in imports), 120)
        wait_for("clients are told", lambda: all(each.refusals for each in disks.clients), 120)
    finally:
        _in_node(small, f"rm {_POOL}/ballast")
    for client in disks.clients:
        assert _NO_ROOM.search(client.refusals[0]), client.refusals
    wait_for("all are filled", lambda: not disks.phases(), 240)
    wait_for("pods have found the disks", lambda: not disks.unread(), 120)
    assert disks.ledger.problems() == {}


def _says_full(cluster: Cluster, name: str) -> bool:
    found = _condition(cluster.request("GET", f"{VOLUMES}/{name}"), "Running")
    return bool(_NO_ROOM.search(found.get("message", "")))


@pytest.mark.feature("STO-67")
def test_a_full_pool_stops_who_writes_and_nobody_else(small: Cluster, small_claims: Claims) -> None:
    for name, size in (("other", "8Mi"), ("reports", "64Mi"), ("stops", "64Mi"), ("spare", "1Mi")):
        small_claims.create(claim(name, size, "Block"))
    wanted = with_claims("writer", "reports", "stops")
    disks = wanted["spec"]["template"]["spec"]["domain"]["devices"]["disks"]
    next(disk for disk in disks if disk["name"] == "reports")["errorPolicy"] = "report"
    writer, other = small.create(wanted), small.create(with_claims("other", "other"))
    try:
        for machine in (writer, other):
            machine.wait_running()
        kept = _fill(other, "other")
        _nearly_fill(small)
        with writer.console() as console:
            disk = device(console, "reports")
            said = console.run(f"dd if=/dev/zero of=/dev/{disk} bs=1M count=64 conv=fsync 2>&1", 120)
            assert "error" in said or "No space" in said, said
            disk = device(console, "stops")
            console.send(f"dd if=/dev/zero of=/dev/{disk} bs=1M count=16 conv=fsync; echo $? >/tmp/written\n")
            _pauses(writer)
        # What changes the volumes has the driver say at once how much room there is.
        small.request("DELETE", f"{CLAIMS}/spare")
        wait_for("administrators are told", lambda: _fullness(small).startswith(_FULL), 30)
        assert _sum_of(other, "other") == kept
        _fill(other, "other")
        assert other.is_running()
        assert small.kubectl("get", "nodes", "--no-headers").count(" Ready ") == 2

        _virtplane(small, "up", "--storage", "2Gi")
        wait_for("the guest runs again", writer.is_running, 120)
        with writer.console() as console:
            assert console.run("cat /tmp/written", 120) == "0"
        small_claims.create(claim("another", "1Mi", "Block"))
        wait_for("no pool is full any more", lambda: not _fullness(small), 90)
    finally:
        clean_up([writer, other])


def _pauses(machine: Machine) -> None:
    def is_paused() -> bool:
        return _condition(machine.instance() or {}, "Paused").get("reason") == "PausedIOError"

    wait_for(f"{machine.name} is paused", is_paused, 60)
    wait_for("an event names the volume", lambda: any(map(_names_volume, machine.events())), 15)


def _names_volume(event: Document) -> bool:
    """The kernel says ENOSPC of a write that found no room, and EIO of one that found too little."""
    return event["reason"] == "IOerror" and str(event["message"]).endswith("volume: stops")


@pytest.mark.feature("VML-36")
def test_a_disk_outlives_its_node_and_the_cluster(small: Cluster, small_claims: Claims) -> None:
    small_claims.create(claim("moving", "64Mi", "Block"))
    machine = small.create(with_claims("mover", "moving"))
    try:
        machine.wait_running()
        kept = _fill(machine, "moving")
        first, node = machine.uid(), str((machine.instance() or {})["status"]["nodeName"])
        _virtplane(small, "node", "stop", node)
        wait_for("the node is missed", lambda: not is_ready(small.request("GET", f"{CORE}/nodes/{node}")), 90)
        small.kubectl("taint", "node", node, _OUT_OF_SERVICE)
        machine.wait_restarted(first, 90)
        assert _sum_of(machine, "moving") == kept
        first = machine.uid()
        small.down()
        assert not loop_devices.of_file((small.state / "pool.img").stat())
        small.up()
        machine.wait_restarted(first, 90)
        assert _sum_of(machine, "moving") == kept
    finally:
        clean_up([machine])
    small_claims.remove()
    wait_for("no volume is left", lambda: not small.items(_PERSISTENT_VOLUMES), 30)

"""Images, secrets and claims that are not what a guest needs: its owner is told, and nobody else feels it."""

from __future__ import annotations

import re
import struct
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.claims import CLAIMS, Claims, claim, with_claims
from tests.e2e.clusters import CORE, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.failures import Document
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up

from virtplane.oci import ImageConfig, LayerWriter, write_archive

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(180)]

_DELETED_SECONDS = 30
_TOLD_SECONDS = 60
_EXTERNAL_DATA = 4


def _qcow2(path: Path, *, backing: bytes = b"", incompatible: int = 0) -> Path:
    at = 512 if backing else 0
    header = struct.pack(">4sIQIIQ", b"QFI\xfb", 3, at, len(backing), 16, 1 << 20).ljust(72, b"\0")
    path.write_bytes((header + struct.pack(">Q", incompatible)).ljust(512, b"\0") + backing)
    return path


def _link(layer: LayerWriter, _: Path) -> None:
    layer.add_directory("disk")
    layer.add_link("disk/disk.img", "../../../../../../../../etc/shadow")


def _folder(layer: LayerWriter, _: Path) -> None:
    layer.add_link("disk", "/etc")


def _device(layer: LayerWriter, _: Path) -> None:
    """A node of the first disk of the machine."""
    layer.add_directory("disk")
    node = tarfile.TarInfo("disk/disk.img")
    node.type, node.devmajor, node.devminor, node.mode = tarfile.BLKTYPE, 8, 0, 0o666
    layer._tar.addfile(node)


def _backing(layer: LayerWriter, folder: Path) -> None:
    layer.add_directory("disk")
    layer.add_file("disk/disk.qcow2", _qcow2(folder / "backing", backing=b"/etc/passwd"))


def _data_file(layer: LayerWriter, folder: Path) -> None:
    layer.add_directory("disk")
    layer.add_file("disk/disk.qcow2", _qcow2(folder / "data", incompatible=_EXTERNAL_DATA))


_IMAGES: dict[str, tuple[Callable[[LayerWriter, Path], None], str]] = {
    "link": (_link, r"/disk/disk\.img in the image leads out of it"),
    "folder": (_folder, r"/disk in the image leads out of it"),
    "device": (_device, r"must hold exactly one disk in /disk; found: none"),
    "backing": (_backing, r"is a qcow2 image with a backing file, which is not allowed"),
    "data": (_data_file, r"is a qcow2 image with an external data file, which is not allowed"),
}


def _reference(name: str) -> str:
    return f"virtplane.local/bad-{name}:latest"


@pytest.fixture
def images(cluster: Cluster, tmp_path: Path) -> None:
    """Container disks that are none, in every node."""
    for name, (fill, _) in _IMAGES.items():
        writer = LayerWriter(tmp_path / "layer")
        with writer:
            fill(writer, tmp_path)
        archive = tmp_path / f"{name}.tar"
        write_archive(archive, _reference(name), [writer.finished()], ImageConfig("bad"))
        cluster.load(archive)


@pytest.fixture(scope="module")
def bystander(cluster: Cluster) -> Iterator[Machine]:
    """Another guest, which must not feel anything."""
    machine = cluster.create(still("bystander"))
    try:
        _wait_started(machine)
        before = machine.uid(), machine.qemu()
        yield machine
        assert (machine.phase(), machine.uid(), machine.qemu()) == ("Running", *before)
    finally:
        clean_up([machine])


def still(name: str) -> Document:
    """A machine whose guest does not run an instruction."""
    wanted = manifest(name, grace=0)
    wanted["spec"]["template"]["spec"]["startStrategy"] = "Paused"
    return wanted


def _wait_started(machine: Machine, seconds: float = 60) -> None:
    """Until it has its QEMU; it is not ready, for it is paused."""
    wait_for(f"{machine.name} is started", lambda: machine.phase() == "Running", seconds)


def _synchronized(machine: Machine) -> str:
    conditions = (machine.instance() or {}).get("status", {}).get("conditions", ())
    found = [each for each in conditions if each["type"] == "Synchronized" and each["status"] == "False"]
    return str(found[0].get("message", "")) if found else ""


def _warnings(machine: Machine) -> list[str]:
    return [str(event["message"]) for event in machine.events() if event["type"] == "Warning"]


def _is_told(machine: Machine, pattern: str) -> bool:
    """In the instance's status and by an event."""
    told = [_synchronized(machine), *_warnings(machine)]
    return len([text for text in told if re.search(pattern, text)]) >= 2


def _end(*machines: Machine) -> None:
    for machine in machines:
        machine.delete()
    for machine in machines:
        machine.wait_gone(_DELETED_SECONDS)


def test_an_image_that_is_no_disk_is_told_and_opens_no_file_of_the_node(
    cluster: Cluster, images: None, bystander: Machine
) -> None:
    machines = {}
    for name in _IMAGES:
        wanted = still(f"bad-{name}")
        wanted["spec"]["template"]["spec"]["volumes"][0]["containerDisk"]["image"] = _reference(name)
        machines[name] = cluster.create(wanted)
    try:
        for name, machine in machines.items():
            told = partial(_is_told, machine, _IMAGES[name][1])
            wait_for(f"it is told that {name} is no disk", told, _TOLD_SECONDS)
            assert machine.phase() == "Scheduled"
    finally:
        _end(*machines.values())


def test_a_secret_that_is_missing_is_named_and_the_guest_starts_when_it_comes(
    cluster: Cluster, bystander: Machine
) -> None:
    wanted = still("without-secret")
    source = {"secretRef": {"name": "late"}}
    wanted["spec"]["template"]["spec"]["volumes"][1]["cloudInitNoCloud"] = source
    machine = cluster.create(wanted)
    secret = f"{CORE}/namespaces/{NAMESPACE}/secrets"
    try:
        wait_for(
            "the pod says what is missing", lambda: _pod_says(machine, '"late" not found'), _TOLD_SECONDS
        )
        assert machine.status() == "Starting"
        user_data = {"userdata": "H4sIAP/+"}  # compressed, as cloud-init takes it
        cluster.request("POST", secret, {"metadata": {"name": "late"}, "data": user_data})
        _wait_started(machine, 150)
    finally:
        _end(machine)
        cluster.request("DELETE", f"{secret}/late")


def _pod_says(machine: Machine, text: str) -> bool:
    name = machine.pod()["metadata"]["name"]
    events = machine.cluster.items(f"{CORE}/namespaces/{NAMESPACE}/events")
    return any(event["involvedObject"]["name"] == name and text in event["message"] for event in events)


def test_a_claim_that_is_deleted_under_a_guest_goes_when_the_guest_does(
    cluster: Cluster, claims: Claims, bystander: Machine
) -> None:
    claims.create(claim("doomed", "16Mi", "Filesystem"))
    wanted = with_claims("keeps-its-disk", "doomed")
    wanted["spec"]["template"]["spec"]["startStrategy"] = "Paused"
    wanted["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0
    machine = cluster.create(wanted)
    try:
        _wait_started(machine)
        uid = machine.uid()
        cluster.request("DELETE", f"{CLAIMS}/doomed")
        found = cluster.find(f"{CLAIMS}/doomed")
        assert found is not None and "deletionTimestamp" in found["metadata"]
        assert (machine.phase(), machine.uid()) == ("Running", uid)
        cluster.virtctl("stop", machine.name)
        wait_for("the claim is gone", lambda: cluster.find(f"{CLAIMS}/doomed") is None, 60)
        cluster.virtctl("start", machine.name)
        wait_for("the missing claim is told", lambda: machine.status() == "ErrorPvcNotFound", _TOLD_SECONDS)
    finally:
        _end(machine)

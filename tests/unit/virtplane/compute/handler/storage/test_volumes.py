"""Disks that outlive their guest: what is in them is the guest's, and never looked at."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import struct
import subprocess
from pathlib import Path
from typing import Any

import pycdlib
import pytest
from lxml import etree

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.domain.document import render
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import PodPaths
from virtplane.compute.handler.storage.claims import NotEnoughSpace
from virtplane.compute.handler.storage.images import BadImage
from virtplane.compute.handler.storage.volumes import VolumePreparer

SECRET = b"/etc/shadow"
DISKS = "var/run/kubevirt-private/vmi-disks/data"
KINDS: dict[str, dict[str, Any]] = {
    "claim": {"persistentVolumeClaim": {"claimName": "c"}},
    "data volume": {"dataVolume": {"name": "d"}},
    "host disk": {"hostDisk": {"path": "/data/disk.img", "type": "Disk"}},
    "ephemeral": {"ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}},
}


def written_by_the_guest() -> bytes:
    """A qcow2 header that names a backing file, as a guest can write it at the start of its disk."""
    header = struct.pack(">4sIQIIQ", b"QFI\xfb", 3, 512, len(SECRET), 16, 1 << 30).ljust(512, b"\0")
    return (header + SECRET).ljust(4096, b"\0")


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A launcher's file system; who owns files is not what is tested here, and only root could change it."""
    monkeypatch.setattr(os, "chown", lambda *_, **__: None)
    monkeypatch.setattr(os, "fchown", lambda *_: None)
    (tmp_path / "root" / DISKS).mkdir(parents=True)
    (tmp_path / "scratch").mkdir()
    return tmp_path


def prepare(pod: Path, volume: dict[str, Any]) -> tuple[VirtualMachineInstance, DomainContext]:
    disks = [{"name": "data", "disk": {"bus": "virtio"}}]
    document = {
        "metadata": {"name": "vm", "namespace": "ns", "uid": "u"},
        "spec": {"domain": {"devices": {"disks": disks}}, "volumes": [{"name": "data", **volume}]},
    }
    vmi = decode(VirtualMachineInstance, document)
    with Root(pod / "root") as root, Root(pod / "scratch") as scratch:
        sources = VolumePreparer(vmi, root, scratch, PodPaths("", pod)).prepare()
    return vmi, DomainContext(emulation=True, disks=sources)


def test_a_config_drive_that_lists_devices_is_written_once_their_addresses_are_known(pod: Path) -> None:
    document = {
        "metadata": {"name": "vm", "namespace": "ns"},
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "red", "tag": "storage", "bridge": {}}]}},
            "volumes": [{"name": "init", "cloudInitConfigDrive": {"userData": "#"}}],
        },
    }
    vmi, drive = decode(VirtualMachineInstance, document), pod / "scratch/cloud-init-data/ns/vm"
    with Root(pod / "root") as root, Root(pod / "scratch") as scratch:
        preparer = VolumePreparer(vmi, root, scratch, PodPaths("", pod))
        assert preparer.prepare()["init"].path.endswith("/configdrive.iso")
        assert not drive.exists()
        for address in ("0000:01:00.0", "0000:02:00.0"):  # the second start of a guest whose first failed
            preparer.write_config_drives([{"type": "nic", "address": address, "tags": ["storage"]}])
            preparer.prepare()
    found = io.BytesIO()
    image = pycdlib.PyCdlib()
    image.open(str(drive / "configdrive.iso"))
    image.get_file_from_iso_fp(found, rr_path="/openstack/latest/meta_data.json")
    image.close()
    devices = json.loads(found.getvalue())["devices"]
    assert devices == [{"type": "nic", "address": "0000:02:00.0", "tags": ["storage"]}]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ephemeral"])
def test_disk_is_raw_whatever_the_guest_wrote_to_it(pod: Path, kind: str) -> None:
    (pod / "root" / DISKS / "disk.img").write_bytes(written_by_the_guest())
    vmi, context = prepare(pod, KINDS[kind])
    disk = etree.fromstring(render(vmi, context)).find("devices/disk")
    assert disk is not None
    driver, below = disk.find("driver"), disk.find("backingStore")
    assert driver is not None and driver.get("type") == "raw"
    assert below is not None and len(below) == 0 and not below.attrib


@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is not installed")
def test_ephemeral_layer_stands_on_a_raw_claim(pod: Path) -> None:
    (pod / "root" / DISKS / "disk.img").write_bytes(written_by_the_guest())
    _, context = prepare(pod, KINDS["ephemeral"])
    source = context.disks["data"]
    assert (source.format, source.backing_format) == ("qcow2", "raw")
    overlay = pod / "scratch/disk-data/data/disk.qcow2"
    told = subprocess.run(
        ["qemu-img", "info", "-U", str(overlay)], capture_output=True, text=True, check=True
    ).stdout
    assert "backing file format: raw" in told
    assert "(4096 bytes)" in told


@pytest.mark.parametrize("capacity", ["1e99", "8Ei"])
@pytest.mark.parametrize("kind", ["hostDisk", "emptyDisk"])
def test_disk_that_no_file_can_hold_is_refused(pod: Path, kind: str, capacity: str) -> None:
    (pod / "volumes/kubernetes.io~empty-dir/empty-disks").mkdir(parents=True)
    source = {"capacity": capacity}
    if kind == "hostDisk":
        source |= {"path": "/data/new.img", "type": "DiskOrCreate"}
    with pytest.raises((BadImage, NotEnoughSpace, OSError)):
        prepare(pod, {kind: source})
    assert not [path for path in pod.rglob("*") if path.is_file()]


@pytest.mark.parametrize("kind", KINDS)
def test_the_owner_of_a_disk_that_is_there_stays_who_it_is(
    pod: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Who names a file of another user must not get to read it by that."""
    disk, owners = pod / "root" / DISKS / "disk.img", []
    disk.write_bytes(bytes(4096))
    found = disk.stat().st_ino

    def give(path: str, *_: int, dir_fd: int | None = None, **__: bool) -> None:
        owners.append(os.stat(path, dir_fd=dir_fd).st_ino)

    monkeypatch.setattr(os, "chown", give)
    monkeypatch.setattr(os, "fchown", lambda file, *_: owners.append(os.fstat(file).st_ino))
    prepare(pod, KINDS[kind])
    assert found not in owners


@pytest.mark.feature("VMC-40")
@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is not installed")
def test_an_empty_disk_ends_at_a_whole_mebibyte(pod: Path) -> None:
    folder = pod / "volumes/kubernetes.io~empty-dir/empty-disks"
    folder.mkdir(parents=True)
    prepare(pod, {"emptyDisk": {"capacity": "1G"}})
    information = ["qemu-img", "info", "--output=json", str(folder / "data.qcow2")]
    done = subprocess.run(information, capture_output=True, check=True)
    assert json.loads(done.stdout)["virtual-size"] == 953 << 20


def test_an_empty_disk_below_a_mebibyte_is_refused(pod: Path) -> None:
    (pod / "volumes/kubernetes.io~empty-dir/empty-disks").mkdir(parents=True)
    with pytest.raises(BadImage, match="volume data: 100Ki is too small, must be at least 1MiB"):
        prepare(pod, {"emptyDisk": {"capacity": "100Ki"}})


@pytest.mark.parametrize("kind", ["claim", "host disk"])
def test_disk_that_is_a_link_is_refused(pod: Path, kind: str) -> None:
    (pod / "root/token").write_text("t")
    (pod / "root" / DISKS / "disk.img").symlink_to("/token")
    with pytest.raises(BadImage, match=r"disk\.img is a link"):
        prepare(pod, KINDS[kind])


@pytest.mark.parametrize("kind", ["claim", "ephemeral"])
def test_disk_that_is_a_pipe_or_a_device_of_the_node_is_refused_without_opening_it(
    pod: Path, kind: str
) -> None:
    """A tenant's pod can make device nodes in a claim whose file system allows them."""
    disk = pod / "root" / DISKS / "disk.img"
    os.mkfifo(disk)
    with pytest.raises(BadImage, match=r"disk\.img is no file"):
        prepare(pod, KINDS[kind])
    if os.geteuid() == 0:
        disk.unlink()
        os.mknod(disk, stat.S_IFBLK | 0o666, os.makedev(7, 4095))
        with pytest.raises(BadImage, match=r"disk\.img is no file"):
            prepare(pod, KINDS[kind])

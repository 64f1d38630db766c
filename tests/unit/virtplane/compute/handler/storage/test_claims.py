"""Disks in claims: made in empty ones, and growing with them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.disks import Disk
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.disks import render_disk
from virtplane.compute.handler.hotplug.growth import DiskGrowth
from virtplane.compute.handler.launchers.process import Process
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import PodPaths
from virtplane.compute.handler.storage import claims
from virtplane.compute.handler.storage.claims import ClaimSettings, NotEnoughSpace
from virtplane.compute.handler.storage.volumes import VolumeNotReady, VolumePreparer
from virtplane.compute.handler.threads import Steps

DISK = "var/run/kubevirt-private/vmi-disks/data/disk.img"
CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}
MIB = 1 << 20
_DISK = decode(Disk, {"name": "data", "disk": {"bus": "virtio"}})


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A launcher's file system with an empty claim of plenty of room; only root could change owners, so the
    disks of QEMU's user are those of whoever runs this.
    """
    monkeypatch.setattr(claims, "QEMU_USER", os.geteuid())
    monkeypatch.setattr(os, "chown", lambda *_, **__: None)
    monkeypatch.setattr(os, "fchown", lambda *_: None)
    monkeypatch.setattr(claims, "_available", lambda _descriptor: 1000 * MIB)
    (tmp_path / "root" / DISK).parent.mkdir(parents=True)
    (tmp_path / "scratch").mkdir()
    return tmp_path


def instance(
    requests: str,
    capacity: str = "",
    overhead: str = "0",
    volume: dict[str, Any] | None = None,
    *,
    preallocated: bool = False,
) -> VirtualMachineInstance:
    info = {
        "claimName": "c",
        "filesystemOverhead": overhead,
        "requests": {"storage": requests},
        "capacity": {"storage": capacity or requests},
        "preallocated": preallocated,
    }
    document = {
        "metadata": {"name": "vm", "namespace": "ns", "uid": "u"},
        "spec": {"domain": {"devices": {}}, "volumes": [{"name": "data", **(volume or CLAIM)}]},
        "status": {"volumeStatus": [{"name": "data", "target": "", "persistentVolumeClaimInfo": info}]},
    }
    return decode(VirtualMachineInstance, document)


def prepare(
    pod: Path, vmi: VirtualMachineInstance, settings: ClaimSettings | None = None
) -> tuple[int, list[str]]:
    """The disk's size after its preparation, and the remarks on it."""
    remarks: list[str] = []
    with Root(pod / "root") as root, Root(pod / "scratch") as scratch:
        preparer = VolumePreparer(
            vmi,
            root,
            scratch,
            PodPaths("", pod),
            on_small_claim=remarks.append,
            claim_settings=settings or ClaimSettings(),
        )
        preparer.prepare()
    return (pod / "root" / DISK).stat().st_size, remarks


@pytest.mark.parametrize(
    ("requests", "capacity"), [("300Mi", "400Mi"), ("400Mi", "300Mi"), ("314572801", "1Gi")]
)
def test_an_empty_claim_gets_a_disk_of_what_was_requested(pod: Path, requests: str, capacity: str) -> None:
    assert prepare(pod, instance(requests, capacity)) == (300 * MIB, [])
    assert (pod / "root" / DISK).stat().st_blocks == 0


def test_a_disk_is_a_little_smaller_where_the_claim_is_and_its_owner_is_told(pod: Path) -> None:
    available = 1000 * MIB - 131072
    size, remarks = prepare(pod, instance("1050Mi"))
    assert size == available
    assert remarks == [
        f"PV size too small: expected {1050 * MIB} B, found {available} B."
        " Using it anyway, it is within 10 % toleration"
    ]


def test_a_claim_with_far_too_little_room_gets_no_disk(pod: Path) -> None:
    with pytest.raises(NotEnoughSpace, match=rf"not enough space, demanded size {2000 * MIB} B"):
        prepare(pod, instance("2000Mi"))
    assert not (pod / "root" / DISK).exists()
    assert prepare(pod, instance("2000Mi"), ClaimSettings(60, 0)) == (
        1000 * MIB,
        [
            f"PV size too small: expected {2000 * MIB} B, found {1000 * MIB} B."
            " Using it anyway, it is within 60 % toleration"
        ],
    )


def test_a_claim_below_a_mebibyte_gets_no_disk(pod: Path) -> None:
    with pytest.raises(NotEnoughSpace, match="must be at least 1MiB"):
        prepare(pod, instance("100Ki"))


def test_a_base_without_a_disk_is_waited_for(pod: Path) -> None:
    with pytest.raises(VolumeNotReady, match=r"contains no disk\.img"):
        prepare(pod, instance("300Mi", volume={"ephemeral": CLAIM}))


@pytest.mark.feature("VML-36")
@pytest.mark.parametrize(("overhead", "grown"), [("0", 500), ("0.1", 450), ("0.055", 472), ("1", 300)])
def test_a_disk_grows_with_its_claim_less_the_overhead(pod: Path, overhead: str, grown: int) -> None:
    prepare(pod, instance("300Mi"))
    assert prepare(pod, instance("500Mi", overhead=overhead))[0] == grown * MIB


@pytest.mark.feature("STO-49")
@pytest.mark.parametrize("preallocated", [False, True])
def test_discards_of_the_guest_leave_a_preallocated_claim_its_blocks(pod: Path, preallocated: bool) -> None:
    vmi = instance("4Mi", preallocated=preallocated)
    with Root(pod / "root") as root, Root(pod / "scratch") as scratch:
        sources = VolumePreparer(vmi, root, scratch, PodPaths("", pod)).prepare()
    driver = render_disk(_DISK, sources["data"], "vda", transitional=False).find("driver")
    assert driver is not None
    assert driver.get("discard") == (None if preallocated else "unmap")


@pytest.mark.parametrize(("allocated", "io"), [(True, "native"), (False, None)])
def test_a_disk_with_all_its_blocks_has_native_io(pod: Path, allocated: bool, io: str | None) -> None:
    with (pod / "root" / DISK).open("wb") as disk:
        disk.truncate(4 * MIB)
        if allocated:
            os.posix_fallocate(disk.fileno(), 0, 4 * MIB)
    with Root(pod / "root") as root, Root(pod / "scratch") as scratch:
        sources = VolumePreparer(instance("4Mi"), root, scratch, PodPaths("", pod)).prepare()
    source = replace(sources["data"], direct_io=True)  # whether it is, is the test's file system's matter
    driver = render_disk(_DISK, source, "vda", transitional=False).find("driver")
    assert driver is not None
    assert driver.get("io") == io


@pytest.mark.parametrize(("user", "mode", "grown"), [(1, 0o666, 6), (1, 0o644, 4), (0, 0o444, 4)])
def test_a_disk_that_qemu_may_not_write_to_stays_as_it_is(
    pod: Path, monkeypatch: pytest.MonkeyPatch, user: int, mode: int, grown: int
) -> None:
    disk = pod / "root" / DISK
    with disk.open("wb") as file:
        file.truncate(4 * MIB)
    disk.chmod(mode)
    monkeypatch.setattr(claims, "QEMU_USER", os.geteuid() + user)
    assert prepare(pod, instance("6Mi"))[0] == grown * MIB


@pytest.mark.parametrize(
    ("percent", "capacity", "size"), [(10, "900Mi", 900), (10, "1100Mi", 1000), (30, "1300Mi", 1000)]
)
def test_a_disk_on_the_node_is_a_little_smaller_where_there_is_less_room(
    pod: Path, percent: int, capacity: str, size: int
) -> None:
    source = {"hostDisk": {"path": "/data/disk.img", "type": "DiskOrCreate", "capacity": capacity}}
    made, remarks = prepare(pod, instance("1", volume=source), ClaimSettings(percent, 0))
    assert made == size * MIB
    assert (pod / "root" / DISK).stat().st_blocks == 0
    told = f"within {percent} % toleration"
    assert [remark.rpartition("it is ")[2] for remark in remarks] == ([] if size == 900 else [told])


def test_a_disk_on_the_node_is_not_made_where_there_is_far_too_little_room(pod: Path) -> None:
    source = {"hostDisk": {"path": "/data/disk.img", "type": "DiskOrCreate", "capacity": "1300Mi"}}
    with pytest.raises(NotEnoughSpace, match=r"not enough space.* taking 10 % toleration into account"):
        prepare(pod, instance("1", volume=source))
    assert not (pod / "root" / DISK).exists()


def test_a_disk_never_shrinks_and_never_outgrows_its_file_system(pod: Path) -> None:
    prepare(pod, instance("300Mi"))
    assert prepare(pod, instance("200Mi"))[0] == 300 * MIB
    assert prepare(pod, instance("2000Mi"))[0] == 999 * MIB


def test_a_disk_with_all_its_blocks_gets_those_of_the_new_part(pod: Path) -> None:
    with (pod / "root" / DISK).open("wb") as disk:
        os.posix_fallocate(disk.fileno(), 0, 4 * MIB)
    prepare(pod, instance("6Mi"))
    assert (pod / "root" / DISK).stat().st_blocks * 512 == 6 * MIB


class _Libvirt:
    """Remembers sizes, as QEMU does."""

    def __init__(self) -> None:
        self.capacities = {f"/{DISK}": 300 * MIB}
        self.looks = 0

    async def disk_capacity(self, _name: str, path: str) -> int:
        self.looks += 1
        return self.capacities[path]

    async def resize_disk(self, _name: str, path: str, size: int) -> None:
        self.capacities[path] = size


class _Launcher:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def root(self) -> Iterator[Root]:
        with Root(self._folder) as root:
            yield root


@pytest.mark.feature("VML-36")
async def test_a_running_guest_sees_the_new_size_once_and_nothing_smaller(pod: Path) -> None:
    prepare(pod, instance("300Mi"))
    libvirt, launcher = _Libvirt(), cast("Process", _Launcher(pod / "root"))
    growth, steps = DiskGrowth("ns_vm", "ns/vm"), Steps("ns/vm", lambda: None)

    async def follow(size: str) -> int:
        await growth.follow(instance(size), launcher, cast("Hypervisor", libvirt), steps, ClaimSettings())
        return libvirt.capacities[f"/{DISK}"]

    assert await follow("300Mi") == 300 * MIB
    assert await follow("500Mi") == 500 * MIB
    assert await follow("500Mi") == 500 * MIB
    assert libvirt.looks == 2, "a size that was followed is not looked at again"
    assert await follow("400Mi") == 500 * MIB
    await steps.close()


async def test_a_resize_that_failed_is_repeated(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(pod, instance("300Mi"))
    libvirt, launcher = _Libvirt(), cast("Process", _Launcher(pod / "root"))
    growth, steps = DiskGrowth("ns_vm", "ns/vm"), Steps("ns/vm", lambda: None)

    async def follow() -> None:
        disks = cast("Hypervisor", libvirt)
        await growth.follow(instance("500Mi"), launcher, disks, steps, ClaimSettings())

    with monkeypatch.context() as broken:
        broken.setattr(libvirt, "resize_disk", _refuse)
        with pytest.raises(OSError, match="busy"):
            await growth.follow(
                instance("500Mi"), launcher, cast("Hypervisor", libvirt), steps, ClaimSettings()
            )
    await follow()
    assert libvirt.capacities[f"/{DISK}"] == 500 * MIB
    await steps.close()


async def test_a_disk_that_becomes_a_pipe_is_neither_waited_for_nor_resized(
    pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tenant swaps it after the look."""
    prepare(pod, instance("300Mi"))
    (pod / "root" / DISK).unlink()
    os.mkfifo(pod / "root" / DISK)
    monkeypatch.setattr(Root, "is_file", lambda *_: True)
    libvirt, launcher = _Libvirt(), cast("Process", _Launcher(pod / "root"))
    growth, steps = DiskGrowth("ns_vm", "ns/vm"), Steps("ns/vm", lambda: None)
    with pytest.raises(OSError, match="No such device"):
        await growth.follow(instance("500Mi"), launcher, cast("Hypervisor", libvirt), steps, ClaimSettings())
    assert libvirt.capacities[f"/{DISK}"] == 300 * MIB
    await steps.close()


async def _refuse(*_: object) -> None:
    await asyncio.sleep(0)
    raise OSError("busy")

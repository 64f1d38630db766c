"""Disks of oVirt: whole, layer by layer, and with everything that can go wrong on the way."""

from __future__ import annotations

import asyncio
import signal
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.importer_process import importing
from tests.support.ovirt import DISK, IMAGE, PASSWORD, TOKEN, USER, OvirtDisk, ovirt_engine
from tests.unit.virtplane.storage.cdi.importer.conftest import MIB, Ended, Volume

from virtplane.storage.cdi.importer import ovirt
from virtplane.storage.cdi.importer.sources import imageio

KEYS = {"IMPORTER_ACCESS_KEY_ID": USER, "IMPORTER_SECRET_KEY": PASSWORD, "IMPORTER_DISK_ID": DISK}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LOCKED_SECONDS", "_POLL_SECONDS", "_CLEANUP_SECONDS"):
        monkeypatch.setattr(ovirt, name, 0.01)
    monkeypatch.setattr(imageio, "_PAUSE_SECONDS", 0.001)


async def run(volume: Volume, disk: OvirtDisk, **more: str) -> Ended:
    async with ovirt_engine(disk) as address:
        return await volume.run("imageio", address, **(KEYS | more))


def delta(folder: Path, old: bytes, new: bytes, backing: str) -> bytes:
    """A qcow2 image of what turns `old` into `new`, which names `backing` as its backing file."""
    base, wanted, made = folder / "old", folder / "new", folder / "delta"
    base.write_bytes(old)
    wanted.write_bytes(new)
    made.unlink(missing_ok=True)
    for command in (
        ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(wanted), "-F", "raw", str(made)],
        ["qemu-img", "rebase", "-f", "qcow2", "-b", str(base), "-F", "raw", str(made)],
        ["qemu-img", "rebase", "-u", "-f", "qcow2", "-b", backing, "-F", "raw", str(made)],
    ):
        subprocess.run(command, check=True)
    return made.read_bytes()


def changed(disk: bytes) -> bytes:
    """The disk with other data, data where there was none, and zeros where there was data."""
    made = bytearray(disk)
    made[100:200] = b"x" * 100
    made[4 * MIB : 4 * MIB + 5000] = b"new!!" * 1000
    made[MIB : 2 * MIB] = bytes(MIB)
    return bytes(made)


@pytest.mark.parametrize("extents", [True, False])
@pytest.mark.parametrize("unreachable_host", [True, False])
async def test_disk_is_imported_and_its_transfer_finalized(
    volume: Volume, raw_disk: bytes, extents: bool, unreachable_host: bool
) -> None:
    disk = OvirtDisk(raw_disk, extents=extents, unreachable_host=unreachable_host, locked_answers=2)
    ended = await run(volume, disk)
    assert (ended.code, ended.message) == (0, "Import Complete"), ended.text
    content = ended.disk.read_bytes()
    assert content[: len(raw_disk)] == raw_disk
    assert not content[len(raw_disk) :].strip(b"\0")
    assert ended.disk.stat().st_size == 20 * MIB
    assert ended.disk.stat().st_blocks * 512 < 4 * MIB
    assert disk.actions == ["finalize"]
    assert ended.percent == 100.0
    assert "<direction>download</direction><format>raw</format>" in disk.bodies[0]
    if extents:
        read = sum(last - first + 1 for first, last in disk.ranges)
        assert read < len(raw_disk) // 2, "zeros were downloaded"


async def test_disk_that_looks_like_another_format_stays_as_it_is(volume: Volume) -> None:
    """What a guest has written to the beginning of its disk says nothing about the disk."""
    content = b"QFI\xfb" + bytes(2 * MIB)
    ended = await run(volume, OvirtDisk(content))
    assert ended.code == 0, ended.text
    assert ended.disk.read_bytes()[: len(content)] == content


@pytest.mark.parametrize("extents", [True, False])
async def test_broken_connection_to_the_host_is_got_over_or_told(
    volume: Volume, raw_disk: bytes, extents: bool
) -> None:
    disk = OvirtDisk(raw_disk, extents=extents, breaks=3)
    ended = await run(volume, disk)
    if extents:
        assert ended.code == 0, ended.text
        assert ended.disk.read_bytes()[: len(raw_disk)] == raw_disk
        assert disk.actions == ["finalize"]
    else:
        assert ended.code == 1
        assert ended.text.startswith("Unable to process data: ")
        assert disk.actions == ["cancel"]


@pytest.mark.parametrize(
    ("disk", "more", "text"),
    [
        (
            OvirtDisk(b"x" * 512),
            {"IMPORTER_SECRET_KEY": "a-wrong-one"},
            "Error creating connection: Cannot authenticate user.",
        ),
        (OvirtDisk(b""), {"IMPORTER_DISK_ID": "other"}, "error fetching disk other: status 404: not found"),
        (
            OvirtDisk(b"x" * 512, layers={"a": b""}),
            {"IMPORTER_CURRENT_CHECKPOINT": "b"},
            "snapshot b not found",
        ),
        (OvirtDisk(b"x" * 512, phases=["paused_system"]), {}, "Error transfer phase: paused_system"),
    ],
)
async def test_refusals_of_the_engine_are_told(
    volume: Volume, disk: OvirtDisk, more: dict[str, str], text: str
) -> None:
    ended = await run(volume, replace(disk), **more)
    assert (ended.code, ended.text) == (1, f"Unable to connect to imageio data source: {text}")
    assert not ended.disk.exists()


async def test_transfer_that_never_comes_to_be_is_cancelled(volume: Volume) -> None:
    disk = OvirtDisk(b"x" * 512, phases=["paused_system"])
    await run(volume, disk)
    assert disk.actions == ["cancel"]


async def test_engine_that_cannot_be_reached_and_archives_are_told(volume: Volume) -> None:
    nobody = await volume.run("imageio", "http://127.0.0.1:1/ovirt-engine/api", **KEYS)
    assert nobody.text.startswith("Unable to connect to imageio data source: Error creating connection: ")
    archive = await volume.run("imageio", "http://x/api", IMPORTER_CONTENTTYPE="archive", **KEYS)
    assert archive.text == "Unable to process data: source imageio has no content of type archive"


async def test_disk_that_is_too_large_is_refused_and_freed(volume: Volume, raw_disk: bytes) -> None:
    disk = OvirtDisk(raw_disk)
    ended = await run(volume, disk, IMPORTER_IMAGE_SIZE=str(4 * MIB))
    assert "is larger than the reported available storage" in ended.text
    assert disk.actions == ["cancel"]


async def test_layers_are_applied_one_after_another(volume: Volume, tmp_path: Path, raw_disk: bytes) -> None:
    """A warm import: the first snapshot whole, the next as its difference, at last the active layer."""
    volume.give_scratch()
    second = changed(raw_disk)
    third = changed(second[:MIB] + b"third" + second[MIB + 5 :]) + b"grown" * 1000
    third += bytes(-len(third) % 512)
    disk = OvirtDisk(third, layers={"one": raw_disk, "two": delta(tmp_path, raw_disk, second, "/rhev/one")})
    stages = [("one", ""), ("two", "one"), (IMAGE, "two")]
    for (current, previous), expected in zip(stages, (raw_disk, second, third), strict=True):
        if current == IMAGE:
            disk.content = delta(tmp_path, second, third, "two")
        for _ in range(2):  # A pod that is started again does the same once more.
            ended = await run(
                volume, disk, IMPORTER_CURRENT_CHECKPOINT=current, IMPORTER_PREVIOUS_CHECKPOINT=previous
            )
            assert (ended.code, ended.message) == (0, "Import Complete"), ended.text
        content = ended.disk.read_bytes()
        assert content[: len(expected)] == expected, current
        assert not content[len(expected) :].strip(b"\0")
        assert ended.disk.stat().st_size == 20 * MIB
        assert not list(volume.paths.scratch.iterdir())
    formats = ["raw", "raw", "cow", "cow", "cow", "cow"]
    assert [body.partition("<format>")[2].partition("<")[0] for body in disk.bodies] == formats
    assert set(disk.actions) == {"finalize"}


DELTA = {"IMPORTER_CURRENT_CHECKPOINT": "two", "IMPORTER_PREVIOUS_CHECKPOINT": "one"}


def hostile_delta(folder: Path, kind: str) -> bytes:
    made = bytearray(delta(folder, bytes(MIB), b"x" * MIB, "one"))
    if kind == "other parent":
        return delta(folder, bytes(MIB), b"x" * MIB, "/etc/shadow")
    if kind == "json":
        return delta(
            folder, bytes(MIB), b"x" * MIB, 'json:{"driver":"raw","file":{"filename":"/etc/shadow"}}'
        )
    if kind == "data file":
        struct.pack_into(">Q", made, 72, 1 << 2)
    if kind == "far name":
        struct.pack_into(">Q", made, 8, 1 << 40)
    if kind == "no parent":
        struct.pack_into(">QI", made, 8, 0, 0)
    if kind == "raw":
        return b"x" * MIB
    return bytes(made)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("other parent", "snapshot backing file 'shadow' does not match expected checkpoint 'one'"),
        ("json", "does not match expected checkpoint 'one'"),
        ("no parent", "snapshot backing file '' does not match expected checkpoint 'one'"),
        ("data file", "its data is in another file"),
        ("far name", "the name of its backing file is not at its beginning"),
        ("raw", "the delta of a snapshot is no qcow2 image"),
    ],
)
async def test_delta_that_is_not_what_was_asked_for_changes_nothing(
    volume: Volume, tmp_path: Path, kind: str, text: str
) -> None:
    volume.give_scratch()
    before = b"old" * MIB
    (volume.paths.data / "disk.img").write_bytes(before)
    disk = OvirtDisk(b"x" * 512, layers={"two": hostile_delta(tmp_path, kind)})
    ended = await run(volume, disk, **DELTA)
    assert ended.code == 1
    assert text in ended.text
    assert ended.disk.read_bytes() == before
    assert not list(volume.paths.scratch.iterdir())


async def test_delta_without_the_disk_of_an_earlier_stage_is_refused(volume: Volume) -> None:
    volume.give_scratch()
    ended = await run(volume, OvirtDisk(b"x" * 512, layers={"two": b""}), **DELTA)
    assert ended.code == 1
    assert "Disk image does not exist, cannot apply deltas for warm migration" in ended.text


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_importer_that_is_ended_frees_the_disk(tmp_path: Path, raw_disk: bytes, how: int) -> None:
    """One that is killed cannot: the engine does it after a minute, as the transfer says."""
    disk = OvirtDisk(raw_disk, stalls=True)
    async with (
        ovirt_engine(disk) as address,
        importing(tmp_path, "imageio", address, "-v=9", **KEYS) as process,
    ):
        async with asyncio.timeout(60):
            await disk.reading.wait()
        process.process.send_signal(how)
        await process.ended()
    assert process.code != 0
    assert disk.actions == (["cancel"] if how == signal.SIGTERM else [])
    assert "<inactivity_timeout>60</inactivity_timeout>" in disk.bodies[0]
    for secret in (PASSWORD, TOKEN, "ticket"):
        assert secret not in process.log + process.text


async def test_extents_that_lie_are_refused(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    for lie in ([{"start": 5, "length": 5}], [{"start": 0, "length": -5}], [{"start": 0, "length": 1 << 62}]):
        monkeypatch.setattr("tests.support.ovirt.extents_of", lambda _, found=lie: found)
        ended = await run(volume, OvirtDisk(b"x" * 512))
        assert ended.code == 1
        assert not ended.disk.exists()

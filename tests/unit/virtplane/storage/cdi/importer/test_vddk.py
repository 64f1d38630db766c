"""Disks of VMware: VMware's library cannot be had here, so a program plays nbdkit's plug-in."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.vsphere import CHANGE_ID, FILE, PASSWORD, USER, UUID, VCenter, fake_nbdkit, vcenter
from tests.unit.virtplane.storage.cdi.importer.conftest import MIB, Ended, Volume

KEYS = {
    "IMPORTER_ACCESS_KEY_ID": USER,
    "IMPORTER_SECRET_KEY": PASSWORD,
    "IMPORTER_UUID": UUID,
    "IMPORTER_BACKING_FILE": FILE,
}
WARM = {"IMPORTER_CURRENT_CHECKPOINT": "snapshot-2", "IMPORTER_PREVIOUS_CHECKPOINT": "snapshot-1"}


@pytest.fixture
def disk() -> bytes:
    """8 MiB with data, and zeros between it."""
    made = bytearray(8 * MIB)
    made[:MIB] = os.urandom(MIB)
    made[5 * MIB : 5 * MIB + 4096] = os.urandom(4096)
    return bytes(made)


@pytest.fixture
def nbdkit(tmp_path: Path, disk: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the program that plays nbdkit notes how it was called."""
    real = shutil.which("nbdkit")
    assert real is not None
    folder = tmp_path / "nbdkit"
    folder.mkdir()
    programs = fake_nbdkit(folder, disk, real)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return folder


async def run(volume: Volume, server: VCenter, **more: str) -> Ended:
    async with vcenter(server) as address:
        return await volume.run("vddk", address, **(KEYS | {"IMPORTER_THUMBPRINT": server.thumbprint} | more))


def told(ended: Ended) -> dict[str, str]:
    found = json.loads(ended.text)["vddkInfo"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("bios_only", [False, True])
async def test_disk_is_copied_and_version_and_host_are_told(
    volume: Volume, nbdkit: Path, disk: bytes, bios_only: bool
) -> None:
    paths = replace(volume.paths, vddk=Path("/opt"), vddk_arguments=nbdkit)
    (nbdkit / "vddk-config-file").write_text("VixDiskLib.nfcAio.Session.BufSizeIn64KB=16")
    server = VCenter(len(disk), bios_only=bios_only)
    ended = await run(Volume(paths), server)
    assert (ended.code, ended.message) == (0, "Import Complete"), ended.text
    assert told(ended) == {"Version": "7.0.3", "Host": "esx1.test"}
    assert ended.disk.read_bytes()[: len(disk)] == disk
    assert ended.disk.stat().st_size == 20 * MIB
    arguments = (nbdkit / "arguments").read_text().splitlines()
    for argument in (
        "libdir=/opt/vmware-vix-disklib-distrib",
        "server=127.0.0.1",
        f"user={USER}",
        f"thumbprint={server.thumbprint}",
        "vm=moref=vm-7",
        "--readonly",
        "--filter=retry",
        "--filter=cacheextents",
        "--verbose",
        "vddk.stats=1",
        f"config={nbdkit}/vddk-config-file",
        f"file={FILE}",
    ):
        assert argument in arguments, argument
    assert not any(argument.startswith("snapshot=") for argument in arguments)
    assert PASSWORD not in "\n".join(arguments) + (nbdkit / "environment").read_text()
    assert (nbdkit / "password").read_text() == PASSWORD
    assert server.asked[-1] == "Logout"


@pytest.mark.parametrize("previous", ["snapshot-1", "one", CHANGE_ID])
async def test_changed_blocks_are_written_into_the_disk_of_the_stage_before(
    volume: Volume, nbdkit: Path, disk: bytes, previous: str
) -> None:
    server = VCenter(len(disk), areas=[(MIB - 512, 1024), (5 * MIB, 8192), (7 * MIB, 3 * 512)])
    base = await run(volume, server, IMPORTER_CURRENT_CHECKPOINT="snapshot-1")
    assert (base.code, base.message) == (0, "Import Complete"), base.text
    new = bytearray(disk)
    new[MIB - 512 : MIB + 512] = b"n" * 1024
    new[5 * MIB : 5 * MIB + 4096] = bytes(4096)
    new[7 * MIB : 7 * MIB + 1536] = b"w" * 1536
    fake_nbdkit(nbdkit, bytes(new), str(shutil.which("nbdkit", path="/usr/bin:/usr/sbin")))
    (nbdkit / "arguments").unlink()
    for _ in range(2):  # A pod that is started again does the same once more.
        warm = await run(volume, server, **(WARM | {"IMPORTER_PREVIOUS_CHECKPOINT": previous}))
        assert (warm.code, warm.message) == (0, "Import Complete"), warm.text
        assert warm.disk.read_bytes()[: len(new)] == new
        assert warm.disk.stat().st_size == 20 * MIB
    arguments = (nbdkit / "arguments").read_text().splitlines()
    assert "snapshot=snapshot-2" in arguments
    assert "transports=file:nbdssl:nbd" in arguments
    assert "file=[store] vm/disk-000001.vmdk" in arguments
    assert server.asked.count("QueryChangedDiskAreas") == 4


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {"IMPORTER_SECRET_KEY": "wrong"},
            "Cannot complete login due to an incorrect user name or password.",
        ),
        ({"IMPORTER_UUID": "other"}, "unable to locate VM in any datacenter"),
        (
            {"IMPORTER_BACKING_FILE": "[x] y"},
            "disk '[x] y' is not present in VM hardware config or snapshot list",
        ),
        ({"IMPORTER_CURRENT_CHECKPOINT": "snapshot-9"}, "snapshot snapshot-9 not found"),
        ({"IMPORTER_PREVIOUS_CHECKPOINT": "snapshot-1"}, "previous checkpoint set without current"),
        ({"IMPORTER_THUMBPRINT": "AA:BB"}, "the server's certificate has another thumbprint"),
    ],
)
@pytest.mark.usefixtures("nbdkit")
async def test_what_the_server_refuses_is_told(volume: Volume, more: dict[str, str], text: str) -> None:
    ended = await run(volume, VCenter(8 * MIB), **more)
    assert (ended.code, ended.text) == (1, f"Unable to connect to vddk data source: {text}")
    assert not ended.disk.exists()


async def test_missing_library_and_nbdkit_that_fails_are_told_without_the_password(
    volume: Volume, nbdkit: Path
) -> None:
    (nbdkit / "failure").write_text("nbdkit: error: VixDiskLib_ConnectEx: Login was denied\n")
    failed = await run(volume, VCenter(8 * MIB))
    assert failed.text.startswith("Unable to connect to vddk data source: nbdkit does not serve the disk: ")
    assert "VixDiskLib_ConnectEx: Login was denied" in failed.text
    assert PASSWORD not in failed.text
    (nbdkit / "refusal").write_text("nbdkit: error: cannot open plugin 'vddk': no such file\n")
    missing = await run(volume, VCenter(8 * MIB))
    assert (missing.code, missing.text) == (
        1,
        "Unable to connect to vddk data source: nbdkit's vddk plugin cannot be used: "
        "nbdkit: error: cannot open plugin 'vddk': no such file",
    )


async def test_distribution_without_the_plugin_refuses_at_once(volume: Volume) -> None:
    ended = await volume.run("vddk", "https://127.0.0.1:1/sdk", **KEYS)
    assert ended.code == 1
    assert ended.text.startswith(
        "Unable to connect to vddk data source: nbdkit's vddk plugin cannot be used: "
    )


@pytest.mark.usefixtures("nbdkit")
async def test_warm_stage_without_a_disk_or_with_areas_off_the_disk_is_refused(volume: Volume) -> None:
    first = await run(volume, VCenter(8 * MIB), **WARM)
    assert "Disk image does not exist, cannot apply deltas for warm migration" in first.text
    before = b"old!" * (20 * MIB // 4)
    (volume.paths.data / "disk.img").write_bytes(before)
    server = VCenter(8 * MIB, areas=[(7 * MIB, 1 << 50)])
    lie = await run(volume, server, **WARM)
    assert lie.text == "Unable to connect to vddk data source: an area that has changed is not on the disk"
    assert lie.disk.read_bytes() == before

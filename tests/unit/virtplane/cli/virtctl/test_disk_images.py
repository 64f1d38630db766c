"""Images that are imported: their formats and sizes, and those that are more than themselves."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest

from virtplane.cli.virtctl.contents import Content, whole
from virtplane.cli.virtctl.importing.diskimages import BadImage, DiskImage, inspect, is_compressed
from virtplane.storage.cdi.importer.formats import DiskFormat

MIB = 1 << 20


def made(folder: Path, form: str, *options: str, size: str = "3M") -> Path:
    path = folder / f"image.{form}"
    subprocess.run(["qemu-img", "create", "-q", "-f", form, *options, str(path), size], check=True)
    return path


def seen(path: Path) -> DiskImage:
    return inspect(whole(path), "image")


@pytest.mark.feature("NEW-09")
@pytest.mark.parametrize(
    ("form", "options", "kind"),
    [
        ("raw", (), DiskFormat.RAW),
        ("qcow2", (), DiskFormat.QCOW2),
        ("qcow2", ("-o", "compat=0.10"), DiskFormat.QCOW2),
        ("vmdk", (), DiskFormat.VMDK),
        ("vmdk", ("-o", "subformat=streamOptimized"), DiskFormat.VMDK),
        ("vhdx", (), DiskFormat.VHDX),
        ("vdi", (), DiskFormat.VDI),
        ("vpc", ("-o", "force_size=on"), DiskFormat.VHD),
    ],
)
def test_the_size_of_the_disk_is_that_of_its_header(
    tmp_path: Path, form: str, options: tuple[str, ...], kind: DiskFormat
) -> None:
    assert seen(made(tmp_path, form, *options)) == DiskImage(kind, 3 * MIB)


def test_disks_that_qemu_measures_by_their_geometry_fit(tmp_path: Path) -> None:
    image = made(tmp_path, "vpc", size="100M")
    shown = subprocess.run(
        ["qemu-img", "info", str(image)], check=True, capture_output=True, text=True
    ).stdout
    size = seen(image).virtual_bytes
    assert size is not None
    assert int(shown.split("virtual size:")[1].split("(")[1].split()[0]) <= size


def test_a_part_of_a_file_is_looked_at_alone(tmp_path: Path) -> None:
    inner = made(tmp_path, "qcow2").read_bytes()
    outer = tmp_path / "outer"
    outer.write_bytes(b"x" * 1000 + inner + b"y" * 1000)
    found = inspect(Content(outer, len(inner), 1000), "image")
    assert found == DiskImage(DiskFormat.QCOW2, 3 * MIB)
    assert Content(outer, 5, 998).read(0, 100) == b"xx" + inner[:3]


def test_compressed_images_do_not_tell_their_size(tmp_path: Path) -> None:
    path = tmp_path / "image.gz"
    path.write_bytes(gzip.compress(b"x" * 1000))
    assert is_compressed(seen(path))
    assert seen(path).virtual_bytes is None


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("qcow2", "invalid backing file /etc/passwd"),
        ("vpc", ""),
        ("vmdk", "depends on a parent image"),
    ],
)
def test_images_that_are_layers_of_others_are_refused(tmp_path: Path, form: str, says: str) -> None:
    if form == "vpc":
        path = made(tmp_path, form)
        content = bytearray(path.read_bytes())
        content[60:64] = (4).to_bytes(4, "big")
        path.write_bytes(content)
        says = "the VHD depends on a parent image"
    elif form == "vmdk":
        base = made(tmp_path, "vmdk")
        path = tmp_path / "layer.vmdk"
        command = ["qemu-img", "create", "-q", "-f", "vmdk", "-b", str(base), "-F", "vmdk", str(path)]
        subprocess.run(command, check=True)
    else:
        path = made(tmp_path, form, "-u", "-b", "/etc/passwd", "-F", "raw")
    with pytest.raises(BadImage, match=says):
        seen(path)


@pytest.mark.parametrize("form", ["qcow2", "vmdk", "vhdx", "vdi", "vpc"])
def test_truncated_images_are_refused(tmp_path: Path, form: str) -> None:
    path = made(tmp_path, form)
    whole_size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:70])
    assert whole_size > 70
    with pytest.raises(BadImage):
        seen(path)


def test_headers_that_promise_too_much_are_refused(tmp_path: Path) -> None:
    path = made(tmp_path, "qcow2")
    content = bytearray(path.read_bytes())
    content[24:32] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(BadImage, match="is not possible"):
        seen(path)


@pytest.mark.parametrize(
    ("at", "value", "says"),
    [
        (192 << 10, b"none", "no table of regions"),
        ((192 << 10) + 8, b"\0\0\0\0", "a part of its metadata is missing"),
        ((192 << 10) + 8, b"\xff\xff\xff\xff", ""),
    ],
)
def test_damaged_vhdx_images_end_the_search(tmp_path: Path, at: int, value: bytes, says: str) -> None:
    path = made(tmp_path, "vhdx")
    content = bytearray(path.read_bytes())
    content[at : at + len(value)] = value
    path.write_bytes(content)
    if says:
        with pytest.raises(BadImage, match=says):
            seen(path)
    else:
        assert seen(path).virtual_bytes == 3 * MIB


def test_names_in_images_do_not_control_terminals(tmp_path: Path) -> None:
    with pytest.raises(BadImage) as raised:
        seen(made(tmp_path, "qcow2", "-u", "-b", "\x1b[2Jx", "-F", "raw"))
    assert "\x1b" not in raised.value.message


def test_an_empty_file_is_no_disk(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(BadImage, match="it is empty"):
        seen(tmp_path / "empty")

"""The demo guest's parts: its root file system as a cpio archive, and its disk's first sector."""

from __future__ import annotations

import os
import struct
import subprocess
import tarfile
from pathlib import Path

import pytest

from virtplane.guest import disk, initramfs, oci, packages


def _entries(archive: bytes) -> dict[str, tuple[dict[str, int], bytes]]:
    """Fields and contents by name, read by the rules of the "newc" format."""
    names = "ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check"
    found, position = {}, 0
    while True:
        assert archive[position : position + 6] == b"070701"
        numbers = [int(archive[position + 6 + 8 * i : position + 14 + 8 * i], 16) for i in range(13)]
        fields = dict(zip(names.split(), numbers, strict=True))
        name_start = position + 110
        name = archive[name_start : name_start + fields["namesize"] - 1].decode()
        data_start = (name_start + fields["namesize"] + 3) // 4 * 4
        found[name] = (fields, archive[data_start : data_start + fields["filesize"]])
        position = (data_start + fields["filesize"] + 3) // 4 * 4
        if name == "TRAILER!!!":
            assert position == len(archive)
            return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/tool").write_bytes(b"#!/bin/sh\n")
    (folder / "bin/tool").chmod(0o755)
    (folder / "bin/link").symlink_to("tool")
    (folder / "note").write_bytes(b"12345")
    (folder / "note").chmod(0o644)
    return folder


def test_a_tree_becomes_an_archive_that_belongs_to_root(root: Path) -> None:
    entries = _entries(b"".join(initramfs._cpio(root)))
    assert list(entries) == ["bin", "bin/link", "bin/tool", "note", "dev/console", "TRAILER!!!"]
    assert {name: oct(fields["mode"]) for name, (fields, _) in entries.items()} == {
        "bin": "0o40755",
        "bin/link": "0o120777",
        "bin/tool": "0o100755",
        "note": "0o100644",
        "dev/console": "0o20600",
        "TRAILER!!!": "0o0",
    }
    assert entries["bin/link"][1] == b"tool"
    assert entries["note"][1] == b"12345"
    assert all(fields["uid"] == fields["gid"] == fields["mtime"] == 0 for fields, _ in entries.values())


def test_the_console_device_exists_before_anything_is_mounted(root: Path) -> None:
    fields, _ = _entries(b"".join(initramfs._cpio(root)))["dev/console"]
    assert (fields["rdevmajor"], fields["rdevminor"]) == (5, 1)


def test_equal_trees_give_equal_bytes(root: Path, tmp_path: Path) -> None:
    first = b"".join(initramfs._cpio(root))
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", "--no-dereference", str(root), str(copy)], check=True)
    (copy / "bin/tool").chmod(0o755)
    (copy / "note").chmod(0o644)
    assert b"".join(initramfs._cpio(copy)) == first


def test_a_kernel_is_the_newest_of_the_packages(tmp_path: Path) -> None:
    with pytest.raises(initramfs.MissingPart, match="vmlinuz"):
        initramfs.kernel_of(tmp_path)
    (tmp_path / "boot").mkdir()
    for release in ("6.1.0-10", "6.1.0-20"):
        (tmp_path / f"boot/vmlinuz-{release}").touch()
    assert initramfs.kernel_of(tmp_path).name == "vmlinuz-6.1.0-20"


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(initramfs.MissingPart, match="bin/busybox is in none of the packages"):
        initramfs.build(tmp_path / "tree", tmp_path / "root", ())


def test_the_first_sector_holds_boot_code_and_one_active_partition() -> None:
    sector = disk._master_boot_record(b"\xeb\x63" + b"\x90" * 600, 30000)
    assert len(sector) == 512
    assert sector[:2] == b"\xeb\x63"
    assert sector[440:444] == b"nlpv"
    status, first, kind, last, start, sectors = struct.unpack("<B3sB3sII", sector[446:462])
    assert (status, kind, start, sectors) == (0x80, 0x0E, 2048, 30000)
    assert first == last == b"\xfe\xff\xff"
    assert sector[462:510] == bytes(48)
    assert sector[510:] == b"\x55\xaa"


def test_a_boot_loader_that_fails_is_quoted(tmp_path: Path) -> None:
    tools = disk._Tools(tmp_path, "disk@@0")
    (tmp_path / "usr/bin").mkdir(parents=True)
    tool = tmp_path / "usr/bin/mformat"
    tool.write_text("#!/bin/sh\necho no space >&2; exit 1\n")
    tool.chmod(0o755)
    with pytest.raises(disk.BootLoaderError, match="mformat failed: no space"):
        tools.run("mformat")


def test_a_package_that_cannot_be_had_is_named() -> None:
    with pytest.raises(packages.PackageError, match="for the-package: no luck"):
        packages._run(["sh", "-c", "echo no luck >&2; exit 1"], what="the-package")


_LISTING = """\
linux-image-virtual
  Depends: linux-image-6.8.0-31-generic
qemu-guest-agent
  PreDepends: init-system-helpers
  Depends: libc6
  Depends: libglib2.0-0
 |Depends: liballoc1
  Depends: <libvirtual>
    libone
libc6
  Depends: libgcc-s1
libglib2.0-0
  Depends: zlib1g
libgcc-s1
  Depends: libc6
zlib1g
  Depends: libc6
<libvirtual>
  Depends: libnone
"""


def test_a_guest_has_the_libraries_of_its_programs_and_the_kernel_that_the_distribution_has() -> None:
    needed = packages.dependencies(_LISTING)
    found = packages.with_libraries(needed, ("qemu-guest-agent",))
    assert sorted(found) == ["libc6", "libgcc-s1", "libglib2.0-0", "qemu-guest-agent", "zlib1g"]
    kernels = ("linux-image-cloud-amd64", "linux-image-virtual")
    assert packages.kernel_package(needed, kernels) == "linux-image-6.8.0-31-generic"
    with pytest.raises(packages.PackageError, match="neither linux-image-cloud-amd64 is known"):
        packages.kernel_package(needed, kernels[:1])


def test_the_guests_own_scripts_are_shell_without_mistakes() -> None:
    scripts = [path for path in initramfs._OWN_FILES.rglob("*") if path.is_file()]
    own = [path for path in scripts if path.read_bytes().startswith(b"#!")]
    assert own
    for path in own:
        done = subprocess.run(["sh", "-n", str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_a_full_image_has_its_kernel_as_files_beside_the_disk(tmp_path: Path) -> None:
    for name in ("guest.qcow2", "vmlinuz", "initrd.gz"):
        (tmp_path / name).write_text(name)
    boot_files = {name: tmp_path / name for name in ("vmlinuz", "initrd.gz")}
    archive = tmp_path / "guest.tar"
    oci.write_archive(tmp_path / "guest.qcow2", archive, "example.local/guest:1", boot_files)
    with tarfile.open(archive) as image:
        layers = [member for member in image if _is_gzip(image, member)]
        packed = image.extractfile(layers[0])
        with tarfile.open(fileobj=packed, mode="r:gz") as files:
            assert files.getnames() == ["boot", "boot/initrd.gz", "boot/vmlinuz", "disk", "disk/guest.qcow2"]
            assert [member.uid for member in files] == [0, 0, 0, 107, 107]


def _is_gzip(image: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    content = image.extractfile(member)
    return content is not None and content.read(2) == b"\x1f\x8b"


def test_modules_are_found_by_the_names_that_the_kernel_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = {"usb-storage": "scsi_mod,usb-common", "usb-common": "", "scsi_mod": ""}
    folder = tmp_path / "tree/lib/modules/6.1.0"
    folder.mkdir(parents=True)
    for name, dependencies in needs.items():
        (folder / f"{name}.ko").write_text(dependencies)
    (tmp_path / "bin").mkdir()
    modinfo = tmp_path / "bin/modinfo"
    modinfo.write_text('#!/bin/sh\ncat "$3"\n')
    modinfo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "root/etc").mkdir(parents=True)
    initramfs._copy_modules(tmp_path / "tree", tmp_path / "root", ("usb_storage", "built_in"))
    listed = (tmp_path / "root/etc/modules").read_text().split()
    assert [Path(each).name for each in listed] == ["scsi_mod.ko", "usb-common.ko", "usb-storage.ko"]
    assert all((tmp_path / "root" / each[1:]).exists() for each in listed)

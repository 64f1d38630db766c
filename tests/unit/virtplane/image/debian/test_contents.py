"""What is in the Debian disk: packages, our own files, the loader, the partitions."""

from __future__ import annotations

import shlex
import struct
from pathlib import Path

import pytest
import yaml

from virtplane.image.commands import BuildError
from virtplane.image.debian import boot, disk, packages, tree

_IDENTITIES = disk.Identities("4ffa9f2c-6f5b-4d5e-9a55-0e6fd0f4d0a1", "12AB34CD")


@pytest.mark.parametrize(
    ("text", "version"),
    [('NAME="Debian"\nVERSION_ID="12"\nID=debian\n', "12"), ("ID=debian\nVERSION_ID=13\n", "13")],
)
def test_the_disks_release_is_the_machines(text: str, version: str) -> None:
    assert packages.release(text) == version


@pytest.mark.parametrize(
    ("text", "found"),
    [("ID=ubuntu\nVERSION_ID='24.04'\n", "ubuntu 24.04"), ("ID=debian\n", "debian"), ("", "another system")],
)
def test_other_distributions_are_refused_by_their_name(text: str, found: str) -> None:
    with pytest.raises(BuildError, match=f"runs {found}, no release of Debian"):
        packages.release(text)


def test_other_processors_are_refused() -> None:
    packages.check_machine("amd64")
    with pytest.raises(BuildError, match="arm64"):
        packages.check_machine("arm64")


def test_only_programs_that_are_missing_are_installed() -> None:
    assert packages.missing_tools(lambda program: f"/usr/bin/{program}") == []
    there = set(packages.TOOLS) - {"mcopy", "mmdebstrap"}
    found = packages.missing_tools(lambda program: program if program in there else None)
    assert found == ["mmdebstrap", "mtools"]


@pytest.mark.feature("NEW-10")
def test_packages_are_installed_from_a_folder_alone() -> None:
    folder = Path("/var/lib/some where")
    command = tree.command(folder / "debs", folder / "it's", folder / "tree", ["apt", "udev"])
    sources = [word for word in command if "://" in word]
    assert sources == ["deb [trusted=yes] copy:///var/lib/some%20where/debs ./"]
    assert "--include=apt,udev" in command
    (hook,) = (word for word in command if word.startswith("--essential-hook="))
    assert shlex.split(hook.partition("=")[2]) == ["sync-in", str(folder / "it's"), "/"]


def test_the_installation_ends_with_the_build_and_its_mounts_with_it() -> None:
    command = tree.command(Path("/d"), Path("/o"), Path("/t"), ["apt"])
    before = command[: command.index("mmdebstrap")]
    assert before[:3] == ["setpriv", "--pdeathsig", "KILL"], "a killed build leaves no installation running"
    assert {"--mount", "--pid", "--kill-child"} <= set(before)


def test_file_systems_are_found_by_their_identities() -> None:
    files = tree.files(_IDENTITIES)
    root, esp = (line.split() for line in files["etc/fstab"].splitlines())
    assert root[:3] == [f"UUID={_IDENTITIES.root}", "/", "ext4"]
    assert esp[:3] == ["UUID=12AB-34CD", "/boot/efi", "vfat"]
    assert f"root=UUID={_IDENTITIES.root} " in boot.grub_configuration(_IDENTITIES)
    assert f"search.fs_uuid {_IDENTITIES.root} root\n" in boot.first_configuration(_IDENTITIES)


def test_every_disk_has_identities_of_its_own() -> None:
    first, second = disk.new_identities(), disk.new_identities()
    assert first.root != second.root
    assert first.esp != second.esp
    assert len(first.esp_label) == 9


def test_cloud_init_reads_what_kubevirt_gives_and_no_network() -> None:
    configuration = yaml.safe_load(tree.files(_IDENTITIES)["etc/cloud/cloud.cfg.d/50-image.cfg"])
    assert configuration["datasource_list"] == ["NoCloud", "ConfigDrive", "None"]
    assert configuration["apt"] == {"preserve_sources_list": False}


def test_services_write_to_the_serial_console_also_after_an_update_of_the_kernel() -> None:
    assert boot.KERNEL_OPTIONS.split()[:2] == ["console=tty0", "console=ttyS0,115200"]
    assert boot.KERNEL_OPTIONS in boot.grub_configuration(_IDENTITIES)
    assert boot.KERNEL_OPTIONS in tree.files(_IDENTITIES)["etc/default/grub.d/50-image.cfg"]


@pytest.mark.feature("NEW-10")
def test_nothing_of_the_machine_that_builds_stays(tmp_path: Path) -> None:
    removed = (
        "etc/apt/sources.list",
        "etc/apt/sources.list.d/0000mirror.sources",
        "etc/apt/apt.conf.d/99mmdebstrap",
        "etc/hostname",
        "etc/ssh/ssh_host_ed25519_key",
        "var/lib/systemd/random-seed",
        "var/log/dpkg.log",
        "var/log/apt/term.log",
    )
    kept = ("etc/ssh/sshd_config", "etc/apt/apt.conf.d/01autoremove", "var/lib/dpkg/status")
    for name in (*removed, *kept, "etc/machine-id"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("content")
    (tmp_path / "vmlinuz.old").symlink_to("nowhere")
    (tmp_path / "etc/apt/sources.list.d/folder").mkdir()
    tree.clean(tmp_path)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir()}
    assert files == {*kept, "etc/machine-id"}
    assert list((tmp_path / "etc/apt/sources.list.d").iterdir()) == []
    assert (tmp_path / "etc/machine-id").read_text() == ""


def test_the_boot_sector_loads_the_core_from_its_partition() -> None:
    code = boot.boot_code(bytes(range(256)) * 2, 0x1_0000_0800)
    assert len(code) == 440, "the partition table follows"
    assert struct.unpack_from("<Q", code, 0x5C) == (0x1_0000_0800,)
    assert code[:0x5C] == bytes(range(0x5C))
    assert code[0x64:256] == bytes(range(0x64, 256))


def test_the_cores_first_sector_loads_the_rest_of_it() -> None:
    core = bytearray(b"\x90" * 1536)
    struct.pack_into("<QHH", core, 500, 2, 2, 0x820)
    placed = boot.placed_core(bytes(core), 2048, 6144)
    assert struct.unpack_from("<QHH", placed, 500) == (2049, 2, 0x820)
    assert placed[:500] == core[:500]
    assert placed[512:] == core[512:]


def test_a_core_that_is_too_big_for_its_partition_is_refused() -> None:
    with pytest.raises(BuildError, match="1025 bytes"):
        boot.placed_core(b"\0" * 1025, 2048, 2)


def test_partitions_lie_one_after_the_other_and_the_root_file_system_can_grow() -> None:
    parts = sorted((disk.BIOS, disk.ESP, disk.ROOT), key=lambda part: part.start)
    assert parts[-1] == disk.ROOT, "behind it is only what a bigger volume has more"
    end = 2048
    for part in parts:
        assert part.start == end, "on a whole mebibyte"
        end = part.start + part.sectors
    assert end * disk.SECTOR_BYTES == disk.DISK_BYTES - (1 << 20), "the table's copy has room"
    assert disk.table().splitlines()[0] == "label: gpt"
    assert f"1 : start={disk.ROOT.start}, size={disk.ROOT.sectors}, type={disk.ROOT.type}" in disk.table()


def test_firmware_finds_the_signed_loader_where_it_looks_without_an_entry(tmp_path: Path) -> None:
    for name in ("shim/shimx64.efi.signed", "shim/mmx64.efi.signed"):
        (tmp_path / "usr/lib" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "usr/lib" / name).write_text(name)
    signed = tmp_path / "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"
    signed.parent.mkdir(parents=True)
    signed.write_text("grub")
    esp = boot.make_esp(tmp_path, tmp_path / "esp", _IDENTITIES)
    assert (esp / "EFI/BOOT/BOOTX64.EFI").read_text() == "shim/shimx64.efi.signed"
    assert (esp / "EFI/BOOT/grubx64.efi").read_text() == "grub", "the shim loads what is beside it"
    stub = (esp / "EFI/debian/grub.cfg").read_text()
    assert stub.splitlines()[-1] == "configfile $prefix/grub.cfg"

"""What a guest boots with that is not on its disks, looked for in a launcher's file system."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from kubecore.objects.structs import decode
from virtplane.api import paths
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.context import BootFiles, FirmwareImage
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import PodPaths
from virtplane.compute.handler.storage import bootfiles
from virtplane.compute.handler.storage.images import BadImage
from virtplane.compute.handler.storage.volumes import VolumeNotReady

SECRET = "var/run/kubevirt-private/secret/tables"
STATE = "var/run/kubevirt-private/libvirt/qemu"


def instance(**firmware: Any) -> VirtualMachineInstance:
    spec = {
        "domain": {"firmware": firmware, "devices": {}},
        "volumes": [{"name": "tables", "secret": {"secretName": "tables"}}],
    }
    return decode(VirtualMachineInstance, {"metadata": {"name": "vm", "namespace": "ns"}, "spec": spec})


def put(launcher: Path, name: str, content: bytes = b"") -> None:
    path = launcher / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def find(launcher: Path, folder: str = paths.OVMF_DIR, **firmware: Any) -> BootFiles:
    with Root(launcher) as root:
        return bootfiles.find(instance(**firmware), root, PodPaths("pod", launcher / "pod"), folder)


def uefi(launcher: Path, folder: str = paths.OVMF_DIR, **efi: Any) -> FirmwareImage | None:
    return find(launcher, folder, bootloader={"efi": efi}).uefi


def debian(launcher: Path, folder: str = paths.DISTRIBUTION_OVMF_DIR) -> None:
    for name in ("CODE_4M.fd", "CODE_4M.secboot.fd", "VARS_4M.fd", "VARS_4M.ms.fd"):
        put(launcher, f"{folder}/OVMF_{name}")


@pytest.mark.feature("VML-42")
def test_debians_firmware_serves_where_none_is_configured(tmp_path: Path) -> None:
    debian(tmp_path)
    folder = paths.DISTRIBUTION_OVMF_DIR
    plain = FirmwareImage(f"{folder}/OVMF_CODE_4M.fd", f"{folder}/OVMF_VARS_4M.fd")
    secure = FirmwareImage(f"{folder}/OVMF_CODE_4M.secboot.fd", f"{folder}/OVMF_VARS_4M.ms.fd")
    assert (uefi(tmp_path, secureBoot=False), uefi(tmp_path)) == (plain, secure)
    assert find(tmp_path) == BootFiles(), "a guest with BIOS needs none"


@pytest.mark.feature("VML-43")
def test_a_configured_folder_is_the_only_one(tmp_path: Path) -> None:
    debian(tmp_path)
    with pytest.raises(
        bootfiles.MissingFirmware, match=r"EFI OVMF rom missing: .* with Secure Boot in /own$"
    ):
        uefi(tmp_path, "/own/")
    put(tmp_path, "/own/OVMF_CODE.secboot.fd")
    put(tmp_path, "/own/OVMF_VARS.secboot.fd")
    found = FirmwareImage("/own/OVMF_CODE.secboot.fd", "/own/OVMF_VARS.secboot.fd")
    assert uefi(tmp_path, "/own/") == found
    with pytest.raises(bootfiles.MissingFirmware, match="without Secure Boot"):
        uefi(tmp_path, "/own", secureBoot=False)


def test_kernel_and_initrd_come_out_of_their_image(tmp_path: Path) -> None:
    put(tmp_path, f"{paths.KERNEL_BOOT_DIR}/boot/vmlinuz", b"kernel")
    put(tmp_path, f"{paths.KERNEL_BOOT_DIR}/boot/initrd", b"initrd")
    image = {"image": "i", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}
    found = find(tmp_path, kernelBoot={"container": image})
    assert found.kernel == f"{paths.KERNEL_BOOT_DIR}/boot/vmlinuz"
    assert found.initrd == f"{paths.KERNEL_BOOT_DIR}/boot/initrd"
    only_kernel = find(tmp_path, kernelBoot={"container": {"image": "i", "kernelPath": "/boot/vmlinuz"}})
    assert only_kernel.initrd == ""
    with pytest.raises(BadImage, match="/boot/other"):
        find(tmp_path, kernelBoot={"container": {"image": "i", "kernelPath": "/boot/other"}})


def test_a_kernel_that_is_a_link_out_of_its_image_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "etc/shadow", b"secret")
    (tmp_path / "var/run/kubevirt-kernel-boot").mkdir(parents=True)
    (tmp_path / "var/run/kubevirt-kernel-boot/vmlinuz").symlink_to("/etc/shadow")
    with pytest.raises(BadImage, match="in the image leads out of it"):
        find(tmp_path, kernelBoot={"container": {"image": "i", "kernelPath": "/vmlinuz"}})


def test_a_kernel_whose_image_is_not_held_yet_is_waited_for(tmp_path: Path) -> None:
    PodPaths("pod", tmp_path / "pod").container_disks.mkdir(parents=True)
    with pytest.raises(VolumeNotReady, match="its image is not mounted yet"):
        find(tmp_path, kernelBoot={"container": {"image": "i", "kernelPath": "/vmlinuz"}})


def table(signature: bytes, size: int = 64, length: int | None = None) -> bytes:
    header = signature + (size if length is None else length).to_bytes(4, "little")
    return header + bytes(size - len(header))


def test_acpi_tables_come_out_of_their_secret(tmp_path: Path) -> None:
    put(tmp_path, f"{SECRET}/slic.bin", table(b"SLIC"))
    put(tmp_path, f"{SECRET}/msdm.bin", table(b"MSDM"))
    found = find(tmp_path, acpi={"slicNameRef": "tables", "msdmNameRef": "tables"})
    assert (found.slic, found.msdm) == (f"/{SECRET}/slic.bin", f"/{SECRET}/msdm.bin")
    assert find(tmp_path, acpi={"slicNameRef": "tables"}).msdm == ""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "the secret has no slic.bin"),
        (b"", "slic.bin has 0 bytes"),
        (table(b"SLIC", 100 << 20), "slic.bin has 104857600 bytes; an ACPI table has 36 to"),
        (table(b"MSDM"), "is not an ACPI table SLIC of 64 bytes"),
        (table(b"SLIC", length=65), "is not an ACPI table SLIC of 64 bytes"),
    ],
)
def test_what_is_no_acpi_table_is_refused(tmp_path: Path, content: bytes | None, words: str) -> None:
    (tmp_path / SECRET).mkdir(parents=True)
    if content is not None:
        put(tmp_path, f"{SECRET}/slic.bin", content)
    with pytest.raises(BadImage, match=f"volume tables: .*{words}"):
        find(tmp_path, acpi={"slicNameRef": "tables"})


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that were given to QEMU's user, which only root could do."""
    found: list[Path] = []

    def note(descriptor: int, *_: int) -> None:
        found.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fchown", note)
    return found


def hand_over(launcher: Path, devices: dict[str, Any], efi: dict[str, Any] | None = None) -> None:
    domain = {"devices": devices, "firmware": {"bootloader": {"efi": efi}} if efi is not None else {}}
    document = {"metadata": {"name": "vm", "namespace": "ns"}, "spec": {"domain": domain}}
    with Root(launcher) as root:
        bootfiles.hand_over_state(decode(VirtualMachineInstance, document), root)


@pytest.mark.feature("VML-45")
def test_folders_of_the_state_claim_are_qemus(tmp_path: Path, given: list[Path]) -> None:
    (tmp_path / STATE / "swtpm").mkdir(parents=True)
    hand_over(tmp_path, {"tpm": {}})
    assert given == [], "nothing is kept"
    hand_over(tmp_path, {"tpm": {"persistent": True}})
    folder = tmp_path / STATE
    assert given == [folder.parent, folder, folder / "swtpm"]
    (folder / "nvram").mkdir()
    hand_over(tmp_path, {}, {"persistent": True})
    assert folder / "nvram" in given


@pytest.mark.parametrize("replaced", [STATE, f"{STATE}/swtpm", f"{STATE}/nvram"])
def test_a_folder_that_was_replaced_by_a_link_is_nobodys(
    tmp_path: Path, given: list[Path], replaced: str
) -> None:
    (tmp_path / "hostdisk").mkdir()
    link = tmp_path / replaced
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to("/hostdisk")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        hand_over(tmp_path, {"tpm": {"persistent": True}})
    assert tmp_path / "hostdisk" not in given

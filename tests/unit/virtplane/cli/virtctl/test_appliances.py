"""Appliances (OVA): what their descriptors say, and archives that are out to harm."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from virtplane.cli.virtctl.contents import whole
from virtplane.cli.virtctl.importing import appliances
from virtplane.cli.virtctl.importing.appliances import Appliance, BadAppliance, read_appliance

from .appliance_files import CPU, DISK, DRIVE, FILE, MEMORY, archive, descriptor, item

MIB = 1 << 20


async def read(tmp_path: Path, text: str | bytes, **files: bytes) -> Appliance:
    content = text.encode() if isinstance(text, str) else text
    disks = {"disk1.vmdk": b"one", **{f"{name}.vmdk": each for name, each in files.items()}}
    return await read_appliance(whole(archive(tmp_path / "a.ova", {"a.ovf": content, **disks})))


@pytest.mark.feature("NEW-09")
async def test_the_descriptor_tells_processors_memory_and_disks(tmp_path: Path) -> None:
    found = await read(tmp_path, descriptor())
    assert (found.name, found.cpus, found.memory_mib) == ("My Server (2)", 2, 3072)
    assert (found.is_efi, found.is_secure_boot, found.networks) == (False, False, 0)
    (disk,) = found.disks
    assert (disk.name, disk.capacity_bytes) == ("d1", 4 * MIB)
    assert disk.content is not None
    assert disk.content.read(0, 100) == b"one"


async def test_disks_come_in_the_order_of_their_controllers_and_places(tmp_path: Path) -> None:
    controllers = [
        {"InstanceID": "2", "ResourceType": "6", "Address": "1"},
        {"InstanceID": "1", "ResourceType": "6", "Address": "0"},
    ]
    places = [("2", "0", "d1"), ("1", "10", "d2"), ("1", "2", "d3")]
    drives = [
        {"ResourceType": "17", "HostResource": f"/disk/{disk}", "Parent": parent, "AddressOnParent": place}
        for parent, place, disk in places
    ]
    files = FILE + "".join(f'<File ovf:id="f{n}" ovf:href="disk{n}.vmdk"/>' for n in (2, 3))
    disks = DISK + "".join(f'<Disk ovf:diskId="d{n}" ovf:fileRef="f{n}"/>' for n in (2, 3))
    text = descriptor(*controllers, *drives, files=files, disks=disks)
    found = await read(tmp_path, text, disk2=b"two", disk3=b"three")
    assert [disk.name for disk in found.disks] == ["d3", "d2", "d1"]


@pytest.mark.parametrize(
    ("more", "efi", "secure"),
    [
        ('<vmw:Config vmw:key="firmware" vmw:value="efi"/>', True, False),
        ('<vmw:Config vmw:key="firmware" vmw:value="bios"/>', False, False),
        (
            '<vmw:Config vmw:key="firmware" vmw:value="efi"/>'
            '<vmw:Config vmw:key="bootOptions.efiSecureBootEnabled" vmw:value="true"/>',
            True,
            True,
        ),
        ('<Machine xmlns="http://www.virtualbox.org/"><Firmware type="EFI"/></Machine>', True, False),
    ],
)
async def test_the_firmware_is_read_as_vmware_and_virtualbox_write_it(
    tmp_path: Path, more: str, efi: bool, secure: bool
) -> None:
    found = await read(tmp_path, descriptor(more=more))
    assert (found.is_efi, found.is_secure_boot) == (efi, secure)


@pytest.mark.parametrize(
    ("unit", "mib"), [("byte * 2^20", 3), ("MegaBytes", 3), ("byte*10^9", 2862), ("GigaBytes", 3072)]
)
async def test_memory_has_many_units(tmp_path: Path, unit: str, mib: int) -> None:
    found = await read(tmp_path, descriptor({**MEMORY, "AllocationUnits": unit}, DRIVE))
    assert (found.cpus, found.memory_mib) == (None, mib)


@pytest.mark.parametrize(("default", "cpus", "memory"), [("", 2, 3072), (' ovf:default="true"', 8, 16384)])
async def test_of_several_configurations_one_is_taken(
    tmp_path: Path, default: str, cpus: int, memory: int
) -> None:
    choices = f'<Configuration ovf:id="small"/><Configuration ovf:id="large"{default}/>'
    section = f"<DeploymentOptionSection>{choices}</DeploymentOptionSection>"
    large = item({"InstanceID": "4", **MEMORY, "VirtualQuantity": "16"})
    configured = [
        item(CPU).replace("<Item>", '<Item ovf:configuration="small tiny">'),
        item({**CPU, "VirtualQuantity": "8"}).replace("<Item>", '<Item ovf:configuration="large">'),
        large.replace("<Item>", '<Item ovf:configuration="large">'),
    ]
    text = descriptor({"InstanceID": "4", **MEMORY}, DRIVE, more="".join(configured))
    found = await read(tmp_path, text.replace("<VirtualSystem ", f"{section}<VirtualSystem "))
    assert (found.cpus, found.memory_mib) == (cpus, memory)
    assert found.configuration == ("large" if default else "small")


async def test_empty_disks_have_a_capacity_alone(tmp_path: Path) -> None:
    disk = '<Disk ovf:diskId="d1" ovf:capacity="5" ovf:capacityAllocationUnits="byte * 2^30"/>'
    (found,) = (await read(tmp_path, descriptor(disks=disk))).disks
    assert (found.content, found.capacity_bytes) == (None, 5 << 30)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (descriptor(head='<!DOCTYPE x [<!ENTITY a "b">]>'), "document type"),
        (descriptor().replace("My Server", "&who;"), "is no XML"),
        (descriptor().encode("utf-16"), "document type, or an encoding"),
        ("<Envelope>", "is no XML"),
        ("<Envelope/>", "0 machines"),
        (descriptor().replace("</Envelope>", "<VirtualSystem/></Envelope>"), "2 machines"),
        ("<Envelope><VirtualSystem/></Envelope>", "no virtual hardware"),
        (descriptor(CPU), "0 disks"),
        (descriptor(*[DRIVE] * 65), "65 disks"),
        (descriptor({**DRIVE, "HostResource": "/dev/sda"}), "is no disk"),
        (descriptor(disks=""), 'no disk "d1"'),
        (descriptor(files=""), 'no file "f1"'),
        (descriptor(files='<File ovf:id="f1" ovf:href="../../etc/shadow"/>'), "not in the archive"),
        (descriptor(files='<File ovf:id="f1" ovf:href="/etc/shadow"/>'), "not in the archive"),
        (descriptor(files='<File ovf:id="f1" ovf:href="x" ovf:chunkSize="5"/>'), "several parts"),
        (descriptor(files='<File ovf:id="f1" ovf:href="x" ovf:compression="7z"/>'), "compression"),
        (descriptor(disks='<Disk ovf:diskId="d1" ovf:fileRef="f1" ovf:parentRef="d0"/>'), "depends on"),
        (descriptor(disks='<Disk ovf:diskId="d1"/>'), "no capacity"),
        (descriptor({**CPU, "VirtualQuantity": "99999"}, DRIVE), "99999 processors"),
        (descriptor({**MEMORY, "VirtualQuantity": "99999999999"}, DRIVE), "of memory"),
        (descriptor({**MEMORY, "AllocationUnits": "fathoms"}, DRIVE), 'unit "fathoms"'),
    ],
)
async def test_descriptors_that_cannot_be_followed_are_refused(
    tmp_path: Path, text: str | bytes, says: str
) -> None:
    with pytest.raises(BadAppliance, match=says):
        await read(tmp_path, text)


async def test_entities_do_not_multiply(tmp_path: Path) -> None:
    lines = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 30))
    head = f'<!doctype x [<!ENTITY e0 "x">{lines}]>'.replace("<!ENTITY", "<!entity")
    with pytest.raises(BadAppliance):
        await read(tmp_path, descriptor(head=head).replace("My Server", "&e29;"))


async def test_a_descriptor_has_a_longest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appliances, "_DESCRIPTOR_BYTES", 100)
    with pytest.raises(BadAppliance, match="too long"):
        await read(tmp_path, descriptor())


async def test_an_archive_needs_one_descriptor(tmp_path: Path) -> None:
    for files, says in (({"a": b""}, "no descriptor"), ({"a.ovf": b"", "b.OVF": b""}, "several descriptors")):
        with pytest.raises(BadAppliance, match=says):
            await read_appliance(whole(archive(tmp_path / "a.ova", files)))


async def test_an_archive_with_too_many_files_is_not_read_to_its_end(tmp_path: Path) -> None:
    files = {f"{number}": b"" for number in range(1001)}
    with pytest.raises(BadAppliance, match="too many files"):
        await read_appliance(whole(archive(tmp_path / "a.ova", files)))


async def test_truncated_archives_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.ova", {"a.ovf": descriptor().encode(), "disk1.vmdk": b"x" * 5000})
    path.write_bytes(path.read_bytes()[:6000])
    with pytest.raises(BadAppliance, match="ends within"):
        await read_appliance(whole(path))


async def test_one_name_is_one_file(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.ova", {"a.ovf": b"", "./a.ovf": b""})
    with pytest.raises(BadAppliance, match="twice"):
        await read_appliance(whole(path))


async def test_files_do_not_have_less_than_nothing(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.ova", {"a.ovf": b""})
    block = bytearray(path.read_bytes())
    block[124:136] = b"\xff" * 10 + b"\xfe\x00"
    block[148:156] = b" " * 8
    block[148:156] = f"{sum(block[:512]):06o}\0 ".encode()
    path.write_bytes(block)
    with pytest.raises(BadAppliance, match="a file has an impossible size"):
        await read_appliance(whole(path))


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
async def test_long_names_are_read(tmp_path: Path, form: int) -> None:
    name = "n" * 200 + ".vmdk"
    text = descriptor(files=f'<File ovf:id="f1" ovf:href="{name}"/>')
    path = archive(tmp_path / "a.ova", {"a.ovf": text.encode(), name: b"long"}, form)
    (disk,) = (await read_appliance(whole(path))).disks
    assert disk.content is not None
    assert disk.content.read(0, 9) == b"long"


async def test_links_are_no_files(tmp_path: Path) -> None:
    path = tmp_path / "a.ova"
    with tarfile.open(archive(path, {"a.ovf": descriptor().encode()}), "a") as made:
        link = tarfile.TarInfo("disk1.vmdk")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/shadow"
        made.addfile(link)
    with pytest.raises(BadAppliance, match="not in the archive"):
        await read_appliance(whole(path))

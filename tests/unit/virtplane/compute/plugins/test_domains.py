"""The table of names against the domains that guests have, and against libvirt's schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from kubecore.cel.records import Record, Records
from virtplane.compute.domain.xml import Element
from virtplane.compute.plugins import expressions
from virtplane.compute.plugins.domainmerging import merged
from virtplane.compute.plugins.domainreading import record_of
from virtplane.compute.plugins.domaintypes import DOMAIN, parts

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
GOLDEN = sorted((Path(__file__).parents[1] / "domain/golden").glob("*.xml"))
RECORDS = Records(
    {name: {part.name: part.cel_type for part in fields.values()} for name, fields in parts().items()}
)
needs_schema = pytest.mark.skipif(not SCHEMA.exists(), reason=f"{SCHEMA} of libvirt is not installed")


def domain(file: Path) -> Element:
    return etree.fromstring(file.read_bytes())


def without_elements(value: Any) -> Any:
    """The records as a literal would make them."""
    if isinstance(value, list):
        return [without_elements(each) for each in value]
    if isinstance(value, Record):
        fields = {name: without_elements(each) for name, each in value.fields.items()}
        return Record(value.kind, fields, RECORDS)
    return value


def shape(value: Any) -> Any:
    if isinstance(value, list):
        return [shape(each) for each in value]
    if isinstance(value, Record):
        return {name: shape(each) for name, each in value.fields.items()}
    return value


@needs_schema
@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_what_is_read_of_a_domain_can_be_written_anew(file: Path) -> None:
    read = record_of(domain(file), DOMAIN, RECORDS)
    written = merged(etree.Element("domain"), without_elements(read))
    assert shape(record_of(written, DOMAIN, RECORDS)) == shape(read)
    etree.RelaxNG(file=str(SCHEMA)).assertValid(written)


@needs_schema
@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
@pytest.mark.parametrize(
    "text",
    [
        'Domain{Devices: DomainDeviceList{Watchdogs: [DomainWatchdog{Model: "i6300esb", Action: "none"}]}}',
        'Domain{Devices: DomainDeviceList{Sounds: domainSpec.Devices.Sounds + [DomainSound{Model: "ich6"}]}}',
        'Domain{Title: "t", SysInfo: [DomainSysInfo{SMBIOS: DomainSysInfoSMBIOS{System: DomainSysInfoSystem{'
        'Entry: [DomainSysInfoEntry{Name: "manufacturer", Value: "here"}]}, OEMStrings:'
        ' DomainSysInfoOEMStrings{Entry: ["a", "b"]}}}]}',
        "Domain{QEMUCommandline: DomainQEMUCommandline{Args: [DomainQEMUCommandlineArg{Value: '-S'}],"
        " Envs: [DomainQEMUCommandlineEnv{Name: 'A', Value: 'b'}]}}",
        "Domain{Devices: DomainDeviceList{Disks: domainSpec.Devices.Disks + [DomainDisk{Device: 'disk',"
        " Driver: DomainDiskDriver{Name: 'qemu', Type: 'raw', IOThread: 1u}, Source: DomainDiskSource{File:"
        " DomainDiskSourceFile{File: '/x'}}, Target: DomainDiskTarget{Dev: 'vdz', Bus: 'virtio'}, Address:"
        " DomainAddress{PCI: DomainAddressPCI{Domain: 0u, Bus: 9u, Slot: 0u, Function: 0u}}}]}}",
        "Domain{OnCrash: 'destroy', CPUTune: DomainCPUTune{Shares: DomainCPUTuneShares{Value: uint(2048)}},"
        " Features: DomainFeatureList{ACPI: DomainFeature{}}}",
        "Domain{Devices: DomainDeviceList{Channels: [DomainChannel{Source: DomainChardevSource{UNIX:"
        " DomainChardevSourceUNIX{Mode: 'bind', Path: '/x'}}, Target: DomainChannelTarget{VirtIO:"
        " DomainChannelTargetVirtIO{Name: 'org.example.0'}}}], RNGs: [DomainRNG{Model: 'virtio', Backend:"
        " DomainRNGBackend{Random: DomainRNGBackendRandom{Device: '/dev/urandom'}}}]}}",
    ],
    ids=["watchdog", "sound", "smbios", "qemu", "disk", "shares", "channel"],
)
def test_a_changed_domain_is_valid_by_libvirts_schema(file: Path, text: str) -> None:
    made = expressions.mutated(text, {"metadata": {"name": "vm"}}, domain(file))
    etree.RelaxNG(file=str(SCHEMA)).assertValid(made)


def test_a_source_keeps_its_kind_where_it_is_passed_on() -> None:
    """An attribute of the element around it says which, also where there is no element at all."""
    serials = '<serial type="pty"/><serial type="file"><source path="/x"/></serial>'
    xml = f"<domain><devices>{serials}</devices></domain>"
    consoles = "domainSpec.Devices.Serials.map(s, DomainConsole{Source: s.Source})"
    text = f"Domain{{Devices: DomainDeviceList{{Consoles: {consoles}}}}}"
    made = expressions.mutated(text, {"metadata": {"name": "vm"}}, etree.fromstring(xml))
    written = [etree.tostring(each).decode() for each in made.iter("console")]
    assert written == ['<console type="pty"/>', '<console type="file"><source path="/x"/></console>']


def test_another_source_takes_the_place_of_the_one_before() -> None:
    address = '<address type="ccw" cssid="0xfe"/>'
    xml = f"<domain><devices><vsock>{address}</vsock></devices></domain>"
    pci = "DomainAddress{PCI: DomainAddressPCI{Bus: 1u}}"
    text = f"Domain{{Devices: DomainDeviceList{{VSock: DomainVSock{{Address: {pci}}}}}}}"
    made = expressions.mutated(text, {"metadata": {"name": "vm"}}, etree.fromstring(xml))
    (written,) = made.iter("address")
    assert sorted(written.items()) == [("bus", "1"), ("type", "pci")]

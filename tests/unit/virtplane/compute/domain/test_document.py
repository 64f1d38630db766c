"""Rendered domains: golden files, checked by libvirt's own schema where it is installed."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from lxml import etree

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.disks import Disk, DiskTarget
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import disks, document
from virtplane.compute.domain.context import (
    BlockSizes,
    BootFiles,
    DiskSource,
    DomainContext,
    FirmwareImage,
    HostCpu,
    InterfaceLink,
)

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
GOLDEN = Path(__file__).parent / "golden"
CONTEXT = DomainContext(
    emulation=True,
    disks={
        "root": DiskSource("/overlay.qcow2", "qcow2", backing_path="/image/disk.img", backing_format="raw"),
        "cloudinit": DiskSource("/ci.iso"),
        "data": DiskSource("/dev/data", block=True, direct_io=True, block_sizes=BlockSizes(512, 4096)),
        "cd": DiskSource("/cd.iso"),
    },
    interfaces={"default": InterfaceLink("tap0", "02:11:22:33:44:55", 1450)},
    functions={"fast": "0000:81:00.2"},
    cpus=tuple(HostCpu(number, node=number // 3) for number in range(6)),
    boot=BootFiles(
        uefi=FirmwareImage("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ),
)


def instance(**domain: Any) -> dict[str, Any]:
    devices = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]} | domain.pop("devices", {})
    return {
        "metadata": {"name": "vm", "namespace": "ns", "uid": "0b1c"},
        "spec": {
            "terminationGracePeriodSeconds": 60,
            "domain": {"firmware": {"uuid": "6a1a24a1-4061-4607-8bf4-a3963d0c5895"}, "devices": devices}
            | domain,
            "networks": [{"name": "default", "pod": {}}],
        },
    }


CASES: dict[str, dict[str, Any]] = {
    "minimal": instance(memory={"guest": "128Mi"}),
    "many-devices": instance(
        memory={"guest": "1Gi"},
        cpu={"cores": 2, "sockets": 2, "maxSockets": 4},
        machine={"type": "q35"},
        features={"acpi": {}, "apic": {"endOfInterrupt": True}, "smm": {"enabled": True}},
        clock={"utc": {}, "timer": {"hpet": {"present": False}, "rtc": {"tickPolicy": "catchup"}}},
        devices={
            "disks": [
                {"name": "root", "bootOrder": 2, "disk": {"bus": "virtio"}, "serial": "D1"},
                {"name": "data", "disk": {"bus": "scsi"}, "shareable": True},
                {"name": "cd", "cdrom": {"bus": "sata"}},
                {"name": "cloudinit", "disk": {"bus": "virtio"}},
            ],
            "interfaces": [{"name": "default", "masquerade": {}, "bootOrder": 1}],
            "inputs": [{"name": "tablet", "type": "tablet", "bus": "usb"}],
            "rng": {},
            "watchdog": {"name": "dog", "i6300esb": {"action": "poweroff"}},
            "sound": {"name": "sound", "model": "ac97"},
        },
    ),
    "tuned": instance(
        memory={"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}},
        cpu={
            "cores": 4,
            "dedicatedCpuPlacement": True,
            "isolateEmulatorThread": True,
            "numa": {"guestMappingPassthrough": {}},
            "realtime": {"mask": "0-3,^1"},
        },
        ioThreadsPolicy="supplementalPool",
        ioThreads={"supplementalPoolThreadCount": 1},
        devices={
            "blockMultiQueue": True,
            "disks": [
                {
                    "name": "root",
                    "disk": {"bus": "virtio", "pciAddress": "0000:0a:00.0"},
                    "blockSize": {"custom": {"logical": 512, "physical": 4096, "discardGranularity": 4096}},
                },
                {
                    "name": "data",
                    "lun": {"bus": "scsi", "reservation": True},
                    "blockSize": {"matchVolume": {}},
                },
            ],
            "interfaces": [
                {"name": "default", "masquerade": {}, "pciAddress": "0000:0b:00.0", "acpiIndex": 3}
            ],
        },
    ),
    "node-devices": instance(
        memory={"guest": "1Gi"},
        devices={
            "autoattachVSOCK": True,
            "interfaces": [{"name": "fast", "sriov": {}, "pciAddress": "0000:05:00.0", "bootOrder": 2}],
        },
    )
    | {"status": {"VSOCKCID": 4711}},
    "plugged-memory": instance(
        memory={"guest": "1Gi", "maxGuest": "4Gi"}, cpu={"sockets": 1, "cores": 2, "maxSockets": 2}
    ),
    "efi": instance(
        memory={"guest": "256Mi"},
        firmware={
            "uuid": "6a1a24a1-4061-4607-8bf4-a3963d0c5895",
            "bootloader": {"efi": {"secureBoot": False}},
        },
        devices={"autoattachGraphicsDevice": False, "autoattachMemBalloon": False, "logSerialConsole": False},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_domain_matches_golden_file(name: str) -> None:
    rendered = document.render(decode(VirtualMachineInstance, CASES[name]), CONTEXT)
    golden = GOLDEN / f"{name}.xml"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(rendered)
    assert rendered == golden.read_text()


def test_a_card_behind_passt_has_its_cable_in_qemu() -> None:
    card = {"name": "default", "passtBinding": {}, "acpiIndex": 3}
    vmi = decode(VirtualMachineInstance, instance(devices={"interfaces": [card]}))
    link = InterfaceLink("", "02:11:22:33:44:55", socket="/private/virt-passt")
    xml = document.render(vmi, replace(CONTEXT, interfaces={"default": link}))
    root = etree.fromstring(xml)
    (node,) = root.findall("devices/interface")
    assert (node.get("type"), node.find("target"), node.find("mtu")) == ("user", None, None)
    address, acpi, named = node.find("mac"), node.find("acpi"), node.find("alias")
    assert address is not None and acpi is not None and named is not None
    assert (address.get("address"), acpi.get("index"), named.get("name")) == (link.mac, "3", "ua-default")
    (option, cable) = [item.get("value") for item in root.iter("{*}arg")]
    assert (option, json.loads(str(cable))["addr"]["path"]) == ("-netdev", "/private/virt-passt")
    (overridden,) = root.iter("{*}property")
    assert (overridden.get("name"), overridden.get("value")) == ("netdev", json.loads(str(cable))["id"])
    if SCHEMA.exists():
        etree.RelaxNG(file=str(SCHEMA)).assertValid(root)


@pytest.mark.parametrize("name", CASES)
def test_domain_is_valid_by_libvirts_schema(name: str) -> None:
    if not SCHEMA.exists():
        pytest.skip(f"{SCHEMA} of libvirt is not installed")
    schema = etree.RelaxNG(file=str(SCHEMA))
    schema.assertValid(etree.fromstring((GOLDEN / f"{name}.xml").read_text()))


def test_disk_without_prepared_volume_is_refused() -> None:
    vmi = instance(devices={"disks": [{"name": "other", "disk": {}}]})
    with pytest.raises(disks.MissingSource, match="disk other"):
        document.render(decode(VirtualMachineInstance, vmi), CONTEXT)


def test_target_names_that_the_status_reports_are_kept() -> None:
    wanted = [{"name": "a", "disk": {}}, {"name": "b", "disk": {}}, {"name": "c", "cdrom": {}}]
    assert disks.target_names([decode(Disk, disk) for disk in wanted], {"b": "vda"}) == {
        "a": "vdb",
        "b": "vda",
        "c": "sda",
    }


def test_twenty_seventh_disk_gets_two_letters() -> None:
    names = disks.target_names([Disk(name=str(number), disk=DiskTarget()) for number in range(28)], {})
    assert (names["25"], names["26"], names["27"]) == ("vdz", "vdaa", "vdab")


def test_names_from_users_are_escaped() -> None:
    vmi = instance(chassis={"manufacturer": "<&>"})
    assert "&lt;&amp;&gt;" in document.render(decode(VirtualMachineInstance, vmi), CONTEXT)


def test_topology_follows_cpu_limit_when_none_is_given() -> None:
    vmi = instance(resources={"limits": {"cpu": "2500m"}})
    assert '<topology sockets="3" cores="1" threads="1"/>' in document.render(
        decode(VirtualMachineInstance, vmi), CONTEXT
    )


def test_example_manifest_renders() -> None:
    example = Path(__file__).parents[5] / "examples" / "demo-vm.yaml"
    template = yaml.safe_load(example.read_text())["spec"]["template"]
    vmi = {"metadata": {"name": "demo", "namespace": "ns", "uid": "1"}, "spec": template["spec"]}
    assert "ns_demo" in document.render(decode(VirtualMachineInstance, vmi), CONTEXT)


@pytest.mark.parametrize(
    ("machine", "found"), [("pc-q35-7.2", "pc-q35-7.2"), ("x" * 65, ""), ("a b", ""), ("&amp;", ""), ("", "")]
)
def test_machine_type_is_read_where_it_is_one(machine: str, found: str) -> None:
    xml = f"<domain><os><type arch='x86_64' machine='{machine}'>hvm</type></os></domain>"
    assert document.machine_type(xml) == found


@pytest.mark.parametrize(
    "xml",
    [
        "",
        "<domain",
        "<domain/>",
        "<?xml version='1.0' encoding='UTF-8'?><domain/>",
        "<!DOCTYPE d [<!ENTITY e SYSTEM 'file:///etc/hostname'>]><domain><os><type>&e;</type></os></domain>",
        "<" * 100_000,
    ],
)
def test_what_is_no_domain_has_no_machine_type(xml: str) -> None:
    assert document.machine_type(xml) == ""

"""Which devices a config drive lists, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.devicetags import is_tagged, tagged_devices
from virtplane.compute.handler.launchers import hostcpus

_PCI = "<address type='pci' domain='0x0000' bus='0x02' slot='0x00' function='0x1'/>"
_DRIVE = "<address type='drive' controller='0' bus='0' target='0' unit='3'/>"
_NIC = f"<interface><alias name='ua-red'/><mac address='02:00:00:00:00:01'/>{_PCI}</interface>"
_GIVEN = """<hostdev type='pci'><source>
<address domain='0x0000' bus='0x81' slot='0x01' function='0x2'/></source>{}{}</hostdev>"""
_TUNED = """<cputune><vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='8'/>
<vcpupin vcpu='2' cpuset='9'/></cputune>
<cpu><numa><cell id='0' cpus='0'/><cell id='1' cpus='1-2'/></numa></cpu>"""


def _vmi(**devices: Any) -> VirtualMachineInstance:
    spec: dict[str, object] = {
        "domain": {"devices": devices},
        "volumes": [{"name": "init", "cloudInitConfigDrive": {"userData": "#"}}],
    }
    return decode(VirtualMachineInstance, {"metadata": {"name": "vm", "namespace": "ns"}, "spec": spec})


def _listed(devices: str, rest: str = "", **wanted: Any) -> list[dict[str, object]]:
    xml = f"<domain>{rest}<devices>{devices}</devices></domain>"
    return tagged_devices(_vmi(**wanted), xml, lambda place: [8, 9] if place == "0000:81:01.2" else [])


_RED: dict[str, Any] = {
    "interfaces": [{"name": "red", "tag": "storage", "bridge": {}}, {"name": "blue", "bridge": {}}]
}


def test_a_tagged_interface_is_listed_with_its_addresses() -> None:
    other = _NIC.replace("red", "blue")
    assert _listed(other + _NIC, **_RED) == [
        {
            "type": "nic",
            "bus": "pci",
            "address": "0000:02:00.1",
            "mac": "02:00:00:00:00:01",
            "tags": ["storage"],
        }
    ]


@pytest.mark.parametrize(
    ("bus", "address", "told"),
    [
        ("virtio", _PCI, {"bus": "pci", "address": "0000:02:00.1"}),
        ("sata", _DRIVE, {"bus": "sata", "address": "0:0:0:3"}),
        ("scsi", _DRIVE, {"bus": "scsi", "address": "0:0:0:3"}),
        ("usb", "<address type='usb' bus='0' port='1.2'/>", {"bus": "usb", "address": "0:1.2"}),
        ("virtio", "", {}),
        ("virtio", _PCI.replace("0x02", "../etc"), {}),
        ("scsi", _DRIVE.replace("'3'", "'x'"), {}),
    ],
)
def test_a_tagged_disk_is_listed_by_its_bus(bus: str, address: str, told: dict[str, str]) -> None:
    node = f"<disk><target bus='{bus}'/><alias name='ua-data'/>{address}</disk>"
    found = _listed(node, disks=[{"name": "data", "tag": "logs", "serial": "S1"}])
    assert found == [{"type": "disk", **told, "serial": "S1", "tags": ["logs"]}]


def test_a_passed_through_device_is_listed_with_the_cpus_near_it() -> None:
    node = _GIVEN.format("<alias name='ua-gpu-g'/>", _PCI)
    gpus = [{"name": "g", "deviceName": "v.com/g", "tag": "compute"}]
    plain = {"type": "hostdev", "bus": "pci", "address": "0000:02:00.1", "tags": ["compute"]}
    assert _listed(node, gpus=gpus) == [plain]
    assert _listed(node, _TUNED, gpus=gpus) == [plain | {"numaNode": 1, "alignedCPUs": [1, 2]}]
    given = _GIVEN.format("<alias name='ua-hostdevice-g'/>", _PCI)
    assert _listed(given, _TUNED.replace("cpuset='8'", "cpuset='0-99999999'"), hostDevices=gpus) == [
        plain | {"numaNode": 1, "alignedCPUs": [2]}
    ]


def test_a_launcher_lists_nothing_that_has_no_tag() -> None:
    assert _listed(_NIC.replace("interface", "disk"), **_RED) == []
    assert tagged_devices(_vmi(**_RED), "<domain", lambda _: []) == []


def test_tags_need_a_config_drive() -> None:
    tagged = _vmi(**_RED)
    assert is_tagged(tagged)
    assert not is_tagged(_vmi(interfaces=[{"name": "red", "bridge": {}}]))
    document = {
        "spec": {"domain": {"devices": _RED}, "volumes": [{"name": "x", "emptyDisk": {"capacity": "1Mi"}}]}
    }
    assert not is_tagged(decode(VirtualMachineInstance, {"metadata": {"name": "vm"}, **document}))


def test_the_kernel_tells_which_cpus_are_near_a_device(tmp_path: Path) -> None:
    (tmp_path / "0000:81:01.2").mkdir()
    (tmp_path / "0000:81:01.2/local_cpulist").write_text("0-1,8\n")
    assert hostcpus.near_pci("0000:81:01.2", tmp_path) == [0, 1, 8]
    assert hostcpus.near_pci("0000:81:01.3", tmp_path) == []
    with pytest.raises(ValueError, match="is not a PCI address"):
        hostcpus.near_pci("../0000:81:01.2", tmp_path)

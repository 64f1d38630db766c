"""Functions of network cards in the domain, and how the node learns which they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.domain.devicetags import tagged_devices
from virtplane.compute.domain.document import render
from virtplane.compute.handler.network import functions
from virtplane.compute.handler.network.functions import FunctionsUnknown, functions_of
from virtplane.compute.handler.rooted import Root

_VF = "0000:81:00.2"


def _vmi(*interfaces: dict[str, Any]) -> VirtualMachineInstance:
    spec = {
        "domain": {"devices": {"interfaces": list(interfaces)}},
        "networks": [{"name": each["name"], "multus": {"networkName": "n"}} for each in interfaces],
        "volumes": [{"name": "init", "cloudInitConfigDrive": {"userData": "#"}}],
    }
    return decode(VirtualMachineInstance, {"metadata": {"name": "vm", "namespace": "ns"}, "spec": spec})


_FAST = {"name": "fast", "sriov": {}, "pciAddress": "0000:05:00.0", "bootOrder": 2, "tag": "storage"}


@pytest.mark.feature("NET-10", "NET-14")
def test_the_guest_has_the_function_instead_of_a_card_of_qemu() -> None:
    xml = render(_vmi(_FAST), DomainContext(emulation=False, functions={"fast": _VF}))
    devices = etree.fromstring(xml).find("devices")
    assert devices is not None
    assert devices.find("interface") is None
    (node,) = devices.findall("hostdev")
    assert [node.get(name) for name in ("mode", "type", "managed")] == ["subsystem", "pci", "no"]
    source, address, boot, alias = (
        node.find(path) for path in ("source/address", "address", "boot", "alias")
    )
    assert source is not None and address is not None and boot is not None and alias is not None
    place = [source.get(part) for part in ("domain", "bus", "slot", "function")]
    assert place == ["0x0000", "0x81", "0x00", "0x2"]
    assert (address.get("type"), address.get("bus")) == ("pci", "0x05")
    assert (boot.get("order"), alias.get("name")) == ("2", "ua-sriov-fast")
    listed = tagged_devices(_vmi(_FAST), xml, lambda _: [])
    assert listed == [{"type": "nic", "bus": "pci", "address": "0000:05:00.0", "tags": ["storage"]}]


def test_a_guest_does_not_start_without_its_function() -> None:
    with pytest.raises(ValueError, match="no PCI function for interface fast"):
        render(_vmi(_FAST), DomainContext(emulation=False))
    absent = {**_FAST, "state": "absent"}
    assert "hostdev" not in render(_vmi(absent), DomainContext(emulation=False))


class _Launcher:
    def __init__(self, root: Path) -> None:
        self._root = root

    def root(self) -> Root:
        return Root(self._root)


def test_the_launchers_file_names_the_functions(tmp_path: Path) -> None:
    launcher: Any = _Launcher(tmp_path)
    with pytest.raises(FunctionsUnknown, match="interface fast is not known yet"):
        functions_of(_vmi(_FAST), launcher)
    (tmp_path / "etc/podinfo/..data").mkdir(parents=True)
    (tmp_path / "etc/podinfo/network-info").symlink_to("..data/network-info")
    info = {"type": "pci", "pci": {"pci-address": _VF}}
    listed = {"interfaces": [{"network": "fast", "deviceInfo": info}, {"network": "other"}]}
    (tmp_path / "etc/podinfo/..data/network-info").write_text(json.dumps(listed))
    assert functions_of(_vmi(_FAST), launcher) == {"fast": _VF}
    assert functions_of(_vmi({"name": "slow", "bridge": {}}), launcher) == {}


@pytest.mark.parametrize("text", ["{", json.dumps({"interfaces": [_FAST]}), "[]", "", "null"])
def test_a_file_that_names_none_gives_none(text: str) -> None:
    if text == "{":
        with pytest.raises(ValueError, match="cannot be read"):
            functions.parse(text.encode())
    else:
        assert functions.parse(text.encode()) == {}


def test_what_is_no_address_is_refused() -> None:
    info = {"vdpa": {"pci-address": "../../etc"}}
    with pytest.raises(ValueError, match="is not a PCI address"):
        functions.parse(json.dumps({"interfaces": [{"network": "a", "deviceInfo": info}]}).encode())

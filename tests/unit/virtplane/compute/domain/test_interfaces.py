"""Interfaces of a domain: as they are written, and as a live domain's XML is read."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.context import InterfaceLink
from virtplane.compute.domain.interfaces import (
    PluggedInterface,
    plugged_interfaces,
    render_interface,
    with_link,
    xml_of,
)


def rendered(*, emulation: bool = False, queues: int = 1, **interface: Any) -> str:
    spec = {"domain": {"devices": {"interfaces": [{"name": "blue", **interface}]}}}
    vmi = decode(VirtualMachineInstance, {"spec": spec})
    link = InterfaceLink("tap1", "02:00:00:00:00:01", 1400, queues)
    node = render_interface(vmi, vmi.spec.domain.devices.interfaces[0], link, emulation=emulation)
    return xml_of(node)


def test_an_interface_is_where_and_called_as_its_instance_says() -> None:
    xml = rendered(pciAddress="0000:81:01.7", acpiIndex=7)
    assert '<address type="pci" domain="0x0000" bus="0x81" slot="0x01" function="0x7"/>' in xml
    assert '<acpi index="7"/>' in xml


@pytest.mark.feature("NET-09")
@pytest.mark.parametrize("model", ["e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139"])
def test_models_of_real_cards_are_named(model: str) -> None:
    assert f'<model type="{model}"/>' in rendered(model=model)


def test_queues_are_the_kernels_where_the_pod_has_the_device() -> None:
    assert '<driver name="vhost" queues="4"/>' in rendered(queues=4)
    assert '<driver name="qemu" queues="4"/>' in rendered(queues=4, emulation=True)
    assert "<driver" not in rendered()


def live(*interfaces: str) -> str:
    return f"<domain><devices>{''.join(interfaces)}</devices></domain>"


def test_a_live_domain_says_which_interfaces_it_has() -> None:
    down = '<interface><alias name="ua-red"/><link state="down"/></interface>'
    foreign = '<interface><alias name="net0"/></interface><interface/>'
    found = plugged_interfaces(live(rendered(), down, foreign))
    assert found["blue"] == PluggedInterface("blue", True, "02:00:00:00:00:01")
    assert found["red"] == PluggedInterface("red", False)


def test_a_link_is_switched_and_nothing_else() -> None:
    down = with_link(live(rendered()), "blue", is_up=False)
    assert down.replace('<link state="down"/>', "") == rendered()
    up = with_link(live(down), "blue", is_up=True)
    assert up.count("<link") == 1 and '<link state="up"/>' in up
    assert with_link(live(), "blue", is_up=True) == ""


@pytest.mark.parametrize(
    "xml",
    [
        "",
        "no XML",
        "<domain/>",
        live('<interface><alias name="ua-../../x"/></interface>'),
        live('<interface><alias name="ua-' + "x" * 64 + '"/></interface>'),
        '<!DOCTYPE d [<!ENTITY n SYSTEM "file:///etc/hostname">]>'
        + live('<interface><alias name="&n;"/></interface>'),
    ],
)
def test_whatever_a_launcher_says_else_is_no_interface(xml: str) -> None:
    assert plugged_interfaces(xml) == {}


def test_a_mac_that_is_none_is_not_told() -> None:
    said = '<interface><alias name="ua-blue"/><mac address="&lt;script>"/></interface>'
    assert plugged_interfaces(live(said))["blue"].mac == ""

"""The network plan and its rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from ipaddress import IPv4Interface, IPv6Interface
from typing import Any

import pytest
from tests.support.network_plans import plan_network

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.network_configuration import InterfaceBindingPlugin
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.network import plan as network
from virtplane.compute.handler.network.lease import Resolver, lease
from virtplane.compute.handler.network.rules import ruleset
from virtplane.compute.podlinks import wires

POD = network.PodInterface("0a:58:0a:01:00:05", 1450, (IPv4Interface("10.1.0.5/24"),))


DUAL = replace(POD, addresses=(*POD.addresses, IPv6Interface("fd6b::1:5/64")))


def masquerade(vmi: VirtualMachineInstance, pod: network.PodInterface = POD) -> network.MasqueradePlan:
    plan = plan_network(vmi, pod)
    assert isinstance(plan, network.MasqueradePlan)
    return plan


def bridge(**interface: Any) -> network.BridgePlan:
    plan = plan_network(instance({"bridge": {}, **interface}), POD)
    assert isinstance(plan, network.BridgePlan)
    return plan


def instance(interface: dict[str, Any], **pod: Any) -> VirtualMachineInstance:
    document = {
        "metadata": {"name": "vm", "namespace": "ns"},
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "default"} | interface]}},
            "networks": [{"name": "default", "pod": pod}],
        },
    }
    return decode(VirtualMachineInstance, document)


@pytest.mark.feature("NET-02")
def test_masquerade_uses_the_second_address_for_the_guest() -> None:
    plan = masquerade(instance({"masquerade": {}}))
    assert str(plan.gateway) == "10.0.2.1/24"
    assert str(plan.guest) == "10.0.2.2"
    assert plan.mac == POD.mac
    assert plan.mtu == 1450


@pytest.mark.feature("NET-11")
def test_own_network_and_mac_are_honoured() -> None:
    vmi = instance({"masquerade": {}, "macAddress": "02:00:00:00:00:07"}, vmNetworkCIDR="192.168.9.0/28")
    plan = masquerade(vmi)
    assert (str(plan.gateway), str(plan.guest), plan.mac) == (
        "192.168.9.1/28",
        "192.168.9.2",
        "02:00:00:00:00:07",
    )


@pytest.mark.feature("NET-05")
def test_a_guest_behind_nat_has_ipv6_where_its_pod_has() -> None:
    plan = masquerade(instance({"masquerade": {}}), DUAL)
    assert plan.ipv6 is not None
    assert (str(plan.ipv6.gateway), str(plan.ipv6.guest)) == ("fd10:0:2::1/120", "fd10:0:2::2")
    own = masquerade(instance({"masquerade": {}}, vmIPv6NetworkCIDR="fd00:7::9/64"), DUAL)
    assert own.ipv6 is not None
    assert (str(own.ipv6.gateway), str(own.ipv6.guest)) == ("fd00:7::1/64", "fd00:7::2")
    only_on_its_link = replace(POD, addresses=(*POD.addresses, IPv6Interface("fe80::5/64")))
    assert masquerade(instance({"masquerade": {}}), POD).ipv6 is None
    assert masquerade(instance({"masquerade": {}}), only_on_its_link).ipv6 is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vmNetworkCIDR", "10.0.2.0/31"),
        ("vmNetworkCIDR", "fd00::/64"),
        ("vmIPv6NetworkCIDR", "10.0.2.0/24"),
        ("vmIPv6NetworkCIDR", "fd00::/127"),
        ("vmIPv6NetworkCIDR", "; add table ip x"),
    ],
)
def test_a_network_without_room_for_a_guest_is_said(field: str, value: str) -> None:
    with pytest.raises(network.UnusableNetwork, match=re.escape(value)):
        masquerade(instance({"masquerade": {}}, **{field: value}), DUAL)


def test_leading_zeros_in_a_network_are_those_of_decimal_numbers() -> None:
    plan = masquerade(instance({"masquerade": {}}, vmNetworkCIDR="10.10.010.0/024"))
    assert (str(plan.gateway), str(plan.guest)) == ("10.10.10.1/24", "10.10.10.2")
    plain = masquerade(instance({"masquerade": {}}, vmNetworkCIDR="10.0.100.0/20"))
    assert str(plain.gateway) == "10.0.96.1/20"


def test_an_interface_behind_passt_has_no_links_in_the_pod() -> None:
    assert plan_network(instance({"passtBinding": {}}), POD) is None


def test_a_function_of_a_network_card_is_not_wired() -> None:
    assert plan_network(instance({"sriov": {}}), POD) is None


@pytest.mark.parametrize(
    ("attachment", "is_tapped"), [("managedTap", True), ("tap", False), ("", False), ("else", False)]
)
def test_a_binding_plugin_may_leave_tap_and_bridge_to_virt_handler(attachment: str, is_tapped: bool) -> None:
    vmi = instance({"binding": {"name": "plugin"}})
    plugins = {"plugin": InterfaceBindingPlugin(domain_attachment_type=attachment)}
    (wire,) = wires(vmi, plugins)
    assert network.is_tapped(wire) is is_tapped
    assert not network.is_tapped(wires(vmi)[0])  # Nobody has registered the plugin.
    if is_tapped:
        plan = network.plan_wire(vmi, wire, POD)
        assert isinstance(plan, network.BridgePlan)
        assert lease(plan, vmi, Resolver()) is None  # Its network has DHCP of its own.


@pytest.mark.parametrize(
    ("devices", "queues"),
    [
        ({"networkInterfaceMultiqueue": True}, 6),
        ({}, 1),
        ({"networkInterfaceMultiqueue": True, "interfaces": [{"model": "e1000e"}]}, 1),
    ],
)
def test_a_tap_has_a_queue_for_each_processor(devices: dict[str, Any], queues: int) -> None:
    interface = {"name": "default", "masquerade": {}, **devices.get("interfaces", [{}])[0]}
    domain = {"cpu": {"sockets": 2, "cores": 3}, "devices": {**devices, "interfaces": [interface]}}
    spec = {"domain": domain, "networks": [{"name": "default", "pod": {}}]}
    assert masquerade(decode(VirtualMachineInstance, {"spec": spec})).queues == queues


@pytest.mark.feature("NET-01", "NET-10")
def test_a_bridged_guest_has_the_pods_mac_and_the_bridge_one_of_its_own() -> None:
    plan = bridge()
    assert (plan.mac, plan.pod) == (POD.mac, POD)
    assert plan.bridge_mac not in (POD.mac, network.MASQUERADE_MAC)
    # Locally administered, for one card only, and the same when virt-handler comes back.
    assert int(plan.bridge_mac[:2], 16) & 3 == 2
    assert bridge() == plan


@pytest.mark.feature("NET-11")
def test_a_bridged_guest_may_name_its_mac() -> None:
    plan = bridge(macAddress="02-00-00-00-00-0A")
    assert plan.mac == "02:00:00:00:00:0a"
    assert plan.bridge_mac == bridge().bridge_mac


def test_guest_without_pod_network_has_no_plan() -> None:
    assert plan_network(VirtualMachineInstance(), POD) is None


@pytest.mark.parametrize(
    "ports",
    [
        {},
        {"ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]},
        {"portRanges": [{"protocol": "TCP", "start": 1, "end": 65535}]},
    ],
)
def test_nft_accepts_the_rules(ports: dict[str, Any]) -> None:
    if shutil.which("nft") is None or shutil.which("unshare") is None:
        pytest.skip("nft is not installed")
    plan = masquerade(instance({"masquerade": {}, **ports}), DUAL)
    done = subprocess.run(
        ["unshare", "--net", "--map-root-user", "nft", "-j", "-f", "-"],
        input=json.dumps(ruleset(plan)),
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr


def test_only_listed_ports_are_forwarded() -> None:
    plan = masquerade(instance({"masquerade": {}, "ports": [{"port": 80}]}))
    text = json.dumps(ruleset(plan))
    assert '"field": "dport"' in text
    assert '"right": 80' in text


def _rules(**interface: Any) -> list[dict[str, Any]]:
    plan = masquerade(instance({"masquerade": {}, **interface}))
    return [item["add"]["rule"] for item in ruleset(plan)["nftables"] if "rule" in item.get("add", {})]


@pytest.mark.feature("NET-02")
def test_the_guest_speaks_with_the_pods_address() -> None:
    leaving = [rule["expr"] for rule in _rules() if rule["chain"] == "postrouting"]
    own = {"payload": {"protocol": "ip", "field": "saddr"}}
    assert [{"match": {"op": "==", "left": own, "right": "10.0.2.2"}}, {"masquerade": None}] in leaving


@pytest.mark.feature("NET-02")
def test_without_a_list_every_port_leads_to_the_guest() -> None:
    (arriving,) = [rule["expr"] for rule in _rules() if rule["chain"] == "KUBEVIRT_PREINBOUND"]
    assert arriving == [{"dnat": {"addr": "10.0.2.2"}}]


@pytest.mark.feature("NET-03")
def test_ranges_of_ports_lead_to_the_guest() -> None:
    ranges = [{"protocol": "UDP", "start": 5000, "end": 5009}, {"protocol": "TCP", "start": 80, "end": 80}]
    rules = _rules(portRanges=ranges)
    arriving = [rule["expr"][0] for rule in rules if rule["chain"] == "KUBEVIRT_PREINBOUND"]
    ports = {each["match"]["left"]["payload"]["protocol"]: each["match"]["right"] for each in arriving}
    assert ports == {"udp": {"range": [5000, 5009]}, "tcp": 80}


def test_with_a_list_only_its_ports_lead_to_the_guest() -> None:
    arriving = [
        rule["expr"] for rule in _rules(ports=[{"port": 80}]) if rule["chain"] == "KUBEVIRT_PREINBOUND"
    ]
    port = {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 80}}
    assert arriving == [[port, {"dnat": {"addr": "10.0.2.2"}}]]


@pytest.mark.feature("NET-11")
def test_a_card_without_address_has_the_pods() -> None:
    plan = masquerade(instance({"masquerade": {}}))
    assert plan.mac == POD.mac

"""What a pod's annotation asks for, in both of its forms, and what is refused of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kindling.node.networks import selection
from kindling.node.networks.problems import NetworkProblem
from kindling.node.networks.selection import Bandwidth, NetworkSelection, PortMapping

_MISMATCH = "one or more items did not match comma-delimited format"


def parse(text: Any) -> list[NetworkSelection]:
    return list(selection.parse(text if isinstance(text, str) else json.dumps(text), "ns"))


def named(name: str, namespace: str = "ns", interface: str = "") -> NetworkSelection:
    return NetworkSelection(name=name, namespace=namespace, interface=interface)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("lan", [named("lan")]),
        ("lan,lan", [named("lan"), named("lan")]),
        (" other/lan@data , san ", [named("lan", "other", "data"), named("san")]),
        ("other / lan @ data", [named("lan", "other", "data")]),
    ],
)
def test_the_short_form(text: str, found: list[NetworkSelection]) -> None:
    assert parse(text) == found


def test_the_json_form() -> None:
    [found] = parse(
        [
            {
                "name": "lan",
                "namespace": "other",
                "interface": "data",
                "mac": "02:23:45:67:89:01",
                "infiniband-guid": "c2:11:22:33:44:55:66:77",
                "ips": ["10.1.1.11/24", "fd00::5"],
                "bandwidth": {"ingressRate": 2048, "ingressBurst": 1600},
                "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
                "default-route": ["10.1.1.1"],
                "cni-args": {"logicNetworkName": "blue"},
                "ipam-claim-reference": "vm.blue",
                "gateway": "ignored, like every member that is not known",
            }
        ]
    )
    assert found == NetworkSelection(
        name="lan",
        namespace="other",
        interface="data",
        mac="02:23:45:67:89:01",
        infiniband_guid="c2:11:22:33:44:55:66:77",
        ips=("10.1.1.11/24", "fd00::5"),
        bandwidth=Bandwidth(ingress_rate=2048, ingress_burst=1600),
        port_mappings=(PortMapping(host_port=8080, container_port=80, protocol="tcp"),),
        default_route=("10.1.1.1",),
        cni_args={"logicNetworkName": "blue"},
        ipam_claim="vm.blue",
    )
    assert parse([{"name": "lan", "interfaceRequest": "old"}]) == [named("lan", interface="old")]
    assert parse([{"name": "lan", "ips": None, "mac": None}]) == [named("lan")]
    assert parse([{"name": "lan.example"}]) == [named("lan.example")], "unlike the short form"
    assert parse("[]") == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", 'pod annotation does not have "network" as key'),
        ("a/b/c", "parsePodNetworkObjectName: Invalid network object (failed at '/')"),
        ("a@b@c", "parsePodNetworkObjectName: Invalid network object (failed at '@')"),
        ("LAN", _MISMATCH),
        ("-lan", "mismatch @ '-lan'"),
        ("lan.example", _MISMATCH),
        ("lan,", _MISMATCH),
        ("lan@sixteen-letters-", "Failed to parse interface name: must be less than 15 chars"),
        ("lan@a b", "and not contain '/' or spaces. interface name 'a b'"),
        ("[{", "failed to parse pod Network Attachment Selection Annotation JSON format: "),
        ('{"name": "lan"}', "JSON format: not a list of objects"),
        ('["lan"]', "JSON format: not a list of objects"),
        ([{"name": 5}], "Expected `str`, got `int`"),
        (
            [{"name": "lan", "mac": "02:23:45:67:89"}],
            "failed to mac: address 02:23:45:67:89: invalid MAC address",
        ),
        ([{"name": "lan", "mac": "02:23:45:67:89:01;IP=1"}], "failed to mac"),
        ([{"name": "lan", "infiniband-guid": "c2"}], "failed to validate infiniband GUID"),
        ([{"name": "lan", "ips": ["10.1.1.1/33"]}], 'failed to parse CIDR "10.1.1.1/33"'),
        ([{"name": "lan", "ips": ["10.1.1"]}], 'failed to parse IP address "10.1.1"'),
        ([{"name": "lan", "ips": ["fe80::1%a;K8S_POD_NAME=b"]}], "failed to parse IP address"),
        ([{"name": "lan", "default-route": ["x"]}], "default-route: invalid IP address"),
        (
            [{"name": "lan", "deviceID": "../../0000:00:01.0"}],
            "deviceID: pods get devices from device plugins",
        ),
        ([{"name": "../lan"}], _MISMATCH),
        ([{"namespace": "../kube-system", "name": "lan"}], _MISMATCH),
        ([{"name": "lan", "interface": "../../x"}], "Failed to parse interface name"),
        ([{"name": "lan", "interface": "-h"}], "Failed to parse interface name"),
        ([{"name": "lan", "interface": ".."}], "Failed to parse interface name"),
        ([{"name": "lan"}] * 33, "33 networks are more than a pod may have (32)"),
        ("lan," * 20000, "the annotation has more than 65536 characters"),
        ("[" * 30000, "JSON format"),
    ],
)
def test_refused(text: Any, problem: str) -> None:
    with pytest.raises(NetworkProblem) as raised:
        parse(text)
    assert problem in str(raised.value)


def test_one_default_route_for_each_family() -> None:
    def pod(*gateways: str) -> dict[str, Any]:
        networks = [{"name": "lan", "default-route": [gateway]} for gateway in gateways]
        annotations = {selection.NETWORKS: json.dumps(networks)}
        return {"metadata": {"namespace": "ns", "annotations": annotations}}

    assert len(selection.selections(pod("10.1.1.1", "fd00::1"))) == 2
    with pytest.raises(NetworkProblem, match="multus does not support ECMP for default-route"):
        selection.selections(pod("10.1.1.1", "10.1.1.2"))
    assert selection.selections({"metadata": {"namespace": "ns"}}) == ()


def test_the_default_network() -> None:
    def pod(text: str) -> dict[str, Any]:
        return {"metadata": {"namespace": "ns", "annotations": {selection.DEFAULT_NETWORK: text}}}

    assert selection.default_network({"metadata": {}}) is None
    assert selection.default_network(pod("lan")) == named("lan", "kube-system")
    with pytest.raises(NetworkProblem, match="more than one default network is specified: a,b"):
        selection.default_network(pod("a,b"))

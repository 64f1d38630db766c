"""What of a definition root runs on a node: the attacks of whoever may write one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kindling.node.networks import policy
from kindling.node.networks.definitions import Network, parse
from kindling.node.networks.problems import NetworkProblem
from kindling.node.networks.requests import check_addresses, check_ports
from kindling.node.networks.selection import NetworkSelection, PortMapping

WANTED = NetworkSelection(name="lan", namespace="ns")
BRIDGE = {"type": "bridge", "bridge": "br1"}


def read(config: Any, wanted: NetworkSelection = WANTED) -> Network:
    return parse(config if isinstance(config, str) else json.dumps(config), wanted, {"veth1"})


def test_one_plugin_or_a_list_of_them() -> None:
    assert read({**BRIDGE, "name": "blue"}) == Network("blue", (BRIDGE,))
    assert read(BRIDGE).name == "lan", "without a name it has the definition's"
    chain = {"cniVersion": "1.0.0", "name": "blue", "plugins": [BRIDGE, {"type": "tuning", "mtu": 1400}]}
    tuning = {"type": "tuning", "mtu": 1400, "dataDir": f"{policy.STATE}/tuning"}
    assert read(chain).plugins == (BRIDGE, tuning)
    assert read({**BRIDGE, "allowPersistentIPs": True}).keeps_addresses


def test_plugins_get_what_is_known_of_them_and_their_addresses_where_the_node_keeps_them() -> None:
    config = {
        **BRIDGE,
        "mtu": 1400,
        "later": "/etc/shadow",
        "ipam": {"type": "host-local", "subnet": "10.1.1.0/24"},
    }
    ipam = {"type": "host-local", "subnet": "10.1.1.0/24", "dataDir": f"{policy.STATE}/addresses"}
    assert read(config).plugins == ({**BRIDGE, "mtu": 1400, "ipam": ipam},)
    assert read({**BRIDGE, "ipam": {}}).plugins == ({**BRIDGE, "ipam": {}},)


def test_the_arguments_of_a_pod_win_over_those_of_the_definition() -> None:
    wanted = NetworkSelection(name="lan", namespace="ns", cni_args={"mac": "b", "logicNetworkName": "x"})
    [plugin] = read({**BRIDGE, "args": {"cni": {"mac": "a", "mtu": 9000}}}, wanted).plugins
    assert plugin["args"] == {"cni": {"mac": "b", "mtu": 9000}}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("{", "error unmarshalling delegate config"),
        ("[]", "error unmarshalling delegate config: not an object"),
        ({}, "delegate must have the 'type' or 'plugin' field"),
        ({"plugins": [{}]}, "a plugin delegate must have the 'type' field"),
        ({"plugins": [BRIDGE] * 17}, "17 plugins are more than a network may have"),
        ({**BRIDGE, "cniVersion": "9.0.0"}, "cniVersion '9.0.0' is not known"),
        ({**BRIDGE, "name": "../../etc"}, "invalid network config name: ../../etc"),
        ({"type": "../../bin/sh"}, 'type="../../bin/sh" is not one that this node runs'),
        ({"type": "/bin/sh"}, "is not one that this node runs"),
        ({"type": "firewall"}, "is not one that this node runs"),
        ({"type": "bridge"}, "bridge is not set"),
        ({"type": "bridge", "bridge": "cni0"}, '"cni0" belongs to the pod network'),
        ({"type": "macvlan"}, "master is not set"),
        ({"type": "macvlan", "master": "eth0"}, '"eth0" belongs to the pod network'),
        ({"type": "ipvlan", "master": "veth1"}, '"veth1" belongs to the pod network'),
        ({"type": "vlan", "master": "../x", "vlanId": 5}, "is not the name of a link"),
        ({"type": "host-device", "device": "lo"}, '"lo" belongs to the pod network'),
        ({"type": "host-device", "kernelpath": "/sys/devices/x"}, "kernelpath"),
        ({"type": "host-device", "device": "eth1", "pciBusID": "../x"}, "pciBusID"),
        ({"type": "host-device", "hwaddr": "02:00:00:00:00:01"}, "hwaddr"),
        ({**BRIDGE, "logFile": "/etc/passwd"}, "logFile"),
        ({**BRIDGE, "ipMasq": True}, "nodes do not route from secondary networks to the pod network"),
        ({**BRIDGE, "runtimeConfig": {"ips": []}}, "runtimeConfig"),
        ({**BRIDGE, "ipam": {"type": "host-local", "dataDir": "/etc"}}, 'type="host-local": dataDir'),
        ({**BRIDGE, "ipam": {"type": "host-local", "resolvConf": "/etc/shadow"}}, "resolvConf"),
        ({**BRIDGE, "ipam": {"type": "dhcp", "daemonSocketPath": "/run/x"}}, "daemonSocketPath"),
        ({**BRIDGE, "ipam": {"type": "../../bin/sh"}}, 'ipam type="../../bin/sh" is not one'),
        ({"type": "portmap", "conditionsV4": ["--modprobe=/tmp/x"]}, "conditionsV4"),
        ({"type": "tuning", "sysctl": {"kernel.core_pattern": "|/x"}}, 'sysctl "kernel.core_pattern"'),
        (
            {"type": "tuning", "sysctl": {"net/../kernel/core_pattern": "|/x"}},
            "is not one of the pod's network",
        ),
        ({"type": "tuning", "args": {"cni": {"sysctl": {"vm.swappiness": "1"}}}}, "vm.swappiness"),
        (" " * 300_000, "a configuration of more than"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "error unmarshalling"),
    ],
)
def test_refused(config: Any, problem: str) -> None:
    with pytest.raises(NetworkProblem) as raised:
        read(config)
    assert problem in str(raised.value)


def test_a_pod_cannot_set_what_a_definition_cannot() -> None:
    wanted = NetworkSelection(name="lan", namespace="ns", cni_args={"sysctl": {"kernel.panic": "1"}})
    with pytest.raises(NetworkProblem, match="kernel"):
        read({"type": "tuning"}, wanted)


@pytest.mark.parametrize("card", [{"type": "ptp"}, {**BRIDGE, "isGateway": True}])
def test_a_pod_does_not_choose_the_nodes_routes(card: dict[str, Any]) -> None:
    """The node would send what is for that address, a registry or another pod, to the pod."""
    plugins = [{**card, "ipam": {"type": "static"}}]
    for wanted, addresses in (
        (WANTED, ["8.8.8.8/24"]),
        (NetworkSelection(name="lan", namespace="ns", cni_args={"ips": ["8.8.8.8/24"]}), []),
    ):
        with pytest.raises(NetworkProblem, match="do not choose addresses"):
            check_addresses(wanted, plugins, addresses)
    check_addresses(WANTED, [{**card, "ipam": {"type": "host-local"}}], ["10.1.1.5"])
    check_addresses(WANTED, [{**BRIDGE, "ipam": {"type": "static"}}], ["10.1.1.5/24"])


@pytest.mark.parametrize(
    ("mapping", "problem"),
    [
        (PortMapping(host_port=10250, container_port=80), "10250 is a port of the node's own servers"),
        (PortMapping(host_port=70000, container_port=80), "not ports"),
        (PortMapping(host_port=80), "not ports"),
        (PortMapping(host_port=80, container_port=80, protocol="-j"), "is not a protocol"),
        (PortMapping(host_port=80, container_port=80, host_ip="127.0.0.1"), "hostIP"),
    ],
)
def test_ports_that_a_pod_cannot_have(mapping: PortMapping, problem: str) -> None:
    wanted = NetworkSelection(name="lan", namespace="ns", port_mappings=(mapping,))
    with pytest.raises(NetworkProblem, match=problem):
        check_ports(wanted, (10250,))

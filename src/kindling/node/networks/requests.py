"""What a pod asks of a network beside being on it, as plugins are told it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kindling.node.networks.problems import NetworkProblem
from kindling.node.networks.selection import NetworkSelection
from kubecore.json import JsonObject, get_object, get_str

_PROTOCOLS = ("", "tcp", "udp", "sctp")


def capabilities_of(wanted: NetworkSelection, addresses: Sequence[str]) -> JsonObject:
    """The runtimeConfig for plugins that declare these capabilities."""
    given: JsonObject = {
        # The plugin needs a protocol, which is TCP where Kubernetes lets one leave it out.
        "portMappings": [
            {**msgspec.to_builtins(item), "protocol": item.protocol.lower() or "tcp"}
            for item in wanted.port_mappings
        ],
        "bandwidth": msgspec.to_builtins(wanted.bandwidth) if wanted.bandwidth is not None else None,
        "ips": list(addresses),
        "mac": wanted.mac,
        "infinibandGUID": wanted.infiniband_guid,
    }
    return {key: value for key, value in given.items() if value}


def arguments_of(wanted: NetworkSelection, addresses: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The CNI_ARGS for plugins that declare no capabilities."""
    given = (("MAC", wanted.mac), ("IP", ",".join(addresses)))
    return tuple((key, value) for key, value in given if value)


def with_addresses(plugins: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The plugins, of which those that manage addresses are told which ones to give."""
    return [
        {**plugin, "capabilities": {**get_object(plugin, "capabilities"), "ips": True}}
        if plugin.get("ipam")
        else plugin
        for plugin in plugins
    ]


def check_addresses(
    wanted: NetworkSelection, plugins: Iterable[Mapping[str, Any]], addresses: Sequence[str]
) -> None:
    """Refuse addresses of the pod's choice where the node would get a route to them, and nothing limits the
    choice: whoever chooses the node's routes gets what it sends to anybody. Raises NetworkProblem.
    """
    for plugin in plugins:
        routed = plugin.get("type") == "ptp" or plugin.get("isGateway") or plugin.get("isDefaultGateway")
        is_chosen = addresses or "ips" in wanted.cni_args
        if routed and is_chosen and get_str(plugin, "ipam", "type") == "static":
            raise NetworkProblem("pods do not choose addresses of a network on which the node is a gateway")


def check_ports(wanted: NetworkSelection, reserved: Collection[int]) -> None:
    """Refuse mappings of ports that are none, or that the node's own servers have. Raises NetworkProblem."""
    for item in wanted.port_mappings:
        if not 0 < item.host_port < 65536 or not 0 < item.container_port < 65536:
            raise NetworkProblem(f"portMappings: {item.host_port}:{item.container_port}: not ports")
        if item.protocol.lower() not in _PROTOCOLS:
            raise NetworkProblem(f"portMappings: {item.protocol[:32]!r} is not a protocol")
        if item.host_ip:
            raise NetworkProblem(
                f"portMappings: hostIP {item.host_ip[:64]!r}: ports are on all of the node's addresses"
            )
        if item.host_port in reserved:
            raise NetworkProblem(f"portMappings: {item.host_port} is a port of the node's own servers")

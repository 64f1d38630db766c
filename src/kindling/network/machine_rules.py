"""The firewall of the machine itself towards a cluster's network; pure.

Nodes are network namespaces of their own, so the servers of nodes and pods are not the machine's. On the
machine, pods need the API server and the resolver. They must not reach anything else that listens there, on
any address. Packets that node ports send on are not for the machine and pass.

Nodes are let in, since they pull images, maybe from a mirror or through a proxy on the machine. Pods cannot
pass for their node: links are filtered (`pod_filter`), and translated packets of pods leave a node with an
address of the pod network (`rules`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_FAMILY = "inet"
_SERVED = "served"
_BEFORE_FILTER = -10


def guard(table: str, bridge: str, gateway: str, api_port: int, nodes: str) -> list[dict[str, Any]]:
    """The commands that restrict packets from `bridge` to the machine; loading them again changes nothing.

    `gateway` is the machine's address there, `nodes` the network that it shares with the nodes. Ports that
    are found later are added by `serve` and stay.
    """
    address, length = nodes.split("/")
    node = {
        "match": {
            "op": "==",
            "left": {"payload": {"protocol": "ip", "field": "saddr"}},
            "right": {"prefix": {"addr": address, "len": int(length)}},
        }
    }
    tcp = {
        "match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": api_port}
    }
    here = {
        "match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, "right": gateway}
    }
    port = {"concat": [{"meta": {"key": "l4proto"}}, {"payload": {"protocol": "th", "field": "dport"}}]}
    known = {"match": {"op": "==", "left": port, "right": f"@{_SERVED}"}}
    echo = {"payload": {"protocol": "icmp", "field": "type"}}
    rules: list[list[dict[str, Any]]] = [
        [_meta("iifname", "!=", bridge), {"accept": None}],
        [
            {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}},
            {"accept": None},
        ],
        [node, {"accept": None}],
        [here, tcp, {"accept": None}],
        [here, known, {"accept": None}],
        [{"match": {"op": "==", "left": echo, "right": "echo-request"}}, {"accept": None}],
        [{"reject": {"type": "icmpx", "expr": "admin-prohibited"}}],
    ]
    chain = {"family": _FAMILY, "table": table, "name": "input"}
    hook = {"type": "filter", "hook": "input", "prio": _BEFORE_FILTER, "policy": "accept"}
    commands = _served_set(table)
    commands += [{"add": {"chain": {**chain, **hook}}}, {"flush": {"chain": chain}}]
    commands += [
        {"add": {"rule": {"family": _FAMILY, "table": table, "chain": "input", "expr": expressions}}}
        for expressions in rules
    ]
    return commands


def serve(table: str, ports: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """The commands that open these (protocol, port) of the machine's address, and no others."""
    served = {"family": _FAMILY, "table": table, "name": _SERVED}
    elements = [{"concat": [protocol, port]} for protocol, port in ports]
    commands = [*_served_set(table), {"flush": {"set": served}}]
    if elements:
        commands.append({"add": {"element": {**served, "elem": elements}}})
    return commands


def _served_set(table: str) -> list[dict[str, Any]]:
    served = {"family": _FAMILY, "table": table, "name": _SERVED, "type": ["inet_proto", "inet_service"]}
    return [{"add": {"table": {"family": _FAMILY, "name": table}}}, {"add": {"set": served}}]


def _meta(key: str, operator: str, value: str) -> dict[str, Any]:
    return {"match": {"op": operator, "left": {"meta": {"key": key}}, "right": value}}

"""The nftables rules of the masquerade binding, in nft's JSON form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from virtplane.compute.handler.network.plan import MasqueradePlan
from virtplane.compute.podlinks import PRIMARY

_TABLE = "nat"
_HOOKS = ("prerouting", -100), ("input", 100), ("output", -100), ("postrouting", 100)


def ruleset(plan: MasqueradePlan) -> dict[str, Any]:
    """The whole table of each family, replaced atomically."""
    commands = _table("ip", str(plan.guest), str(plan.gateway.ip), plan.ports)
    if plan.ipv6 is not None:
        commands += _table("ip6", str(plan.ipv6.guest), str(plan.ipv6.gateway.ip), plan.ports)
    return {"nftables": commands}


def _table(
    family: str, guest: str, gateway: str, ports: Sequence[tuple[str, int, int]]
) -> list[dict[str, Any]]:
    table = {"family": family, "name": _TABLE}
    commands: list[dict[str, Any]] = [
        {"add": {"table": table}},
        {"delete": {"table": table}},
        {"add": {"table": table}},
    ]
    for hook, priority in _HOOKS:
        chain = {"family": family, "table": _TABLE, "name": hook}
        commands.append(
            {"add": {"chain": chain | {"type": "nat", "hook": hook, "prio": priority, "policy": "accept"}}}
        )
    for name in ("KUBEVIRT_PREINBOUND", "KUBEVIRT_POSTINBOUND"):
        commands.append({"add": {"chain": {"family": family, "table": _TABLE, "name": name}}})
    rules = _rules(family, guest, gateway, ports)
    return commands + [_rule(family, chain, *expressions) for chain, expressions in rules]


def _rules(
    family: str, guest: str, gateway: str, ports: Sequence[tuple[str, int, int]]
) -> list[tuple[str, list[dict[str, Any]]]]:
    to_guest = {"dnat": {"addr": guest}}
    own = _match({"payload": {"protocol": family, "field": "saddr"}}, guest)
    rules: list[tuple[str, list[dict[str, Any]]]] = [
        ("postrouting", [own, {"masquerade": None}]),
        ("prerouting", [_match({"meta": {"key": "iifname"}}, PRIMARY.pod), _jump("KUBEVIRT_PREINBOUND")]),
        (
            "postrouting",
            [_match({"meta": {"key": "oifname"}}, PRIMARY.bridge), _jump("KUBEVIRT_POSTINBOUND")],
        ),
    ]
    wanted = [
        [_match({"payload": {"protocol": protocol, "field": "dport"}}, _range(first, last))]
        for protocol, first, last in ports
    ]
    for chosen in wanted or [[]]:
        rules.append(("KUBEVIRT_PREINBOUND", [*chosen, to_guest]))
        if family == "ip":
            # IPv6 has no route_localnet: packets for ::1 never leave the loopback interface.
            rules += [
                ("KUBEVIRT_POSTINBOUND", [*chosen, _loopback("saddr"), {"snat": {"addr": gateway}}]),
                ("output", [_loopback("daddr"), *chosen, to_guest]),
            ]
    return rules


def _loopback(field: str) -> dict[str, Any]:
    return _match({"payload": {"protocol": "ip", "field": field}}, "127.0.0.1")


def _rule(family: str, chain: str, *expressions: dict[str, Any]) -> dict[str, Any]:
    rule = {"family": family, "table": _TABLE, "chain": chain}
    return {"add": {"rule": rule | {"expr": list(expressions)}}}


def _range(first: int, last: int) -> int | dict[str, Any]:
    return first if first == last else {"range": [first, last]}


def _match(left: dict[str, Any], right: str | int | dict[str, Any]) -> dict[str, Any]:
    return {"match": {"op": "==", "left": left, "right": right}}


def _jump(target: str) -> dict[str, Any]:
    return {"jump": {"target": target}}

"""The nftables rules of the masquerade binding, in nft's JSON form."""

from __future__ import annotations

from typing import Any

from virtplane.compute.handler.network.plan import POD_INTERFACE, PRIMARY_BRIDGE, MasqueradePlan

_TABLE = "nat"
_HOOKS = ("prerouting", -100), ("input", 100), ("output", -100), ("postrouting", 100)


def ruleset(plan: MasqueradePlan) -> dict[str, Any]:
    """The whole table, replaced atomically."""
    table = {"family": "ip", "name": _TABLE}
    commands: list[dict[str, Any]] = [
        {"add": {"table": table}},
        {"delete": {"table": table}},
        {"add": {"table": table}},
    ]
    for hook, priority in _HOOKS:
        chain = {"family": "ip", "table": _TABLE, "name": hook}
        commands.append(
            {"add": {"chain": chain | {"type": "nat", "hook": hook, "prio": priority, "policy": "accept"}}}
        )
    for name in ("KUBEVIRT_PREINBOUND", "KUBEVIRT_POSTINBOUND"):
        commands.append({"add": {"chain": {"family": "ip", "table": _TABLE, "name": name}}})
    commands += [_rule(chain, *expressions) for chain, expressions in _rules(plan)]
    return {"nftables": commands}


def _rules(plan: MasqueradePlan) -> list[tuple[str, list[dict[str, Any]]]]:
    guest, gateway = str(plan.guest), str(plan.gateway.ip)
    to_guest = {"dnat": {"addr": guest}}
    local = _match({"payload": {"protocol": "ip", "field": "daddr"}}, "127.0.0.1")
    local_source = _match({"payload": {"protocol": "ip", "field": "saddr"}}, "127.0.0.1")
    rules: list[tuple[str, list[dict[str, Any]]]] = [
        (
            "postrouting",
            [_match({"payload": {"protocol": "ip", "field": "saddr"}}, guest), {"masquerade": None}],
        ),
        ("prerouting", [_match({"meta": {"key": "iifname"}}, POD_INTERFACE), _jump("KUBEVIRT_PREINBOUND")]),
        (
            "postrouting",
            [_match({"meta": {"key": "oifname"}}, PRIMARY_BRIDGE), _jump("KUBEVIRT_POSTINBOUND")],
        ),
    ]
    if not plan.ports:
        rules.append(("KUBEVIRT_PREINBOUND", [to_guest]))
        rules.append(("KUBEVIRT_POSTINBOUND", [local_source, {"snat": {"addr": gateway}}]))
        rules.append(("output", [local, to_guest]))
    for protocol, number in plan.ports:
        port = _match({"payload": {"protocol": protocol, "field": "dport"}}, number)
        rules.append(("KUBEVIRT_PREINBOUND", [port, to_guest]))
        rules.append(("KUBEVIRT_POSTINBOUND", [port, local_source, {"snat": {"addr": gateway}}]))
        rules.append(("output", [local, port, to_guest]))
    return rules


def _rule(chain: str, *expressions: dict[str, Any]) -> dict[str, Any]:
    rule = {"family": "ip", "table": _TABLE, "chain": chain}
    return {"add": {"rule": rule | {"expr": list(expressions)}}}


def _match(left: dict[str, Any], right: str | int) -> dict[str, Any]:
    return {"match": {"op": "==", "left": left, "right": right}}


def _jump(target: str) -> dict[str, Any]:
    return {"jump": {"target": target}}

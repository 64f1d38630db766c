"""Nodes: taints, pod address ranges, and what may not change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kindling.apiserver.kinds.core.pods.placement import validate_taints
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import NOT_NEGATIVE, amount, cidr, parse_network
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.fields import DUPLICATE, FieldError, FieldPath, duplicate, forbidden, invalid

_RANGES = FieldPath("spec", "podCIDRs")
_TAINTS = FieldPath("metadata", "taints")


def _ranges(path: FieldPath, ranges: list[str]) -> list[FieldError]:
    problems = list(f.items(cidr)(path, ranges))
    families = [network.version for network in map(parse_network, ranges) if network is not None]
    if not problems and len(families) != len(set(families)):
        return [invalid(path, ranges, "may specify no more than one CIDR for each IP family")]
    return problems


def _amounts(path: FieldPath, amounts: JsonObject) -> Iterator[FieldError]:
    for name, value in amounts.items():
        if amount(value).milli_value < 0:
            yield invalid(path.key(name), str(value), NOT_NEGATIVE)


def validate_node(node: JsonObject) -> Iterator[FieldError]:
    """A new node."""
    yield from validate_taints(_TAINTS, get_list(node, "spec", "taints"))
    yield from _RULES(node)


_RULES = f.document(
    f.part("spec", f.may("podCIDRs", _ranges)),
    f.part("status", f.may("capacity", _amounts), f.may("allocatable", _amounts)),
)


def validate_node_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A change: ranges and provider are set once."""
    yield from validate_node(new)
    seen: set[tuple[Any, Any]] = set()
    for position, address in enumerate(get_list(new, "status", "addresses")):
        key = (address.get("type"), address.get("address"))
        if key in seen:
            yield duplicate(FieldPath("status", "addresses").index(position), address)
        seen.add(key)
    spec, before = get_object(new, "spec"), get_object(old, "spec")
    known = get_list(before, "podCIDRs")
    if known and get_list(spec, "podCIDRs") != known:
        yield forbidden(_RANGES, 'node updates may not change podCIDR except from "" to valid')
    provider = before.get("providerID")
    if provider and spec.get("providerID") != provider:
        text = 'node updates may not change providerID except from "" to valid'
        yield forbidden(FieldPath("spec", "providerID"), text)
    if spec.get("taints") != before.get("taints"):
        # The server checks taints once with the node and once as a change; both findings are reported.
        for error in validate_taints(_TAINTS, get_list(spec, "taints")):
            if error.type == DUPLICATE:
                yield error

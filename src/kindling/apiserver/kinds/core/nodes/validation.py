"""Nodes: taints, pod address ranges, and what may not change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kindling.apiserver.kinds.core.pods.placement import validate_taints
from kindling.apiserver.kinds.machinery.checks import amount, cidr, parse_network
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.fields import FieldError, FieldPath, duplicate, forbidden, invalid

_RANGES = FieldPath("spec", "podCIDRs")


def validate_node(node: JsonObject) -> Iterator[FieldError]:
    """A new node."""
    spec = get_object(node, "spec")
    yield from validate_taints(get_list(spec, "taints"), FieldPath("metadata", "taints"))
    ranges = get_list(spec, "podCIDRs")
    problems = [
        error for position, value in enumerate(ranges) for error in cidr(_RANGES.index(position), value)
    ]
    yield from problems
    if ranges and not problems:
        yield from _validate_families(ranges)
    yield from _validate_amounts(node)


def _validate_families(ranges: list[Any]) -> list[FieldError]:
    families = [network.version for network in map(parse_network, ranges) if network is not None]
    if len(families) != len(set(families)):
        return [invalid(_RANGES, ranges, "may specify no more than one CIDR for each IP family")]
    return []


def _validate_amounts(node: JsonObject) -> Iterator[FieldError]:
    for field in ("capacity", "allocatable"):
        for name, value in get_object(node, "status", field).items():
            if amount(value).milli_value < 0:
                at = FieldPath("status", field).key(name)
                yield invalid(at, str(value), "must be greater than or equal to 0")


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
    taints = FieldPath("metadata", "taints")
    if spec.get("taints") != before.get("taints"):
        # The server checks taints once with the node and once as a change; both findings are reported.
        yield from (
            error
            for error in validate_taints(get_list(spec, "taints"), taints)
            if error.type.endswith("Duplicate")
        )

"""Addresses and node ports of services: taken while a write is prepared, given back when it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kindling.apiserver.registry.addresses import AllocationError
from kindling.apiserver.registry.context import RequestContext
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.fields import FieldError, FieldPath, internal, invalid

EXPOSED = ("NodePort", "LoadBalancer")
_SPEC = FieldPath("spec")


def allocate_for_create(ctx: RequestContext, service: JsonObject) -> list[FieldError]:
    """Allocate the addresses and ports of a new service; released if the request fails."""
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        return []
    return _allocate_addresses(ctx, spec, ()) or _allocate_ports(ctx, spec, {})


def allocate_for_update(ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
    """Allocate what an update adds; what it no longer needs is released after the write."""
    spec, before = new["spec"], old["spec"]
    found: list[FieldError] = []
    if spec.get("type") != "ExternalName":
        held = () if before.get("type") == "ExternalName" else get_list(before, "clusterIPs")
        found = _allocate_addresses(ctx, spec, held) or _allocate_ports(ctx, spec, before)
    freed_ports = _node_ports(before) - _node_ports(spec)
    freed_addresses = set(_addresses(before)) - set(_addresses(spec))

    def free() -> None:
        for number in freed_ports:
            ctx.addresses.release_port(number)
        for value in freed_addresses:
            ctx.addresses.release_ip(value)

    if freed_ports or freed_addresses:
        ctx.on_commit(free)
    return found


def release(ctx: RequestContext, service: JsonObject) -> None:
    """Give back all that a deleted service had."""
    spec = get_object(service, "spec")
    for value in _addresses(spec):
        ctx.addresses.release_ip(value)
    for number in _node_ports(spec):
        ctx.addresses.release_port(number)


def _addresses(spec: Mapping[str, Any]) -> list[str]:
    if spec.get("type") == "ExternalName":
        return []
    return [value for value in spec.get("clusterIPs") or () if value and value != "None"]


def _node_ports(spec: Mapping[str, Any]) -> set[int]:
    found = {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}
    if spec.get("healthCheckNodePort"):
        found.add(spec["healthCheckNodePort"])
    return found


def _allocate_addresses(ctx: RequestContext, spec: JsonObject, held: Sequence[str]) -> list[FieldError]:
    """One address for each family of the service, of which it has those in `held` already."""
    wanted = get_list(spec, "clusterIPs")
    if wanted[:1] == ["None"] or held[:1] == ["None"]:
        return []
    values = list(wanted)
    for position, family in enumerate(spec["ipFamilies"]):
        asked = wanted[position] if position < len(wanted) else ""
        if asked and asked in held:
            continue
        try:
            value = _take_address(ctx, asked, family)
        except AllocationError as error:
            if asked:
                return [invalid(_SPEC.child("clusterIPs"), wanted, f"failed to allocate IP {asked}: {error}")]
            return [internal(_SPEC.child("clusterIP"), f"failed to allocate a serviceIP: {error}")]
        values[position : position + 1] = [value]
    spec["clusterIP"] = values[0]
    spec["clusterIPs"] = values
    return []


def _take_address(ctx: RequestContext, asked: str, family: str) -> str:
    """The address `asked` for, or any of a family. Raises AllocationError."""
    if asked:
        ctx.addresses.reserve_ip(asked, ctx.namespace)
    value = asked or ctx.addresses.allocate_ip(family, ctx.namespace)
    ctx.on_rollback(lambda: ctx.addresses.release_ip(value))
    return value


def _allocate_ports(ctx: RequestContext, spec: JsonObject, before: Mapping[str, Any]) -> list[FieldError]:
    if spec.get("type") not in EXPOSED:
        return []
    held = _node_ports(before)
    automatic = spec.get("type") == "NodePort" or spec.get("allocateLoadBalancerNodePorts") is not False
    taken: dict[tuple[int, str], int] = {}
    for position, port in enumerate(get_list(spec, "ports")):
        number = port.get("nodePort")
        at = _SPEC.child("ports").index(position).child("nodePort")
        if number:
            if number in held or number in taken.values():
                taken[(port.get("port", 0), port.get("protocol", ""))] = number
                continue
            problem = _reserve(ctx, number, at)
            if problem:
                return problem
        elif automatic:
            # TCP and UDP ports of the same number share one node port.
            number = next((value for (known, _), value in taken.items() if known == port.get("port")), 0)
            if not number:
                try:
                    number = _take(ctx)
                except AllocationError as error:
                    return [internal(at, f"failed to allocate a nodePort: {error}")]
            port["nodePort"] = number
        else:
            continue
        taken[(port.get("port", 0), port.get("protocol", ""))] = number
    return _allocate_health_check(ctx, spec, held)


def _allocate_health_check(ctx: RequestContext, spec: JsonObject, held: set[int]) -> list[FieldError]:
    if spec.get("type") != "LoadBalancer" or spec.get("externalTrafficPolicy") != "Local":
        return []
    number = spec.get("healthCheckNodePort")
    at = _SPEC.child("healthCheckNodePort")
    if number:
        return [] if number in held else _reserve(ctx, number, at)
    try:
        spec["healthCheckNodePort"] = _take(ctx)
    except AllocationError as error:
        return [internal(at, f"failed to allocate a nodePort: {error}")]
    return []


def _take(ctx: RequestContext) -> int:
    number = ctx.addresses.allocate_port(ctx.namespace)
    ctx.on_rollback(lambda: ctx.addresses.release_port(number))
    return number


def _reserve(ctx: RequestContext, number: int, path: FieldPath) -> list[FieldError]:
    try:
        ctx.addresses.reserve_port(number, ctx.namespace)
    except AllocationError as error:
        return [invalid(path, number, str(error))]
    ctx.on_rollback(lambda: ctx.addresses.release_port(number))
    return []

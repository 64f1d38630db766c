"""Services: defaults, types, addresses and ports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.address_forms import balancer_warnings
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition, Subresource
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.fields import FieldError
from kubecore.objects.names import is_dns1123_label
from kubecore.resources import SERVICES

from . import families
from .allocation import allocate_for_create, allocate_for_update, release
from .validation import (
    service_warnings,
    validate_addresses,
    validate_service,
    validate_service_status,
    validate_service_update,
)

AFFINITY_SECONDS = 10800
"""Default of session affinity's timeout, in seconds (three hours, as Kubernetes has it)."""
EXPOSED = ("NodePort", "LoadBalancer")
FIELDS = ("spec.clusterIP", "spec.type")


class ServiceStrategy(BuiltinStrategy):
    """Services get their addresses in validation and release them when they are deleted."""

    allow_create_on_update = True
    tracks_generation = False
    returns_deleted_object = True
    rules = Rules(
        status=validate_service_status, warnings=service_warnings, status_warnings=balancer_warnings
    )

    def complete(self, obj: JsonObject) -> None:
        """Type, affinity, ports and traffic policies."""
        default_service(obj)

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """Drop the status, and copy the address between clusterIP and clusterIPs."""
        super().prepare_for_create(ctx, obj)
        _sync_cluster_ips(obj["spec"], None)

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Keep fields that the server has set and the client leaves out."""
        super().prepare_for_update(ctx, new, old)
        patch_allocated(new["spec"], old["spec"])
        _sync_cluster_ips(new["spec"], old["spec"])
        _drop_type_dependent(new["spec"], old["spec"])
        if new["spec"].get("type") != "LoadBalancer":
            new["status"] = {**(new.get("status") or {}), "loadBalancer": {}}

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """Check the service, then allocate its addresses and ports."""
        found = _settle_families(ctx, obj, None) or list(validate_service(obj))
        return found or allocate_for_create(ctx, obj)

    def validate_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """Validate the update, then allocate addresses and ports that it adds."""
        found = _settle_families(ctx, new, old) or list(validate_service_update(new, old))
        return found or allocate_for_update(ctx, new, old)

    def validate_name(self, name: str, *, prefix: bool) -> list[str]:
        """A DNS label (names may start with a digit since Kubernetes 1.36)."""
        return is_dns1123_label(name.rstrip("-") if prefix else name)

    def after_delete(self, ctx: RequestContext, obj: JsonObject) -> None:
        """Release the service's addresses and ports."""
        release(ctx, obj)


def _settle_families(ctx: RequestContext, service: JsonObject, old: JsonObject | None) -> list[FieldError]:
    """Set the families of a service; their errors stand alone, since the other rules build on them."""
    if service["spec"].get("type") == "ExternalName":
        return []
    before = old["spec"] if old is not None else None
    found = list(validate_addresses(service))
    return found or families.settle(service["spec"], before, ctx.addresses.families)


def default_service(obj: JsonObject) -> None:
    """Set defaults in place."""
    spec = obj["spec"]
    affinity = spec.setdefault("sessionAffinity", "None")
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    if affinity == "ClientIP":
        timeout = get_object(spec, "sessionAffinityConfig", "clientIP").get("timeoutSeconds")
        if timeout is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}
    kind = spec.setdefault("type", "ClusterIP")
    for port in get_list(spec, "ports"):
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    if is_externally_accessible(spec):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind in ("ClusterIP", *EXPOSED):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for point in get_list(obj, "status", "loadBalancer", "ingress"):
            if point.get("ip"):
                point.setdefault("ipMode", "VIP")


def is_externally_accessible(spec: Mapping[str, Any]) -> bool:
    """Whether traffic from outside the cluster reaches the service."""
    return spec.get("type") in EXPOSED or (spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs")))


def patch_allocated(new: JsonObject, old: JsonObject) -> None:
    """Keep allocated addresses and ports that the client left out (in a PUT of its manifest)."""
    if new.get("type") == "ExternalName" or old.get("type") == "ExternalName":
        return
    if not new.get("clusterIP") and old.get("clusterIP"):
        new["clusterIP"] = old["clusterIP"]
    if not new.get("clusterIPs") and old.get("clusterIPs"):
        new["clusterIPs"] = list(old["clusterIPs"])
    if new.get("type") in EXPOSED and old.get("type") in EXPOSED:
        _patch_node_ports(new, old)
    if _needs_health_check(new) and _needs_health_check(old) and old.get("healthCheckNodePort"):
        new["healthCheckNodePort"] = new.get("healthCheckNodePort") or old["healthCheckNodePort"]


def _patch_node_ports(new: JsonObject, old: JsonObject) -> None:
    if new.get("type") == "LoadBalancer" and new.get("allocateLoadBalancerNodePorts") is False:
        return
    before = {
        (port.get("protocol"), port.get("port")): port.get("nodePort") for port in get_list(old, "ports")
    }
    taken = {port.get("nodePort") for port in get_list(new, "ports")}
    for port in get_list(new, "ports"):
        kept = before.get((port.get("protocol"), port.get("port")))
        if not port.get("nodePort") and kept and kept not in taken:
            port["nodePort"] = kept
            taken.add(kept)


def _needs_health_check(spec: Mapping[str, Any]) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _sync_cluster_ips(spec: JsonObject, old: JsonObject | None) -> None:
    """clusterIP equals clusterIPs[0]; clients may set only the former."""
    if old is None:
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        return
    same_ip = spec.get("clusterIP", "") == old.get("clusterIP", "")
    same_list = (spec.get("clusterIPs") or []) == (old.get("clusterIPs") or [])
    if not same_ip and same_list:
        spec["clusterIPs"] = [spec["clusterIP"]] if spec.get("clusterIP") else []
        if not spec["clusterIPs"]:
            del spec["clusterIPs"]


def _drop_type_dependent(new: JsonObject, old: JsonObject) -> None:
    """Fields that the old type needed and the new one may not have, when the client just changed the type."""
    if old.get("type") != "ExternalName" and new.get("type") == "ExternalName":
        _drop_unchanged(new, old, "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
    if old.get("type") in EXPOSED and new.get("type") not in EXPOSED:
        before = {port.get("nodePort") for port in get_list(old, "ports")}
        for port in get_list(new, "ports"):
            if port.get("nodePort") in before:
                port.pop("nodePort", None)
    if _needs_health_check(old) and not _needs_health_check(new):
        _drop_unchanged(new, old, "healthCheckNodePort")
    if old.get("type") == "LoadBalancer" and new.get("type") != "LoadBalancer":
        _drop_unchanged(new, old, "allocateLoadBalancerNodePorts", "loadBalancerClass")
    if is_externally_accessible(old) and not is_externally_accessible(new):
        _drop_unchanged(new, old, "externalTrafficPolicy")
    if old.get("type") == "ExternalName" and new.get("type") != "ExternalName":
        _drop_unchanged(new, old, "externalName")


def _drop_unchanged(new: JsonObject, old: JsonObject, *fields: str) -> None:
    for field in fields:
        if new.get(field) == old.get(field):
            new.pop(field, None)


def _external(obj: JsonObject) -> str:
    spec = get_object(obj, "spec")
    addresses = list(spec.get("externalIPs") or [])
    match spec.get("type"):
        case "LoadBalancer":
            return ",".join(p.load_balancer_addresses(obj) + addresses) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case "ClusterIP" | "NodePort":
            return ",".join(addresses) or p.NONE
    return "<unknown>"


def _ports(spec: Mapping[str, Any]) -> str:
    parts = []
    for port in spec.get("ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        parts.append(f"{port.get('port')}{node}/{port.get('protocol')}")
    return ",".join(parts) or p.NONE


_TABLE = p.Table(
    p.NAME,
    p.plain("Type", "spec.type"),
    p.plain("Cluster-IP", lambda obj: next(iter(get_list(obj, "spec", "clusterIPs")), p.NONE)),
    p.plain("External-IP", _external),
    p.plain("Port(s)", lambda obj: _ports(get_object(obj, "spec"))),
    p.AGE,
    p.wide("Selector", lambda obj: p.format_labels(get_object(obj, "spec").get("selector"))),
)


def definitions() -> list[ResourceDefinition]:
    """Services."""
    verbs = ("create", "delete", "get", "patch", "update")
    return [
        builtin(
            SERVICES,
            ServiceStrategy(),
            short=("svc",),
            categories=("all",),
            table=_TABLE,
            subresources=(Subresource("proxy", "ServiceProxyOptions", verbs, connect=True),),
            fields=FIELDS,
        )
    ]

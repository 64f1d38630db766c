"""Ingresses, network policies, service address ranges."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.address_forms import balancer_warnings
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_object
from kubecore.resources import NETWORK_POLICIES, ResourceType

from . import validation

_GROUP = "networking.k8s.io"
INGRESSES = ResourceType(_GROUP, "v1", "ingresses", "Ingress")
INGRESS_CLASSES = ResourceType(_GROUP, "v1", "ingressclasses", "IngressClass", False)
SERVICE_CIDRS = ResourceType(_GROUP, "v1", "servicecidrs", "ServiceCIDR", False)
IP_ADDRESSES = ResourceType(_GROUP, "v1", "ipaddresses", "IPAddress", False)


class IngressStrategy(BuiltinStrategy):
    """HTTP routes into the cluster."""

    rules = Rules(
        validation.validate_new_ingress,
        update=lambda new, old: validation.validate_ingress(new),
        status=validation.validate_ingress_status,
        warnings=validation.ingress_warnings,
        status_warnings=balancer_warnings,
    )


class IngressClassStrategy(BuiltinStrategy):
    """Which controller serves an ingress."""

    has_status = False
    rules = Rules(validation.validate_ingress_class, update=validation.validate_ingress_class_update)

    def complete(self, obj: JsonObject) -> None:
        """Default the scope of parameters to Cluster."""
        parameters = obj["spec"].get("parameters")
        if isinstance(parameters, dict) and not parameters.get("scope"):
            parameters["scope"] = "Cluster"


class NetworkPolicyStrategy(BuiltinStrategy):
    """Who may talk to a pod."""

    metadata_checks = (1, 1)
    has_status = False
    rules = Rules(validation.validate_network_policy, warnings=validation.network_policy_warnings)

    def complete(self, obj: JsonObject) -> None:
        """Default to protocol TCP, and to policy type Egress only where there are egress rules."""
        spec = obj["spec"]
        for direction in ("ingress", "egress"):
            for rule in spec.get(direction) or ():
                for port in rule.get("ports") or ():
                    port.setdefault("protocol", "TCP")
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


class ServiceCidrStrategy(BuiltinStrategy):
    """A range of service addresses. Stored only: addresses come from the range of the server's settings."""

    tracks_generation = False
    standard_finalizers = False
    rules = Rules(validation.validate_service_cidr, update=validation.validate_service_cidr_update)


class IpAddressStrategy(BuiltinStrategy):
    """An address in use. Stored only."""

    has_status = False
    tracks_generation = False
    standard_finalizers = False
    rules = Rules(validation.validate_ip_address, update=validation.validate_ip_address_update)

    def validate_name(self, name: str, *, prefix: bool) -> list[str]:
        """The name is a canonical address."""
        return validation.address_name_problems(name)


def _hosts(obj: JsonObject) -> str:
    hosts = [rule["host"] for rule in get_list(obj, "spec", "rules") if rule.get("host")]
    return p.limited(hosts) if hosts else "*"


def _parameters(obj: JsonObject) -> str:
    parameters = get_object(obj, "spec").get("parameters")
    if not isinstance(parameters, dict):
        return p.NONE
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
    return f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"


def _address_cells(obj: JsonObject) -> list[Any]:
    parent = get_object(obj, "spec", "parentRef")
    parts = [parent.get(part) or "" for part in ("resource", "namespace", "name")]
    reference = "/".join(part for part in parts if part)
    return [p.name_of(obj), reference or p.UNSET, p.age(obj)]  # the age has no column


_INGRESS_TABLE = p.Table(
    p.NAME,
    p.plain("Class", "spec.ingressClassName", empty=p.NONE),
    p.plain("Hosts", _hosts),
    p.plain("Address", lambda obj: ",".join(p.load_balancer_addresses(obj))),
    p.plain("Ports", lambda obj: "80, 443" if get_object(obj, "spec").get("tls") else "80"),
    p.AGE,
)
_INGRESS_CLASS_TABLE = p.Table(
    p.NAME, p.plain("Controller", "spec.controller"), p.plain("Parameters", _parameters), p.AGE
)
_POD_SELECTOR = p.plain("Pod-Selector", lambda obj: p.format_selector(get_object(obj, "spec", "podSelector")))
_POLICY_TABLE = p.Table(p.NAME, _POD_SELECTOR, p.AGE)
_CIDRS = p.plain("CIDRs", lambda obj: ",".join(get_list(obj, "spec", "cidrs")))
_CIDR_TABLE = p.Table(p.NAME, _CIDRS, p.AGE)
_ADDRESS_TABLE = p.Table(p.NAME, p.plain("ParentRef"), fill=_address_cells)


def definitions() -> list[ResourceDefinition]:
    """Everything of networking.k8s.io."""
    return [
        builtin(INGRESSES, IngressStrategy(), short=("ing",), table=_INGRESS_TABLE),
        builtin(INGRESS_CLASSES, IngressClassStrategy(), table=_INGRESS_CLASS_TABLE),
        builtin(NETWORK_POLICIES, NetworkPolicyStrategy(), short=("netpol",), table=_POLICY_TABLE),
        builtin(SERVICE_CIDRS, ServiceCidrStrategy(), table=_CIDR_TABLE),
        builtin(IP_ADDRESSES, IpAddressStrategy(), short=("ip",), table=_ADDRESS_TABLE),
    ]

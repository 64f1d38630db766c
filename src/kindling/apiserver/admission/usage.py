"""The usage that an object counts against quotas, and the quotas that apply to it."""

from __future__ import annotations

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.quantity import Quantity
from kubecore.objects.storage_class import class_of
from kubecore.resources import ResourceType

from ..kinds.core.pods.qos import qos_class
from .limit_ranger import pod_amounts

Usage = dict[str, Quantity]
_ONE = Quantity.parse("1")
_CORE_COUNTS = frozenset({"configmaps", "secrets", "replicationcontrollers", "resourcequotas", "services"})
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_STORAGE_CLASS = ".storageclass.storage.k8s.io/"


def usage_of(resource: ResourceType, obj: JsonObject) -> Usage:
    """All amounts that `obj` uses, by the names that quotas give them."""
    usage: Usage = {f"count/{resource.group_resource}": _ONE}
    if resource.group:
        return usage
    if resource.plural in _CORE_COUNTS:
        usage[resource.plural] = _ONE
    if resource.plural == "pods":
        usage |= _pod(obj)
    elif resource.plural == "services":
        usage |= _service(obj)
    elif resource.plural == "persistentvolumeclaims":
        usage |= _claim(obj)
    return usage


def is_finished(pod: JsonObject) -> bool:
    """Whether a pod uses nothing any more."""
    return get_str(pod, "status", "phase") in ("Succeeded", "Failed")


def _pod(pod: JsonObject) -> Usage:
    if is_finished(pod):
        return {}
    usage: Usage = {"pods": _ONE}
    spec = get_object(pod, "spec")
    for name, amount in pod_amounts(spec, "requests").items():
        usage[f"requests.{name}"] = Quantity.parse(amount)
        if name in _COMPUTE or name.startswith("hugepages-"):
            usage[name] = Quantity.parse(amount)
    for name, amount in pod_amounts(spec, "limits").items():
        if name in _COMPUTE:
            usage[f"limits.{name}"] = Quantity.parse(amount)
    return usage


def _service(service: JsonObject) -> Usage:
    spec = get_object(service, "spec")
    kind, ports = spec.get("type"), len(get_list(spec, "ports"))
    usage: Usage = {"services.nodeports": _number(0), "services.loadbalancers": _number(0)}
    if kind == "NodePort":
        usage["services.nodeports"] = _number(ports)
    elif kind == "LoadBalancer":
        usage["services.loadbalancers"] = _ONE
        if spec.get("allocateLoadBalancerNodePorts") is not False:
            usage["services.nodeports"] = _number(ports)
    return usage


def _claim(claim: JsonObject) -> Usage:
    usage: Usage = {"persistentvolumeclaims": _ONE}
    storage_class = class_of(claim)
    if storage_class:
        usage[f"{storage_class}{_STORAGE_CLASS}persistentvolumeclaims"] = _ONE
    requested = get_object(claim, "spec", "resources", "requests").get("storage")
    if requested is not None:
        amount = Quantity.parse(str(requested))
        usage["requests.storage"] = amount
        if storage_class:
            usage[f"{storage_class}{_STORAGE_CLASS}requests.storage"] = amount
    return usage


def _number(value: int) -> Quantity:
    return Quantity.parse(str(value))


def is_in_scope(quota: JsonObject, resource: ResourceType, obj: JsonObject) -> bool:
    """Whether the scopes of a quota include an object; scopes speak of pods only."""
    spec = get_object(quota, "spec")
    scopes = [{"scopeName": scope, "operator": "Exists"} for scope in get_list(spec, "scopes")]
    scopes += get_list(spec, "scopeSelector", "matchExpressions")
    if not scopes:
        return True
    if resource.group or resource.plural != "pods":
        return False
    return all(_has_scope(scope, obj) for scope in scopes)


def _has_scope(scope: JsonObject, pod: JsonObject) -> bool:
    spec = get_object(pod, "spec")
    name = scope.get("scopeName")
    if name in ("Terminating", "NotTerminating"):
        has_deadline = spec.get("activeDeadlineSeconds") is not None
        return has_deadline is (name == "Terminating")
    if name in ("BestEffort", "NotBestEffort"):
        return (qos_class(spec) == "BestEffort") is (name == "BestEffort")
    if name == "CrossNamespacePodAffinity":
        return _is_cross_namespace(get_object(spec, "affinity"))
    if name == "PriorityClass":
        return _selects(scope, str(spec.get("priorityClassName") or ""))
    return False


def _selects(scope: JsonObject, value: str) -> bool:
    operator, values = scope.get("operator"), scope.get("values") or ()
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    return bool(value) == (operator == "Exists")


def _is_cross_namespace(affinity: JsonObject) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = get_list(affinity, kind, "requiredDuringSchedulingIgnoredDuringExecution")
        preferred = get_list(affinity, kind, "preferredDuringSchedulingIgnoredDuringExecution")
        terms += [get_object(each, "podAffinityTerm") for each in preferred]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False

"""Nodes and ComponentStatuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kindling.apiserver.kinds.core.pods.placement import validate_taints
from kindling.apiserver.kinds.core.pods.resources import whole
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.address_forms import cidr_warnings
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.checks import NOT_NEGATIVE, amount, cidr, parse_network
from kindling.apiserver.kinds.machinery.internal import internal_form
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition, Subresource
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    go_quote,
    internal,
    invalid,
)
from kubecore.resources import NODES, ResourceType

COMPONENT_STATUSES = ResourceType("", "v1", "componentstatuses", "ComponentStatus", False)
_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"
_RANGES = FieldPath("spec", "podCIDRs")
_TAINTS = FieldPath("metadata", "taints")


_FEATURE = re.compile(r"([A-Z][a-zA-Z0-9]*)(/[a-zA-Z0-9]+)*")
_FEATURE_TEXT = (
    "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature "
    "or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
)
_INTERNAL_ADDRESS = {"Type": "", "Address": ""}


def _ranges(path: FieldPath, ranges: list[str]) -> Iterator[FieldError]:
    yield from f.items(cidr)(path, ranges)
    networks = [parse_network(text) for text in ranges]
    if len(ranges) > 1 and None in networks:
        position = networks.index(None)
        told = f"invalid CIDR[{position}]: <nil> (invalid CIDR address: {ranges[position]})"
        yield internal(path, f"invalid PodCIDRs. failed to check with dual stack with error:{told}")
    families = [network and network.version for network in networks]
    if len(ranges) > 1 and sorted(map(str, families)) != ["4", "6"]:
        yield invalid(path, ranges, "may specify no more than one CIDR for each IP family")


def _features(path: FieldPath, features: list[str]) -> Iterator[FieldError]:
    """Features that a node declares: names, each once, in order."""
    for position, name in enumerate(features):
        if len(name) > 253:
            yield invalid(path.index(position), name, f"invalid feature name {go_quote(name)}: {_TOO_LONG}")
        elif not _FEATURE.fullmatch(name):
            yield invalid(
                path.index(position), name, f"invalid feature name {go_quote(name)}: {_FEATURE_TEXT}"
            )
        after = features[position + 1 : position + 2]
        if after == [name]:
            yield duplicate(path.index(position + 1), name)
        elif after and after[0] < name:
            yield invalid(path.index(position + 1), after[0], "list must be sorted alphabetically")


_TOO_LONG = "must be no more than 253 characters"


def _amounts(path: FieldPath, amounts: JsonObject) -> Iterator[FieldError]:
    for name, value in amounts.items():
        at = path.child(name)
        if amount(value).milli_value < 0:
            yield invalid(at, str(value), NOT_NEGATIVE)
        yield from whole(at, name, value)


def validate_node(node: JsonObject) -> Iterator[FieldError]:
    """A new node."""
    yield from validate_taints(_TAINTS, get_list(node, "spec", "taints"))
    yield from _AMOUNTS(node)
    swap = get_object(node, "status", "nodeInfo", "swap").get("capacity")
    if swap is not None and swap <= 0:
        yield invalid(_SWAP, str(swap), "must be greater than zero")
    yield from _FEATURES(node)
    yield from _RANGES_OF_PODS(node)


_SWAP = FieldPath("metadata", "nodeSwapStatus", "capacity")
_AMOUNTS = f.document(f.part("status", f.may("capacity", _amounts), f.may("allocatable", _amounts)))
_FEATURES = f.document(f.part("status", f.may("declaredFeatures", _features)))
_RANGES_OF_PODS = f.spec(f.may("podCIDRs", _ranges))


def validate_node_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A change is judged like a new node, and as a change."""
    yield from validate_node(new)
    yield from validate_node_change(new, old)


def validate_node_change(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """What is judged of a change and of a status: ranges and provider are set once."""
    yield from _AMOUNTS(new)
    yield from _FEATURES(new)
    seen: set[tuple[Any, Any]] = set()
    for position, address in enumerate(get_list(new, "status", "addresses")):
        key = (address.get("type"), address.get("address"))
        if key in seen:
            at = FieldPath("status", "addresses").index(position)
            yield duplicate(at, internal_form(address, _INTERNAL_ADDRESS))
        seen.add(key)
    spec, before = get_object(new, "spec"), get_object(old, "spec")
    known = get_list(before, "podCIDRs")
    if known and get_list(spec, "podCIDRs") != known:
        yield forbidden(_RANGES, 'node updates may not change podCIDR except from "" to valid')
    provider = before.get("providerID")
    if provider and spec.get("providerID") != provider:
        text = 'node updates may not change providerID except from "" to valid'
        yield forbidden(FieldPath("spec", "providerID"), text)
    yield from validate_taints(_TAINTS, get_list(spec, "taints"))


class ComponentStrategy(BuiltinStrategy):
    """The deprecated health of control plane components; the list is always empty."""

    has_status = False
    tracks_generation = False


class NodeStrategy(BuiltinStrategy):
    """Nodes keep the status with which they are registered."""

    tracks_generation = False
    metadata_checks = (1, 1)
    rules = Rules(validate_node, update=validate_node_update, status=validate_node_change)

    def complete(self, obj: JsonObject) -> None:
        """Default allocatable to capacity."""
        status = obj["status"]
        if "allocatable" not in status and status.get("capacity"):
            status["allocatable"] = dict(status["capacity"])
        # podCIDR is the first of podCIDRs, and wins if they differ.
        spec = obj["spec"]
        first, ranges = spec.get("podCIDR"), spec.get("podCIDRs") or []
        if first and ranges[:1] != [first]:
            spec["podCIDRs"] = [first]
        elif ranges and not first:
            spec["podCIDR"] = ranges[0]

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """Keep the status: a kubelet sets it when it registers."""
        obj["spec"].pop("configSource", None)

    def selectable_fields(self, obj: JsonObject) -> dict[str, str]:
        """Whether pods are scheduled to it."""
        return {"spec.unschedulable": "true" if get_object(obj, "spec").get("unschedulable") else "false"}

    def warnings(self, ctx: RequestContext, obj: JsonObject, old: JsonObject | None) -> list[str]:
        """Fields without effect."""
        found = []
        if get_object(obj, "spec").get("configSource") is not None:
            found.append("spec.configSource: the feature is removed")
        if get_str(obj, "spec", "externalID"):
            found.append("spec.externalID: deprecated in v1.11; this field is unused by Kubernetes")
        for position, block in enumerate(get_list(obj, "spec", "podCIDRs")):
            found += cidr_warnings(_RANGES.index(position), block)
        return found


def _roles(obj: JsonObject) -> str:
    found = set()
    for key, value in get_object(obj, "metadata", "labels").items():
        if key.startswith(_ROLE_PREFIX) and key != _ROLE_PREFIX:
            found.add(key.removeprefix(_ROLE_PREFIX))
        elif key == _ROLE_LABEL and value:
            found.add(value)
    return ",".join(sorted(found)) or p.NONE


def _state(obj: JsonObject) -> str:
    conditions = {item.get("type"): item.get("status") for item in get_list(obj, "status", "conditions")}
    ready = {"True": "Ready", None: "Unknown"}.get(conditions.get("Ready"), "NotReady")
    if "Ready" in conditions and conditions["Ready"] != "True":
        ready = "NotReady"
    return f"{ready},SchedulingDisabled" if get_object(obj, "spec").get("unschedulable") else ready


def _address(obj: JsonObject, kind: str) -> str:
    for address in get_list(obj, "status", "addresses"):
        if address.get("type") == kind:
            return str(address.get("address"))
    return p.NONE


_TABLE = p.Table(
    p.NAME,
    p.plain("Status", _state),
    p.plain("Roles", _roles),
    p.AGE,
    p.plain("Version", "status.nodeInfo.kubeletVersion"),
    p.wide("Internal-IP", lambda obj: _address(obj, "InternalIP")),
    p.wide("External-IP", lambda obj: _address(obj, "ExternalIP")),
    p.wide("OS-Image", "status.nodeInfo.osImage", empty=p.UNKNOWN),
    p.wide("Kernel-Version", "status.nodeInfo.kernelVersion", empty=p.UNKNOWN),
    p.wide("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", empty=p.UNKNOWN),
)


def _component_cells(obj: JsonObject) -> list[Any]:
    healthy = {item.get("type"): item for item in get_list(obj, "conditions")}.get("Healthy", {})
    state = {"True": "Healthy", "False": "Unhealthy"}.get(healthy.get("status", ""), "Unknown")
    return [get_str(obj, "metadata", "name"), state, healthy.get("message", ""), healthy.get("error", "")]


_COMPONENT_TABLE = p.Table(
    p.NAME, p.plain("Status"), p.plain("Message"), p.plain("Error"), fill=_component_cells
)


def definitions() -> list[ResourceDefinition]:
    """Nodes and component statuses."""
    verbs = ("create", "delete", "get", "patch", "update")
    return [
        builtin(
            COMPONENT_STATUSES,
            ComponentStrategy(),
            short=("cs",),
            verbs=("get", "list"),
            table=_COMPONENT_TABLE,
            deprecation_warning="v1 ComponentStatus is deprecated in v1.19+",
            recorded=False,
        ),
        builtin(
            NODES,
            NodeStrategy(),
            short=("no",),
            table=_TABLE,
            subresources=(Subresource("proxy", "NodeProxyOptions", verbs, connect=True),),
            fields=("spec.unschedulable",),
        ),
    ]

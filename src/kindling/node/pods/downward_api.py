"""The downward API: values of a pod's own fields and of its containers' resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import go_quote
from kubecore.objects.quantity import Quantity

_SUBSCRIPT = re.compile(r"^(metadata\.(?:annotations|labels))\['(.+)'\]$")


class FieldProblem(Exception):
    """A field reference that cannot be resolved; its text becomes the container's waiting message."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What downward fields and statuses say about the node. `allocatable` has canonical quantities."""

    name: str
    ips: tuple[str, ...]
    allocatable: Mapping[str, str]


def format_map(values: Mapping[str, str]) -> str:
    """Labels or annotations as ``key="value"`` lines, sorted, values quoted as Go does."""
    return "\n".join(f"{key}={go_quote(values[key])}" for key in sorted(values))


def field_value(pod: JsonObject, path: str, node: NodeFacts, pod_ips: tuple[str, ...] = ()) -> str:
    """The value of ``fieldRef.fieldPath``. Raises FieldProblem for unknown paths."""
    metadata = get_object(pod, "metadata")
    subscript = _SUBSCRIPT.match(path)
    if subscript:
        entries = get_object(metadata, subscript.group(1).removeprefix("metadata."))
        return str(entries.get(subscript.group(2), ""))
    if path in ("metadata.labels", "metadata.annotations"):
        return format_map(get_object(metadata, path.removeprefix("metadata.")))
    simple = {
        "metadata.name": get_str(metadata, "name"),
        "metadata.namespace": get_str(metadata, "namespace"),
        "metadata.uid": get_str(metadata, "uid"),
        "spec.nodeName": get_str(pod, "spec", "nodeName"),
        "spec.serviceAccountName": get_str(pod, "spec", "serviceAccountName"),
        "status.hostIP": node.ips[0] if node.ips else "",
        "status.hostIPs": ",".join(node.ips),
        "status.podIP": pod_ips[0] if pod_ips else "",
        "status.podIPs": ",".join(pod_ips),
    }
    if path not in simple:
        raise FieldProblem(f"unsupported fieldPath: {path}")
    return simple[path]


def resource_value(pod: JsonObject, selector: JsonObject, own_container: str, node: NodeFacts) -> str:
    """The value of a ``resourceFieldRef`` divided by its divisor, rounded up. Raises FieldProblem.

    Absent limits of CPU and memory mean the node's allocatable.
    """
    wanted = get_str(selector, "containerName") or own_container
    containers = get_list(pod, "spec", "containers") + get_list(pod, "spec", "initContainers")
    container = next((item for item in containers if item.get("name") == wanted), None)
    if container is None:
        raise FieldProblem(f"container {wanted} not found")
    kind, _, resource = get_str(selector, "resource").partition(".")
    values = get_object(container, "resources", kind)
    if kind not in ("limits", "requests"):
        raise FieldProblem(f"unsupported container resource : {selector.get('resource')}")
    text = values.get(resource)
    if text is None and kind == "limits":
        text = node.allocatable.get(resource)
    quantity = Quantity.parse(text if text is not None else "0")
    divisor = Quantity.parse(selector.get("divisor") or "1")
    if divisor.value == 0 and divisor.milli_value == 0:
        divisor = Quantity.parse("1")
    return str(_divide_up(quantity, divisor))


def _divide_up(quantity: Quantity, divisor: Quantity) -> int:
    numerator, denominator = quantity.milli_value, divisor.milli_value
    return int(-(-numerator // denominator))

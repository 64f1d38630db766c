"""Answers of metrics.k8s.io/v1beta1; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kindling.metrics.samples import NodeUsage, Usage
from kubecore import errors
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta
from kubecore.objects.quantity import BINARY_SI, Quantity
from kubecore.objects.times import format_time
from kubecore.resources import ResourceType

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
NODE_METRICS = ResourceType(GROUP, VERSION, "nodes", "NodeMetrics", namespaced=False)
POD_METRICS = ResourceType(GROUP, VERSION, "pods", "PodMetrics")
_NAMED = {"NodeMetrics": "nodemetrics", "PodMetrics": "podmetrics"}
"""How messages call the resources."""


def resources() -> JsonObject:
    """The APIResourceList of the group version."""
    entries = [
        {
            "name": each.plural,
            "singularName": "",
            "namespaced": each.namespaced,
            "kind": each.kind,
            "verbs": ["get", "list"],
        }
        for each in (NODE_METRICS, POD_METRICS)
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": entries,
    }


def node_metrics(node: JsonObject, found: NodeUsage) -> JsonObject:
    """The metrics of a node."""
    return _document("NodeMetrics", node, found) | {"usage": _usage(found.node)}


def pod_metrics(pod: JsonObject, found: NodeUsage) -> JsonObject | None:
    """The metrics of a pod on the node that was measured; None where there are none."""
    key = (meta.namespace(pod), meta.name(pod), meta.uid(pod))
    containers = found.pods.get(key)
    if containers is None:
        return None
    listed = [{"name": name, "usage": _usage(each)} for name, each in sorted(containers.items())]
    return _document("PodMetrics", pod, found) | {"containers": listed}


def listing(resource: ResourceType, items: Sequence[JsonObject]) -> JsonObject:
    """A list of metrics, ordered by namespace and name."""
    ordered = sorted(items, key=lambda item: (get_str(item, "metadata", "namespace"), meta.name(item)))
    kind = f"{resource.kind}List"
    return {"kind": kind, "apiVersion": resource.api_version, "metadata": {}, "items": ordered}


def missing(resource: ResourceType, namespace: str, name: str) -> errors.StatusError:
    """There are no such metrics."""
    named = ResourceType(GROUP, VERSION, _NAMED[resource.kind], resource.kind, resource.namespaced)
    return errors.not_found(named, f"{namespace}/{name}" if namespace else name)


def _document(kind: str, of: JsonObject, found: NodeUsage) -> JsonObject:
    moment = format_time(found.moment)
    metadata: JsonObject = {"name": meta.name(of), "creationTimestamp": moment}
    if namespace := meta.namespace(of):
        metadata["namespace"] = namespace
    if labels := meta.labels(of):
        metadata["labels"] = dict(labels)
    return {
        "kind": kind,
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": metadata,
        "timestamp": moment,
        "window": f"{found.seconds:.3f}s",
    }


def _usage(found: Usage) -> Mapping[str, str]:
    return {
        "cpu": str(Quantity(found.nanocores)),
        "memory": str(Quantity.of(found.memory, BINARY_SI)),
    }

"""Short nodes and pods, and what is decided for them."""

from __future__ import annotations

from typing import Any

from kindling.scheduler.decision import Placement, Unschedulable, decide
from kindling.scheduler.snapshot import take
from kubecore.json import JsonObject

NO_VICTIMS = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."


def node(name: str = "n1", *, cpu: str = "4", pods: str = "110", **extra: Any) -> JsonObject:
    labels = {"kubernetes.io/hostname": name, **extra.pop("labels", {})}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": extra.pop("spec", {}),
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": pods, **extra.pop("resources", {})}},
    }


def pod(name: str = "p", *, on: str = "", requests: JsonObject | None = None, **spec: Any) -> JsonObject:
    container: JsonObject = {"name": "c", "resources": {"requests": requests or {}}}
    container["ports"] = spec.pop("ports", [])
    labels = spec.pop("labels", {})
    return {
        "metadata": {"name": name, "namespace": "lab", "uid": f"uid-{name}", "labels": labels},
        "spec": {"containers": [container], **({"nodeName": on} if on else {}), **spec},
    }


def reason(wanted: JsonObject, *nodes: JsonObject, pods: tuple[JsonObject, ...] = (), **more: Any) -> str:
    result = decide(wanted, take(nodes, pods, **more))
    assert isinstance(result, Unschedulable)
    return result.message


def place(wanted: JsonObject, *nodes: JsonObject, pods: tuple[JsonObject, ...] = (), **more: Any) -> str:
    result = decide(wanted, take(nodes, pods, **more))
    assert isinstance(result, Placement), result
    return result.node

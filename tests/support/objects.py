"""Objects of a small cluster."""

from __future__ import annotations

from typing import Any

from kubecore.json import JsonObject


def node(name: str = "n1", ready: str = "True", **spec: Any) -> JsonObject:
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": "x"}]},
    }


def pod(name: str = "p", on: str = "n1", ready: bool = True, ip: str = "10.0.0.1", **more: Any) -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": "lab", "labels": more.pop("labels", {"a": "b"})},
        "spec": {"nodeName": on, "containers": [{"name": "c", **more.pop("container", {})}], **more},
        "status": {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }

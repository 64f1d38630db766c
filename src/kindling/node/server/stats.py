"""Resource usage of the node and its pods: /stats/summary, and the same as Prometheus metrics."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kindling.node.pods import identity
from kindling.node.runtime.containerd import Containerd
from kubecore.json import JsonObject, get_object
from kubecore.objects import times


async def container_usage(runtime: Containerd) -> list[JsonObject]:
    """CPU and memory of every running container, with the labels that say whose they are."""
    usage = []
    for item in await runtime.container_stats():
        labels = get_object(item, "attributes", "labels")
        usage.append(
            {
                "namespace": labels.get(identity.LABEL_NAMESPACE, ""),
                "pod": labels.get(identity.LABEL_NAME, ""),
                "uid": labels.get(identity.LABEL_UID, ""),
                "container": labels.get(identity.LABEL_CONTAINER, ""),
                "cpu_nanoseconds": _value(item, "cpu", "usage_core_nano_seconds"),
                "memory_bytes": _value(item, "memory", "working_set_bytes"),
                "disk_bytes": _value(item, "writable_layer", "used_bytes"),
            }
        )
    return usage


def summary(node: str, usage: list[JsonObject]) -> JsonObject:
    """The document of /stats/summary."""
    now = times.now_rfc3339()
    pods: dict[str, JsonObject] = {}
    for item in usage:
        pod = pods.setdefault(
            item["uid"],
            {
                "podRef": {"name": item["pod"], "namespace": item["namespace"], "uid": item["uid"]},
                "containers": [],
            },
        )
        pod["containers"].append(
            {
                "name": item["container"],
                "cpu": {"time": now, "usageCoreNanoSeconds": item["cpu_nanoseconds"]},
                "memory": {"time": now, "workingSetBytes": item["memory_bytes"]},
                "rootfs": {"time": now, "usedBytes": item["disk_bytes"]},
            }
        )
    return {
        "node": {"nodeName": node, "memory": _node_memory(now), "cpu": _node_cpu(now)},
        "pods": list(pods.values()),
    }


def metrics(usage: list[JsonObject]) -> str:
    """Usage in Prometheus' text format, under the names that a kubelet gives them."""
    lines = [
        "# TYPE container_cpu_usage_seconds_total counter",
        "# TYPE container_memory_working_set_bytes gauge",
    ]
    for item in usage:
        labels = f'container="{item["container"]}",namespace="{item["namespace"]}",pod="{item["pod"]}"'
        seconds = item["cpu_nanoseconds"] / 1e9
        lines.append(f"container_cpu_usage_seconds_total{{{labels}}} {seconds}")
        lines.append(f"container_memory_working_set_bytes{{{labels}}} {item['memory_bytes']}")
    return "\n".join(lines) + "\n"


def _node_memory(now: str) -> JsonObject:
    facts = {
        name: int(value.split()[0]) * 1024
        for name, _, value in (line.partition(":") for line in Path("/proc/meminfo").read_text().splitlines())
    }
    available = facts.get("MemAvailable", 0)
    return {"time": now, "availableBytes": available, "workingSetBytes": facts["MemTotal"] - available}


def _node_cpu(now: str) -> JsonObject:
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    busy = sum(fields) - fields[3] - fields[4]
    return {"time": now, "usageCoreNanoSeconds": busy * 1_000_000_000 // os.sysconf("SC_CLK_TCK")}


def _value(item: dict[str, Any], *path: str) -> int:
    value = get_object(item, *path).get("value")
    return value if isinstance(value, int) else 0

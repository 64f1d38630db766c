"""Requests and limits as cgroup settings, and what follows from the quality of service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindling.apiserver.kinds.core.pods import qos
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.quantity import Quantity

_MIN_SHARES = 2
_MAX_SHARES = 262144
HUGE_PAGES = "hugepages-"
CPU_PERIOD = 100_000
"""Microseconds in which a quota may be used."""
_MIN_QUOTA = 1000


def qos_class(pod: JsonObject) -> str:
    """Guaranteed, Burstable or BestEffort: the server says it, but a status may be written without it."""
    return get_str(pod, "status", "qosClass") or qos.qos_class(get_object(pod, "spec"))


def page_size(resource: str) -> str:
    """The size of the huge pages of a resource, as cgroups write it: ``2MB``, ``1GB``."""
    size = Quantity.parse(resource.removeprefix(HUGE_PAGES)).value
    for unit, amount in (("GB", 1 << 30), ("MB", 1 << 20)):
        if size % amount == 0:
            return f"{size // amount}{unit}"
    return f"{size // 1024}KB"


def cpu_shares(milli: int) -> int:
    """The cpu.shares of a request in thousandths of a processor."""
    return max(_MIN_SHARES, min(_MAX_SHARES, milli * 1024 // 1000))


def cpu_quota(milli: int) -> int:
    """The microseconds of a `CPU_PERIOD` for a limit in thousandths of a processor."""
    return max(_MIN_QUOTA, milli * CPU_PERIOD // 1000)


def container_quota(container: JsonObject) -> int | None:
    """The microseconds of a `CPU_PERIOD` that a container may use; None: all of them."""
    limit = _milli(get_object(container, "resources", "limits").get("cpu"))
    return cpu_quota(limit) if limit else None


def linux_resources(
    pod: JsonObject, container: JsonObject, node_memory_bytes: int, cpus: str = "", *, with_quota: bool = True
) -> dict[str, Any]:
    """CRI's LinuxContainerResources of a container that runs on the processors `cpus` (default: all)."""
    requests = get_object(container, "resources", "requests")
    limits = get_object(container, "resources", "limits")
    cpu_limit = _milli(limits.get("cpu"))
    cpu_request = _milli(requests.get("cpu")) if "cpu" in requests else cpu_limit
    resources: dict[str, Any] = {
        "cpu_shares": cpu_shares(cpu_request),
        "oom_score_adj": oom_score(pod, container, node_memory_bytes),
    }
    if cpus:
        resources["cpuset_cpus"] = cpus
    quota = container_quota(container)
    if quota is not None and with_quota:
        resources |= {"cpu_period": CPU_PERIOD, "cpu_quota": quota}
    if "memory" in limits:
        resources["memory_limit_in_bytes"] = Quantity.parse(limits["memory"]).value
    huge = {name: Quantity.parse(limits[name]).value for name in limits if name.startswith(HUGE_PAGES)}
    if huge:
        resources["hugepage_limits"] = [
            {"page_size": page_size(name), "limit": amount} for name, amount in sorted(huge.items())
        ]
    return resources


def oom_score(pod: JsonObject, container: JsonObject, node_memory_bytes: int) -> int:
    """The oom_score_adj of the container: the higher, the earlier the kernel kills it when memory
    runs out.
    """
    quality = qos_class(pod)
    if get_str(pod, "spec", "priorityClassName") == "system-node-critical" or quality == "Guaranteed":
        return -997
    if quality == "BestEffort":
        return 1000
    request = get_object(container, "resources", "requests").get("memory")
    share = 1000 * Quantity.parse(request or "0").value // max(1, node_memory_bytes)
    score = 1000 - share
    return 3 if score < 3 else min(score, 999)


def cgroup_parent(root: str, pod: JsonObject) -> str:
    """The pod's cgroup below `root`, named as a kubelet with the cgroupfs driver names it."""
    quality = qos_class(pod).lower()
    uid = get_str(pod, "metadata", "uid")
    middle = "" if quality == "guaranteed" else f"/{quality}"
    return f"{root}/kubepods{middle}/pod{uid}"


def extended_resources(container: JsonObject) -> Mapping[str, int]:
    """The amounts of extended resources (of device plugins) that a container requests."""
    limits = get_object(container, "resources", "limits")
    return {
        name: Quantity.parse(amount).value
        for name, amount in limits.items()
        if "/" in name and not name.startswith("hugepages-") and "kubernetes.io/" not in name
    }


def _milli(value: str | None) -> int:
    return Quantity.parse(value).milli_value if value is not None else 0

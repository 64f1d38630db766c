"""The limits of pods' cgroups and of the cgroups of QoS classes; writing them.

``kubepods`` holds the pods of a node: Guaranteed ones directly, others in ``burstable`` and ``besteffort``.
What a pod may use is the sum over its containers, so that a container without a limit of its own, and memory
that belongs to no container (volumes in memory), are bounded as well.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kindling.node.cgroup_hierarchies import ROOT, is_unified
from kindling.node.pods import resources
from kindling.scheduler import requests
from kubecore.json import JsonObject, get_int, get_list, get_object

_CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "hugetlb")

INFRASTRUCTURE_PRIORITY = 1_000_000_000
"""The highest value of a class that is not the system's own: infrastructure has this priority at least."""

_PROCESSOR = resources.cpu_shares(1000)
"""The cpu.shares of a whole processor."""


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """Limits of a cgroup; None is none. Memory and huge pages (by size, ``2MB``) are in bytes."""

    cpu_shares: int | None = None
    cpu_quota: int | None = None
    memory: int | None = None
    pids: int | None = None
    huge_pages: Mapping[str, int] = field(default_factory=dict)


def pod_limits(pod: JsonObject, *, pids: int | None = None, with_quota: bool = True) -> CgroupLimits:
    """The limits of a pod's cgroup. Processors and memory are limited where every container has a limit."""
    wanted, limits = requests.of_pod(pod), requests.limits_of_pod(pod)
    quality = resources.qos_class(pod)
    quota = limits["cpu"] if quality != "BestEffort" and _all_limit(pod, "cpu") else None
    memory = limits["memory"] if quality != "BestEffort" and _all_limit(pod, "memory") else None
    return CgroupLimits(
        cpu_shares=_pod_shares(pod, quality, wanted.get("cpu", 0)),
        cpu_quota=resources.cpu_quota(quota) if quota and with_quota else None,
        memory=memory or None,
        pids=pids,
        huge_pages={
            resources.page_size(name): amount
            for name, amount in limits.items()
            if name.startswith(resources.HUGE_PAGES)
        },
    )


def _pod_shares(pod: JsonObject, quality: str, milli: int) -> int:
    """The cpu.shares of a pod that requests `milli` thousandths of a processor.

    A pod of the node's infrastructure that is Burstable has at least those of a processor: its small request
    is what it needs at rest, and all others wait for it while it works (docs/decisions/044).
    """
    if quality == "BestEffort":
        return resources.cpu_shares(0)
    is_infrastructure = quality == "Burstable" and get_int(pod, "spec", "priority") >= INFRASTRUCTURE_PRIORITY
    return max(resources.cpu_shares(milli), _PROCESSOR if is_infrastructure else 0)


def looser(left: CgroupLimits, right: CgroupLimits) -> CgroupLimits:
    """Limits within which both are possible."""
    return CgroupLimits(
        cpu_shares=max(left.cpu_shares or 0, right.cpu_shares or 0) or None,
        cpu_quota=_more(left.cpu_quota, right.cpu_quota),
        memory=_more(left.memory, right.memory),
        pids=_more(left.pids, right.pids),
        huge_pages=right.huge_pages,
    )


def _more(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else max(left, right)


def _all_limit(pod: JsonObject, resource: str) -> bool:
    if resource in get_object(pod, "spec", "resources", "limits"):
        return True
    containers = get_list(pod, "spec", "containers") + get_list(pod, "spec", "initContainers")
    return all(resource in get_object(container, "resources", "limits") for container in containers)


def burstable_shares(pods: Iterable[JsonObject]) -> int:
    """The cpu.shares of all Burstable pods together."""
    burstable = (pod for pod in pods if resources.qos_class(pod) == "Burstable")
    return resources.cpu_shares(sum(requests.of_pod(pod).get("cpu", 0) for pod in burstable))


def cpu_weight(shares: int) -> int:
    """The cpu.weight of version 2 for cpu.shares, as container runtimes convert them."""
    return 1 + (shares - 2) * 9999 // 262142


@dataclass(frozen=True, slots=True)
class CgroupTree:
    """Makes and limits cgroups below `root`, where the hierarchies are mounted."""

    root: Path = ROOT

    def ensure(self, cgroup: str, limits: CgroupLimits) -> None:
        """Make a cgroup unless it is there, and set its limits. Raises OSError."""
        if is_unified(self.root):
            self._ensure_unified(cgroup, limits)
            return
        for controller in _CONTROLLERS[:1] + _CONTROLLERS[2:]:
            base = self.root / controller
            if base.is_dir():
                directory = base / cgroup.lstrip("/")
                directory.mkdir(parents=True, exist_ok=True)
                _write(directory, _separate(controller, limits))

    def set_quota(self, cgroup: str, quota: int) -> None:
        """Limit the processors of a cgroup; one that is gone needs no limit. Raises OSError."""
        period, parts = str(resources.CPU_PERIOD), cgroup.lstrip("/")
        if is_unified(self.root):
            _write(self.root / parts, {"cpu.max": f"{quota} {period}"})
        else:
            files = {"cpu.cfs_period_us": period, "cpu.cfs_quota_us": str(quota)}
            _write(self.root / "cpu" / parts, files)

    def _ensure_unified(self, cgroup: str, limits: CgroupLimits) -> None:
        offered = (self.root / "cgroup.controllers").read_text().split()
        enabled = " ".join(f"+{name}" for name in _CONTROLLERS if name in offered)
        directory = self.root
        for part in Path(cgroup.lstrip("/")).parts:
            (directory / "cgroup.subtree_control").write_text(enabled)
            directory /= part
            directory.mkdir(exist_ok=True)
        (directory / "cgroup.subtree_control").write_text(enabled)
        _write(directory, _unified(limits))


def _separate(controller: str, limits: CgroupLimits) -> dict[str, str]:
    """The files of version 1. A limit that is none is written as well: it may have been one."""
    match controller:
        case "cpu":
            quota = -1 if limits.cpu_quota is None else limits.cpu_quota
            files = {"cpu.cfs_period_us": str(resources.CPU_PERIOD), "cpu.cfs_quota_us": str(quota)}
            return files | ({"cpu.shares": str(limits.cpu_shares)} if limits.cpu_shares else {})
        case "memory":
            return {"memory.limit_in_bytes": str(-1 if limits.memory is None else limits.memory)}
        case "pids":
            return {"pids.max": "max" if limits.pids is None else str(limits.pids)}
        case "hugetlb":
            return {
                f"hugetlb.{size}.limit_in_bytes": str(amount) for size, amount in limits.huge_pages.items()
            }
    return {}


def _unified(limits: CgroupLimits) -> dict[str, str]:
    """The files of version 2."""
    quota = "max" if limits.cpu_quota is None else str(limits.cpu_quota)
    files = {
        "cpu.max": f"{quota} {resources.CPU_PERIOD}",
        "memory.max": "max" if limits.memory is None else str(limits.memory),
        "pids.max": "max" if limits.pids is None else str(limits.pids),
    }
    if limits.cpu_shares:
        files["cpu.weight"] = str(cpu_weight(limits.cpu_shares))
    return files | {f"hugetlb.{size}.max": str(amount) for size, amount in limits.huge_pages.items()}


def _write(directory: Path, files: Mapping[str, str]) -> None:
    """Set limits that the kernel of this machine has. Raises OSError."""
    for name, value in files.items():
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(directory / name, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
            with os.fdopen(descriptor, "w") as stream:
                stream.write(value)

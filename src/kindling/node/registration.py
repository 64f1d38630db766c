"""Registering the Node, and keeping its status and lease up to date."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kindling.node.eviction.thresholds import MEMORY_AVAILABLE, NODEFS_AVAILABLE
from kindling.node.options import NodeOptions
from kindling.node.pods.pod_cgroups import huge_pages
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.interface import RuntimeFailure
from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import times
from kubecore.objects.quantity import BINARY_SI, Quantity
from kubecore.resources import LEASES, NODES

_log = logging.getLogger(__name__)

KUBELET_VERSION = "v1.36.0"
_DECLARED_FEATURES = ("ImageVolume",)
"""What this agent does by itself, whatever the version of the container runtime says."""

LEASE_SECONDS = 40
LEASE_RENEW_SECONDS = 10.0
STATUS_SECONDS = 300.0
"""How often an unchanged status is reported."""
CHECK_SECONDS = 5.0
"""How often the node looks whether something in its status has changed."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What the Node object says of the node."""

    name: str
    addresses: tuple[str, ...]
    pod_cidrs: tuple[str, ...]
    port: int
    options: NodeOptions = field(default_factory=NodeOptions)


def memory_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def advertised(node: JsonObject, extended: Mapping[str, tuple[int, int]]) -> JsonObject:
    """The extended resources in the node's capacity that no device plugin offers."""
    return {
        name: amount
        for name, amount in get_object(node, "status", "capacity").items()
        if "/" in name and "kubernetes.io/" not in name and name not in extended
    }


@dataclass(frozen=True, slots=True)
class Machine:
    """What the machine has: processors, and bytes of memory, of disk and of huge pages (by size)."""

    cpus: int
    memory: int
    disk: int
    huge_pages: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def here(cls, root: Path) -> Machine:
        """This machine, with the disk that `root` is on."""
        return cls(os.cpu_count() or 1, memory_bytes(), shutil.disk_usage(root).total, huge_pages())


def machine_resources(
    machine: Machine, options: NodeOptions, extended: Mapping[str, tuple[int, int]], others: JsonObject
) -> tuple[JsonObject, JsonObject]:
    """Capacity and allocatable; all of `others` can be allocated.

    What is reserved, and what has to be free lest pods are evicted, cannot be allocated.
    """
    amounts = {
        "cpu": Quantity.of(machine.cpus),
        "memory": Quantity.of(machine.memory, BINARY_SI),
        "ephemeral-storage": Quantity.of(machine.disk, BINARY_SI),
        "hugepages-2Mi": Quantity.of(0),
        "hugepages-1Gi": Quantity.of(0),
        "pods": Quantity.of(options.max_pods),
    }
    for size, total in machine.huge_pages.items():
        amounts[f"hugepages-{Quantity.of(size, BINARY_SI)}"] = Quantity.of(total, BINARY_SI)
    free = dict(amounts)
    for name, signal in (("memory", MEMORY_AVAILABLE), ("ephemeral-storage", NODEFS_AVAILABLE)):
        threshold = options.eviction_hard.get(signal)
        if threshold is not None:
            free[name] = free[name] - threshold.amount(amounts[name])
    free["memory"] = free["memory"] - Quantity.of(sum(machine.huge_pages.values()))
    for name in ("cpu", "memory", "ephemeral-storage"):
        left = free[name] - options.reserved(name)
        free[name] = left if left > Quantity.of(0) else Quantity.of(0)
    capacity: JsonObject = {name: str(amount) for name, amount in amounts.items()} | others
    allocatable: JsonObject = {name: str(amount) for name, amount in free.items()} | others
    for resource, (total, healthy) in extended.items():
        capacity[resource] = str(total)
        allocatable[resource] = str(healthy)
    return capacity, allocatable


_PRESSURES = {
    "MemoryPressure": (
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ),
    "DiskPressure": (
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ),
    "PIDPressure": (
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ),
}
"""Conditions of pressure: reason and message where they are true, and where not."""


def conditions(old: JsonObject, problems: list[str], pressure: Sequence[str], now: str) -> list[JsonObject]:
    """The node's conditions; `problems` keep it from being ready, `pressure` are those that are true."""
    wanted = [
        (kind, "True", *yes) if kind in pressure else (kind, "False", *no)
        for kind, (yes, no) in _PRESSURES.items()
    ]
    if problems:
        wanted.append(("Ready", "False", "KubeletNotReady", "; ".join(problems)))
    else:
        wanted.append(("Ready", "True", "KubeletReady", "kubelet is posting ready status"))
    known = {get_str(item, "type"): item for item in get_list(old, "status", "conditions")}
    result = []
    for kind, status, reason, message in wanted:
        before = known.get(kind, {})
        same = before.get("status") == status
        result.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": before.get("lastTransitionTime", now) if same else now,
            }
        )
    return result


def is_contradicted(node: JsonObject, wanted: Sequence[JsonObject]) -> bool:
    """Whether the Node does not say what these conditions do.

    While the node could not be reached, controllers called them unknown.
    """
    said = {get_str(item, "type"): get_str(item, "status") for item in get_list(node, "status", "conditions")}
    return any(said.get(item["type"]) != item["status"] for item in wanted)


def status_addresses(settings: NodeSettings) -> list[JsonObject]:
    """The addresses for a strategic merge patch, which would go by type, of which there are several."""
    return [
        {"$patch": "replace"},
        *({"type": "InternalIP", "address": address} for address in settings.addresses),
        {"type": "Hostname", "address": settings.name},
    ]


class NodeRegistration:
    """Keeps the Node and its lease."""

    def __init__(
        self,
        client: Client,
        runtime: Containerd,
        settings: NodeSettings,
        extended: Callable[[], Mapping[str, tuple[int, int]]],
        registered: Callable[[], object],
        pressure: Callable[[], Sequence[str]],
    ) -> None:
        self._client = client
        self._runtime = runtime
        self._settings = settings
        self._extended = extended
        self._registered = registered
        self._pressure = pressure
        self._wake = asyncio.Event()
        self._images: list[JsonObject] = []
        self.allocatable: JsonObject = machine_resources(self._machine(), settings.options, {}, {})[1]

    @staticmethod
    def _machine() -> Machine:
        return Machine.here(Path("/var/lib/kubelet"))

    def changed(self) -> None:
        """Have the status reported now: something in it has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Register, then report for ever."""
        await self._persistently(self._register)
        self._registered()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew_lease(), name="node-lease")
            group.create_task(self._report(), name="node-status")

    async def _persistently(self, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await action()
                return
            except (StatusError, ConnectionFailed, RuntimeFailure) as error:
                name = self._settings.name
                _log.warning("updating the status of node %s failed, trying again: %s", name, error)
                await asyncio.sleep(1)

    async def _register(self) -> None:
        labels = {
            "kubernetes.io/hostname": self._settings.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": _architecture(),
            "beta.kubernetes.io/os": "linux",
            "beta.kubernetes.io/arch": _architecture(),
        }
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self._settings.name,
                "labels": labels,
                "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            },
            "spec": {"podCIDR": self._settings.pod_cidrs[0], "podCIDRs": list(self._settings.pod_cidrs)},
        }
        try:
            await self._client.create(NODES, node)
        except StatusError as error:
            if error.code != 409:
                raise
            # Once set, they cannot be changed: a node that is older than the cluster's IPv6 keeps the first.
            known = await self._client.get(NODES, self._settings.name)
            has_ranges = bool(get_list(known, "spec", "podCIDRs"))
            patch = {"metadata": {"labels": labels}} | ({} if has_ranges else {"spec": node["spec"]})
            await self._client.patch(NODES, self._settings.name, patch, type="merge")
        await self._update_status()

    async def _report(self) -> None:
        problems: list[str] | None = None
        reported = 0.0
        loop = asyncio.get_running_loop()
        while True:
            try:
                await asyncio.wait_for(self._wake.wait(), CHECK_SECONDS)
                changed = True
            except TimeoutError:
                changed = await self._lags()
            self._wake.clear()
            now_problems = await self._problems()
            if changed or now_problems != problems or loop.time() - reported > STATUS_SECONDS:
                await self._persistently(self._update_status)
                problems, reported = now_problems, loop.time()

    async def _lags(self) -> bool:
        """Whether others have changed the status: advertised resources, which the allocatable ones follow, or
        conditions.
        """
        try:
            node = await self._client.get(NODES, self._settings.name)
        except (StatusError, ConnectionFailed) as error:
            _log.warning("node %s cannot be read, trying again: %s", self._settings.name, error)
            return False
        extended = self._extended()
        allocatable = {"status": {"capacity": get_object(node, "status", "allocatable")}}
        if advertised(node, extended) != advertised(allocatable, extended):
            return True
        return is_contradicted(node, await self._conditions(node))

    async def _conditions(self, node: JsonObject) -> list[JsonObject]:
        return conditions(node, await self._problems(), self._pressure(), times.now_rfc3339())

    async def _problems(self) -> list[str]:
        try:
            return await self._runtime.not_ready_reasons()
        except RuntimeFailure as error:
            return [f"container runtime is down: {error}"]

    async def _update_status(self) -> None:
        node = await self._client.get(NODES, self._settings.name)
        extended = self._extended()
        others = advertised(node, extended)
        capacity, allocatable = machine_resources(self._machine(), self._settings.options, extended, others)
        self.allocatable = allocatable
        name, version = await self._runtime.version()
        images: list[JsonObject] = [
            {"names": [*image.digests, *image.tags], "sizeBytes": image.size}
            for image in await self._runtime.list_images()
            if image.tags or image.digests
        ]
        status: JsonObject = {
            "capacity": capacity,
            "allocatable": allocatable,
            "conditions": await self._conditions(node),
            "addresses": status_addresses(self._settings),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._settings.port}},
            "nodeInfo": _node_info(name, version),
            "declaredFeatures": list(_DECLARED_FEATURES),
            "images": sorted(images, key=lambda item: -item["sizeBytes"])[:50],
        }
        # A merge patch keeps what is not in it: null removes the resources of plugins that are gone.
        for amounts in ("capacity", "allocatable"):
            stale = set(get_object(node, "status", amounts)) - set(status[amounts])
            status[amounts] = dict(status[amounts]) | dict.fromkeys(stale)
        await self._client.patch(
            NODES, self._settings.name, {"status": status}, type="strategic", subresource="status"
        )

    async def _renew_lease(self) -> None:
        while True:
            try:
                await self._renew_once()
            except (StatusError, ConnectionFailed) as error:
                name = self._settings.name
                _log.warning("renewing the lease of node %s failed, trying again: %s", name, error)
                await asyncio.sleep(1)
                continue
            await asyncio.sleep(LEASE_RENEW_SECONDS)

    async def _renew_once(self) -> None:
        name, namespace = self._settings.name, "kube-node-lease"
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": times.now_micro(),
        }
        try:
            await self._client.patch(LEASES, name, {"spec": spec}, namespace, type="merge")
        except StatusError as error:
            if error.code != 404:
                raise
            node = await self._client.get(NODES, name)
            owner = {
                "apiVersion": "v1",
                "kind": "Node",
                "name": name,
                "uid": get_str(node, "metadata", "uid"),
            }
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]},
                "spec": spec,
            }
            await self._client.create(LEASES, lease, namespace)


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _node_info(runtime: str, version: str) -> JsonObject:
    machine_id = Path("/etc/machine-id")
    identifier = machine_id.read_text().strip() if machine_id.exists() else ""
    release = {
        key: value.strip('"')
        for key, _, value in (
            line.partition("=") for line in Path("/etc/os-release").read_text().splitlines()
        )
    }
    return {
        "machineID": identifier,
        "systemUUID": identifier,
        "bootID": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "kernelVersion": platform.release(),
        "osImage": release.get("PRETTY_NAME", "Linux"),
        "containerRuntimeVersion": f"{runtime}://{version}",
        "kubeletVersion": KUBELET_VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": _architecture(),
    }

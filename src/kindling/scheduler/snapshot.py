"""What the scheduler knows at one moment: nodes with their pods, namespaces, volumes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kindling.scheduler import placed, requests
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from kubecore.objects import meta

Read: TypeAlias = Callable[[JsonObject], placed.PlacedPod]


@dataclass(slots=True)
class NodeInfo:
    """A node, its pods (including those being bound) and the resources that they use."""

    node: JsonObject
    pods: list[JsonObject] = field(default_factory=list)
    requested: requests.Amounts = field(default_factory=dict)
    in_use: requests.Amounts = field(default_factory=dict)
    """cpu and memory, with defaults for pods that ask for nothing."""
    ports: list[requests.HostPort] = field(default_factory=list)
    allocatable: requests.Amounts = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The node's name."""
        return meta.name(self.node)

    @property
    def labels(self) -> Mapping[str, str]:
        """The node's labels."""
        return meta.labels(self.node)

    @property
    def taints(self) -> list[JsonObject]:
        """The node's taints."""
        return get_list(self.node, "spec", "taints")

    @property
    def is_unschedulable(self) -> bool:
        """Whether the node is cordoned."""
        return get_bool(self.node, "spec", "unschedulable")

    def add(self, pod: JsonObject, needs: placed.Needs) -> None:
        """Count a pod that runs or will run on the node."""
        self.pods.append(pod)
        # In place: it is done for each pod of the cluster at each decision.
        for sums, amounts in ((self.requested, needs.requested), (self.in_use, needs.in_use)):
            for name, amount in amounts.items():
                sums[name] = sums.get(name, 0) + amount
        self.ports += needs.ports


@dataclass(slots=True)
class Volumes:
    """How to find the objects behind a pod's claims: by namespace and name, or by name."""

    claim: Callable[[str, str], JsonObject | None]
    volume: Callable[[str], JsonObject | None]
    storage_class: Callable[[str], JsonObject | None]
    available: Callable[[], list[JsonObject]]
    """All persistent volumes."""
    csi_node: Callable[[str], JsonObject | None] = lambda _: None
    csi_driver: Callable[[str], JsonObject | None] = lambda _: None
    capacities: Callable[[], list[JsonObject]] = list
    """All CSIStorageCapacities."""
    attachments: Callable[[], list[JsonObject]] = list
    """All VolumeAttachments."""


def no_volumes() -> Volumes:
    """Volume look-ups that find nothing."""
    return Volumes(lambda *_: None, lambda _: None, lambda _: None, lambda: [])


@dataclass(slots=True)
class Snapshot:
    """All nodes with their pods, and the other objects that filters read."""

    nodes: list[NodeInfo]
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    volumes: Volumes = field(default_factory=no_volumes)
    read: Read = placed.read

    def pods(self) -> Iterable[tuple[NodeInfo, JsonObject]]:
        """All placed pods."""
        return ((info, pod) for info in self.nodes for pod in info.pods)


def take(
    nodes: Iterable[JsonObject],
    pods: Iterable[JsonObject],
    *,
    assumed: Mapping[str, str] | None = None,
    namespaces: Iterable[JsonObject] = (),
    volumes: Volumes | None = None,
    read: Read = placed.read,
) -> Snapshot:
    """A snapshot of objects from caches. `assumed` are node names of pods by uid that are being bound."""
    infos = {
        meta.name(node): NodeInfo(
            node,
            allocatable=requests.parse_amounts(
                get_object(node, "status", "allocatable") or get_object(node, "status", "capacity")
            ),
        )
        for node in nodes
    }
    for pod in pods:
        if get_str(pod, "status", "phase") in ("Succeeded", "Failed"):
            continue
        name = get_str(pod, "spec", "nodeName") or (assumed or {}).get(meta.uid(pod), "")
        if name in infos:
            infos[name].add(pod, read(pod).needs)
    return Snapshot(
        list(infos.values()),
        {meta.name(namespace): meta.labels(namespace) for namespace in namespaces},
        volumes or no_volumes(),
        read,
    )

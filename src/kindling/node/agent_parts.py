"""What the node agent is made of: its connections, and the parts that have work of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kindling.network.policy_enforcer import PolicyEnforcer
from kindling.node.cpus.manager import CpuManager
from kindling.node.devices.manager import DeviceManager
from kindling.node.networks.attachments import PodNetworks
from kindling.node.pods import identity
from kindling.node.pods.allocations import Allocations
from kindling.node.pods.cgroup_removal import pods_with_cgroups
from kindling.node.pods.confinement import Confinement
from kindling.node.pods.cpu_quotas import CpuQuotas
from kindling.node.pods.orphans import Orphans
from kindling.node.pods.pleg import Pleg
from kindling.node.pods.pod_cgroups import PodCgroups
from kindling.node.pods.pod_workers import PodWorkers
from kindling.node.registration import NodeRegistration
from kindling.node.runtime.containerd import Containerd
from kindling.node.stats.collector import Statistics
from kindling.node.volumes.csi_agent import CsiAgent
from kindling.node.volumes.manager import VolumeManager
from kubecore.client import Client
from kubecore.json import JsonObject, get_str
from kubecore.runtime import EventRecorder, Informer


@dataclass(frozen=True)
class Connections:
    """The API server and the container runtime, and what the agent reads and reports through them."""

    client: Client
    runtime: Containerd
    recorder: EventRecorder
    services: Informer[JsonObject]
    pods: Informer[JsonObject]

    def record_event(self, pod: JsonObject, kind: str, reason: str, message: str, container: str) -> None:
        """Record an event about a pod, or about one of its containers."""
        subject = {"apiVersion": "v1", "kind": "Pod", **pod}
        where = identity.field_path(pod, container) if container else ""
        self.recorder.event(subject, "Warning" if kind == "Warning" else "Normal", reason, message, where)

    def record_event_of(self, obj: JsonObject, kind: str, reason: str, message: str) -> None:
        """Record an event about any object, which has kind and apiVersion."""
        self.recorder.event(obj, "Warning" if kind == "Warning" else "Normal", reason, message)

    def node_event(self, node: str) -> Callable[[str, str], None]:
        """What records a Warning about the node."""
        subject = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "uid": node}}
        return lambda reason, message: self.recorder.event(subject, "Warning", reason, message)


@dataclass(frozen=True)
class Parts:
    """The parts of the agent that have work of their own."""

    registration: NodeRegistration
    devices: DeviceManager
    pleg: Pleg
    pod_workers: PodWorkers
    volumes: VolumeManager
    csi: CsiAgent
    confinement: Confinement
    policies: PolicyEnforcer
    networks: PodNetworks
    statistics: Statistics
    pod_cgroups: PodCgroups
    allocations: Allocations
    cpus: CpuManager

    def orphans(self, pods: Informer[JsonObject], cgroup_root: str) -> Orphans:
        """What finds the rest of pods that are not among `pods` any more."""
        return Orphans(
            self.pleg,
            self.pod_workers,
            traces=lambda: self.volumes.uids() | pods_with_cgroups(cgroup_root),
            present=lambda: (get_str(pod, "metadata", "uid") for pod in pods.list()),
        )


@dataclass(frozen=True)
class Bounds:
    """What holds pods within what is theirs."""

    confinement: Confinement
    pod_cgroups: PodCgroups
    cpu_quotas: CpuQuotas
    cpus: CpuManager

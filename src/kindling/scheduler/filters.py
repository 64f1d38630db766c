"""Filtering: the nodes that fit a pod, and for the others kube-scheduler's reasons."""

from __future__ import annotations

from dataclasses import dataclass

from kindling.scheduler import node_rules, requests
from kindling.scheduler.csi_rules import NO_STORAGE, TOO_MANY_VOLUMES, VolumeLimits, has_storage
from kindling.scheduler.device_rules import CANNOT_ALLOCATE, DeviceRules
from kindling.scheduler.pod_rules import AffinityRules, SpreadRules
from kindling.scheduler.snapshot import NodeInfo, Snapshot
from kindling.scheduler.volume_rules import SINGLE_POD_IN_USE, VolumeRules
from kubecore.json import JsonObject
from kubecore.objects.storage_class import class_of

NODE_NAME = "node(s) didn't match the requested node name"
CORDONED = "node(s) were unschedulable"
TAINTED = "node(s) had untolerated taint(s)"
NODE_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
PORTS = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS = "Too many pods"
SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node does not fit; `may_clear`: whether deleting other pods could help."""

    reasons: tuple[str, ...]
    may_clear: bool


class Filters:
    """The filters of one pod, prepared for one snapshot."""

    def __init__(self, pod: JsonObject, snapshot: Snapshot) -> None:
        self._pod = pod
        self._requests = requests.of_pod(pod)
        self._ports = requests.host_ports(pod)
        self.volumes = VolumeRules(pod, snapshot)
        self._lookups = snapshot.volumes
        self._limits = VolumeLimits(pod, snapshot.volumes)
        self._spread = SpreadRules(pod, snapshot, "DoNotSchedule")
        self._affinity = AffinityRules(pod, snapshot)
        self.devices = DeviceRules(pod)

    def check(self, info: NodeInfo) -> Refusal | None:
        """The first rule that the node breaks, or None."""
        return (
            self._check_node(info)
            or self._check_capacity(info)
            or self._check_volumes(info)
            or self._check_pods(info)
        )

    def _check_node(self, info: NodeInfo) -> Refusal | None:
        pod = self._pod
        if info.is_unschedulable and not node_rules.tolerates_unschedulable(pod):
            return Refusal((CORDONED,), False)
        if not node_rules.names_node(pod, info.name):
            return Refusal((NODE_NAME,), False)
        if node_rules.untolerated(pod, info.taints, ("NoSchedule", "NoExecute")):
            return Refusal((TAINTED,), False)
        if not node_rules.matches_affinity(pod, info.node):
            return Refusal((NODE_AFFINITY,), False)
        return None

    def _check_capacity(self, info: NodeInfo) -> Refusal | None:
        if requests.ports_conflict(self._ports, info.ports):
            return Refusal((PORTS,), True)
        reasons = []
        resolvable = True
        allowed = info.allocatable.get(requests.PODS_RESOURCE)
        if allowed is not None and len(info.pods) + 1 > allowed:
            reasons.append(TOO_MANY_PODS)
        for name, amount in sorted(self._requests.items()):
            capacity = info.allocatable.get(name, 0)
            if amount > 0 and amount > capacity - info.requested.get(name, 0):
                reasons.append(f"Insufficient {name}")
                # A node whose allocatable is too small does not fit even without any pods.
                resolvable = resolvable and amount <= capacity
        return Refusal(tuple(reasons), resolvable) if reasons else None

    def _check_volumes(self, info: NodeInfo) -> Refusal | None:
        if self.volumes.single_in_use:
            return Refusal((SINGLE_POD_IN_USE,), True)
        if self._limits.are_exceeded(info):
            return Refusal((TOO_MANY_VOLUMES,), True)
        failure = self.volumes.failure(info) or self._lacks_storage(info)
        return Refusal((failure,), False) if failure else None

    def _lacks_storage(self, info: NodeInfo) -> str:
        binding = self.volumes.binding(info)
        for claim in binding.provision if binding is not None else ():
            found = self._lookups.storage_class(class_of(claim))
            if found is not None and not has_storage(claim, found, info.node, self._lookups):
                return NO_STORAGE
        return ""

    def _check_pods(self, info: NodeInfo) -> Refusal | None:
        if self._spread.lacks_label(info):
            return Refusal((SPREAD_LABEL,), False)
        if self._spread.skew_fails(info):
            return Refusal((SPREAD,), True)
        if self._affinity.affinity_fails(info):
            return Refusal((AFFINITY,), False)
        if self._affinity.anti_affinity_fails(info):
            return Refusal((ANTI_AFFINITY,), True)
        if self._affinity.refused_by_existing(info):
            return Refusal((EXISTING_ANTI_AFFINITY,), True)
        return Refusal((CANNOT_ALLOCATE,), False) if self.devices.needs_devices else None

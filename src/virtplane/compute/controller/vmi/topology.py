"""Topology hints: the frequency of the time stamp counter that a guest must find on every node it visits."""

from __future__ import annotations

from collections.abc import Iterable

from kubecore.json import JsonObject
from kubecore.objects import meta
from virtplane.api import labels as wellknown
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import TopologyHints
from virtplane.compute.controller.vmi.errors import SyncError

_FREQUENCY_LABEL = "cpu-timer.node.kubevirt.io/tsc-frequency"


def requirement(vmi: VirtualMachineInstance) -> str:
    """``boot`` when the guest cannot start without a known frequency, ``migration`` when it cannot migrate
    without, else empty."""
    if vmi.spec.architecture not in (None, "amd64"):
        return ""
    domain = vmi.spec.domain
    if any(item.name == "invtsc" and item.policy in ("require", "force") for item in domain.cpu.features):
        return "boot"
    hyperv = domain.features.hyperv
    if hyperv is not None and hyperv.reenlightenment is not None and hyperv.reenlightenment.is_on:
        return "migration"
    return ""


def missing_hints(
    vmi: VirtualMachineInstance, settings: ClusterConfig, nodes: Iterable[JsonObject]
) -> TopologyHints | SyncError | None:
    """The topology hints to store; None if they are stored already or not needed."""
    needed = requirement(vmi)
    if not needed or vmi.status.topology_hints not in (None, TopologyHints()):
        return None
    configured = settings.configuration.developer_configuration.minimum_cluster_tsc_frequency
    if configured is not None:
        if configured > 0:
            return TopologyHints(tsc_frequency=configured)
        return _unknown(needed, f"the configured frequency must be greater than 0, not {configured}")
    labels = (meta.labels(node) for node in nodes)
    found = [
        int(item[_FREQUENCY_LABEL])
        for item in labels
        if item.get(_FREQUENCY_LABEL, "").isdigit() and item.get(wellknown.SCHEDULABLE) == "true"
    ]
    if not found:
        return _unknown(needed, "no schedulable node exposes a tsc-frequency")
    return TopologyHints(tsc_frequency=min(found))


def _unknown(needed: str, why: str) -> SyncError | None:
    if needed != "boot":
        return None
    return SyncError("FailedGatherhingClusterTopologyHints", f"failed to gather topology hints: {why}")


def tsc_frequency(vmi: VirtualMachineInstance) -> int:
    """The TSC frequency of an instance, 0 for none."""
    hints = vmi.status.topology_hints
    return (hints.tsc_frequency or 0) if hints is not None else 0

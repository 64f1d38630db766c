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
    """The topology hints to store: the lowest frequency of the nodes, 0 where none tells its own.

    None if hints are stored already or not needed.
    """
    needed = requirement(vmi)
    if not needed or vmi.status.topology_hints is not None:
        return None
    configured = settings.configuration.developer_configuration.minimum_cluster_tsc_frequency
    if configured is not None and configured <= 0:
        if needed != "boot":
            return None
        text = (
            "failed to determine the lowest tsc frequency on the cluster:"
            f" the configured minimumClusterTSCFrequency must be greater 0, but got {configured}"
        )
        return SyncError("FailedGatherhingClusterTopologyHints", text)
    lowest = min((_frequency(node) for node in nodes if _counts(node)), default=0)
    return TopologyHints(tsc_frequency=configured or lowest)


def _counts(node: JsonObject) -> bool:
    return meta.labels(node).get(wellknown.SCHEDULABLE) == "true" and _frequency(node) > 0


def _frequency(node: JsonObject) -> int:
    text = meta.labels(node).get(_FREQUENCY_LABEL, "")
    return int(text) if text.isdigit() else 0


def tsc_frequency(vmi: VirtualMachineInstance) -> int:
    """The TSC frequency of an instance, 0 for none."""
    hints = vmi.status.topology_hints
    return (hints.tsc_frequency or 0) if hints is not None else 0

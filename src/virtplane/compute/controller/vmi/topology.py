"""Topology hints: the frequency of the time stamp counter that a guest must find on every node it visits."""

from __future__ import annotations

from collections.abc import Iterable

from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import labels as wellknown
from virtplane.api.config import ClusterConfig
from virtplane.compute.controller.vmi.errors import SyncError

_FREQUENCY_LABEL = "cpu-timer.node.kubevirt.io/tsc-frequency"


def requirement(vmi: JsonObject) -> str:
    """``boot`` when the guest cannot start without a known frequency, ``migration`` when it cannot migrate
    without, else empty."""
    if get_str(vmi, "spec", "architecture", default="amd64") != "amd64":
        return ""
    for feature in get_list(vmi, "spec", "domain", "cpu", "features"):
        if feature.get("name") == "invtsc" and feature.get("policy") in ("require", "force"):
            return "boot"
    reenlightenment = get_object(vmi, "spec", "domain", "features", "hyperv").get("reenlightenment")
    if isinstance(reenlightenment, dict) and reenlightenment.get("enabled") is not False:
        return "migration"
    return ""


def missing_hints(
    vmi: JsonObject, settings: ClusterConfig, nodes: Iterable[JsonObject]
) -> JsonObject | SyncError | None:
    """The hints to store; None when there are some already or none are needed."""
    needed = requirement(vmi)
    if not needed or get_object(vmi, "status", "topologyHints"):
        return None
    configured = settings.developer.get("minimumClusterTSCFrequency")
    if configured is not None:
        if configured > 0:
            return {"tscFrequency": configured}
        return _unknown(needed, f"the configured frequency must be greater than 0, not {configured}")
    labels = (meta.labels(node) for node in nodes)
    found = [
        int(item[_FREQUENCY_LABEL])
        for item in labels
        if item.get(_FREQUENCY_LABEL, "").isdigit() and item.get(wellknown.SCHEDULABLE) == "true"
    ]
    if not found:
        return _unknown(needed, "no schedulable node exposes a tsc-frequency")
    return {"tscFrequency": min(found)}


def _unknown(needed: str, why: str) -> SyncError | None:
    if needed != "boot":
        return None
    return SyncError("FailedGatherhingClusterTopologyHints", f"failed to gather topology hints: {why}")


def tsc_frequency(vmi: JsonObject) -> int:
    """The frequency that an instance was given, 0 for none."""
    return get_int(vmi, "status", "topologyHints", "tscFrequency")

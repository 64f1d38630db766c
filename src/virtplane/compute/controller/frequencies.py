"""Frequencies of the time stamp counter that guests can be given on a node. Pure.

A guest that needs a known frequency selects the label of its own one. A node offers its own frequency, and
others that guests have or may get: lower ones where its processor can scale the counter, else such as differ
by no more than 250 millionths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubecore.json import JsonObject
from kubecore.objects import meta
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.labels import CPU_TIMER_PREFIX, SCHEDULABLE, TSC_SCHEDULING_PREFIX
from virtplane.compute.controller.vmi.phases import is_final
from virtplane.compute.controller.vmi.topology import tsc_frequency

_FREQUENCY = f"{CPU_TIMER_PREFIX}tsc-frequency"
_SCALABLE = f"{CPU_TIMER_PREFIX}tsc-scalable"
_TOLERANCE = 250 / 1_000_000


def frequencies_of_guests(
    vmis: Iterable[VirtualMachineInstance], nodes: Iterable[JsonObject], settings: ClusterConfig
) -> set[int]:
    """The frequencies of running guests, and the one that the next guest would get."""
    in_use = {tsc_frequency(vmi) for vmi in vmis if not is_final(vmi)} - {0}
    configured = settings.configuration.developer_configuration.minimum_cluster_tsc_frequency
    if configured is not None:
        return in_use | {configured}
    labels = (meta.labels(node) for node in nodes)
    open_nodes = (item for item in labels if item.get(SCHEDULABLE) == "true")
    own = [frequency for item in open_nodes if (frequency := _own(item))]
    return in_use | ({min(own)} if own else set())


def label_changes(node: JsonObject, wanted: Iterable[int]) -> dict[str, str | None]:
    """The patch of the node's labels: labels to add, and None for labels to remove."""
    present = meta.labels(node)
    own = _own(present)
    offered = {own} | {item for item in wanted if _fits(item, own, present)} if own else set()
    deserved = {f"{TSC_SCHEDULING_PREFIX}{frequency}" for frequency in offered}
    stale = [name for name in present if name.startswith(TSC_SCHEDULING_PREFIX) and name not in deserved]
    fresh = {name: "true" for name in sorted(deserved) if present.get(name) != "true"}
    return {**fresh, **dict.fromkeys(stale)}


def _own(labels: Mapping[str, str]) -> int:
    text = labels.get(_FREQUENCY, "")
    return int(text) if text.isdigit() else 0


def _fits(frequency: int, own: int, labels: Mapping[str, str]) -> bool:
    scalable = labels.get(_SCALABLE) == "true"
    return (scalable and 0 < frequency <= own) or abs(frequency - own) <= own * _TOLERANCE

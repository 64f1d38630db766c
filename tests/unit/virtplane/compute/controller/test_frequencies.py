"""Which frequencies of the time stamp counter a node offers to guests."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import TopologyHints, VirtualMachineInstanceStatus
from virtplane.compute.controller.frequencies import frequencies_of_guests, label_changes

PREFIX = "scheduling.node.kubevirt.io/tsc-frequency-"
OWN = 2_000_000_000


def node(
    frequency: int | None = OWN, labels: dict[str, str] | None = None, *, scalable: bool = False
) -> dict[str, Any]:
    found = {"kubevirt.io/schedulable": "true", **(labels or {})}
    if frequency is not None:
        found["cpu-timer.node.kubevirt.io/tsc-frequency"] = str(frequency)
        found["cpu-timer.node.kubevirt.io/tsc-scalable"] = "true" if scalable else "false"
    return {"metadata": {"name": "n", "labels": found}}


def guest(frequency: int | None, phase: str = "Running") -> VirtualMachineInstance:
    hints = TopologyHints(tsc_frequency=frequency) if frequency is not None else None
    return VirtualMachineInstance(status=VirtualMachineInstanceStatus(phase=phase, topology_hints=hints))


def settings(**developer: Any) -> ClusterConfig:
    spec = {"configuration": {"developerConfiguration": developer}}
    return ClusterConfig({"spec": spec, "status": {"phase": "Deployed"}})


def test_guests_have_theirs_and_the_next_one_gets_the_lowest_of_the_nodes() -> None:
    guests = [guest(5), guest(7, "Succeeded"), guest(None)]
    nodes = [node(20), node(10), node(3, {"kubevirt.io/schedulable": "false"}), node(None)]
    assert frequencies_of_guests(guests, nodes, settings()) == {5, 10}
    assert frequencies_of_guests([], [node(None)], settings()) == set()


def test_a_configured_frequency_counts_instead_of_the_lowest() -> None:
    assert frequencies_of_guests([], [node(20)], settings(minimumClusterTSCFrequency=15)) == {15}


def test_a_node_offers_its_own_and_what_is_near_enough() -> None:
    near, far = OWN + 500_000, OWN + 500_001
    assert label_changes(node(), [near, far, OWN // 2]) == {
        f"{PREFIX}{OWN}": "true",
        f"{PREFIX}{near}": "true",
    }


def test_a_node_that_scales_offers_lower_ones_too() -> None:
    found = label_changes(node(scalable=True), [OWN // 2, OWN * 2])
    assert found == {f"{PREFIX}{OWN}": "true", f"{PREFIX}{OWN // 2}": "true"}


def test_labels_that_nobody_needs_any_more_go_and_right_ones_are_left_alone() -> None:
    present = {f"{PREFIX}{OWN}": "true", f"{PREFIX}1": "true"}
    assert label_changes(node(OWN, present), []) == {f"{PREFIX}1": None}
    assert label_changes(node(None, present), [OWN]) == {f"{PREFIX}{OWN}": None, f"{PREFIX}1": None}
    assert label_changes(node(None), [OWN]) == {}


@given(st.lists(st.integers(1, 2 * OWN)), st.booleans())
def test_once_patched_nothing_is_left_to_patch(wanted: list[int], scalable: bool) -> None:
    it = node(OWN, {f"{PREFIX}1234": "true"}, scalable=scalable)
    for name, value in label_changes(it, wanted).items():
        if value is None:
            del it["metadata"]["labels"][name]
        else:
            it["metadata"]["labels"][name] = value
    assert label_changes(it, wanted) == {}

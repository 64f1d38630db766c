"""The frequency of the time stamp counter that an instance is given before it has a launcher."""

from __future__ import annotations

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import TopologyHints
from virtplane.compute.controller.vmi.errors import SyncError
from virtplane.compute.controller.vmi.topology import missing_hints

_LABEL = "cpu-timer.node.kubevirt.io/tsc-frequency"
_MIGRATES: JsonObject = {"features": {"hyperv": {"reenlightenment": {}}}}
_BOOTS: JsonObject = {"cpu": {"features": [{"name": "invtsc", "policy": "require"}]}}


def _vmi(domain: JsonObject, **status: object) -> VirtualMachineInstance:
    return decode(VirtualMachineInstance, {"spec": {"domain": domain}, "status": status})


def _node(frequency: str, *, schedulable: bool = True) -> JsonObject:
    labels = {_LABEL: frequency, "kubevirt.io/schedulable": str(schedulable).lower()}
    return {"metadata": {"name": "node", "labels": labels}}


def _config(**developer: object) -> ClusterConfig:
    spec = {"configuration": {"developerConfiguration": developer}}
    return ClusterConfig({"spec": spec, "status": {"phase": "Deployed"}})


@pytest.mark.parametrize("domain", [_MIGRATES, _BOOTS])
def test_the_lowest_frequency_of_schedulable_nodes_is_taken(domain: JsonObject) -> None:
    nodes = [_node("3000"), _node("2000"), _node("1000", schedulable=False), _node("no number")]
    assert missing_hints(_vmi(domain), _config(), nodes) == TopologyHints(tsc_frequency=2000)


@pytest.mark.parametrize("domain", [_MIGRATES, _BOOTS])
def test_it_is_zero_where_no_node_tells_its_own(domain: JsonObject) -> None:
    assert missing_hints(_vmi(domain), _config(), []) == TopologyHints(tsc_frequency=0)


def test_stored_hints_stay() -> None:
    assert missing_hints(_vmi(_BOOTS, topologyHints={"tscFrequency": 0}), _config(), [_node("1")]) is None


def test_guests_that_depend_on_no_counter_get_none() -> None:
    assert missing_hints(_vmi({}), _config(), [_node("2000")]) is None


def test_the_configured_frequency_comes_first() -> None:
    config = _config(minimumClusterTSCFrequency=1500)
    assert missing_hints(_vmi(_BOOTS), config, [_node("2000")]) == TopologyHints(tsc_frequency=1500)


def test_a_configured_frequency_below_one_keeps_only_guests_from_starting_that_cannot_boot_without() -> None:
    config = _config(minimumClusterTSCFrequency=0)
    told = missing_hints(_vmi(_BOOTS), config, [_node("2000")])
    assert isinstance(told, SyncError)
    assert told.reason == "FailedGatherhingClusterTopologyHints"
    assert told.message == (
        "failed to determine the lowest tsc frequency on the cluster:"
        " the configured minimumClusterTSCFrequency must be greater 0, but got 0"
    )
    assert missing_hints(_vmi(_MIGRATES), config, [_node("2000")]) is None

"""Kinds with two spellings: events and autoscalers."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.kindling.apiserver.kinds.conftest import Kinds

from kindling.apiserver.kinds.autoscaling import conversion as autoscaling_conversion
from kindling.apiserver.kinds.events import to_core, to_events
from kubecore.json import JsonObject, deep_copy

CORE = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "e", "namespace": "ns"},
    "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p"},
    "reason": "R",
    "message": "m",
    "type": "Warning",
    "count": 3,
    "source": {"component": "kubelet", "host": "n"},
    "firstTimestamp": "2024-01-01T00:00:00Z",
    "lastTimestamp": "2024-01-01T00:01:00Z",
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}


def test_events_are_the_same_in_other_words() -> None:
    found = to_events(deep_copy(CORE))
    assert found["regarding"] == CORE["involvedObject"]
    assert (found["note"], found["deprecatedCount"]) == ("m", 3)
    assert found["deprecatedSource"] == CORE["source"]
    assert "reportingController" not in found
    assert to_core(found) == CORE


def test_both_spellings_select_events(kinds: Kinds) -> None:
    for version in ("v1", "events.k8s.io/v1"):
        fields = kinds.definition("events", version).strategy.selectable_fields(deep_copy(CORE))
        assert fields["involvedObject.name"] == fields["regarding.name"] == "p"
        assert fields["source"] == "kubelet"


def test_events_print_alike_in_both_groups(kinds: Kinds) -> None:
    core = kinds.table("events", "v1").cells(deep_copy(CORE))
    other = kinds.table("events", "events.k8s.io/v1").cells(to_events(deep_copy(CORE)))
    assert core == other
    assert core[1:7] == ["Warning", "R", "pod/p", "", "kubelet, n", "m"]
    assert core[8] == 3


def test_events_belong_beside_what_they_are_about(kinds: Kinds) -> None:
    strategy = kinds.definition("events", "v1").strategy
    obj = deep_copy(CORE)
    obj["involvedObject"]["namespace"] = "elsewhere"
    (found,) = strategy.validate(kinds.context("events"), obj)
    assert found.message() == (
        'involvedObject.namespace: Invalid value: "elsewhere": does not match event.namespace'
    )


def test_the_newer_events_say_when_and_by_whom(kinds: Kinds) -> None:
    strategy = kinds.definition("events", "events.k8s.io/v1").strategy
    obj = {
        "metadata": {"namespace": "ns"},
        "regarding": {"namespace": "ns"},
        "eventTime": "2024-01-01T00:00:00Z",
    }
    fields = [found.field for found in strategy.validate(kinds.context("events"), obj)]
    names = ["reportingController"] * 3  # it is missing, and what is there is no name
    assert fields == [*names, "reportingInstance", "action", "reason", "type"]


def autoscaler(**spec: Any) -> JsonObject:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"}
    return {
        "apiVersion": "autoscaling/v2",
        "metadata": {"name": "h"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 3, **spec},
        "status": {"currentMetrics": None, "desiredReplicas": 0, "currentReplicas": 0},
    }


CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
}
PODS = {
    "type": "Pods",
    "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


def test_version_one_says_cpu_in_a_field_and_the_rest_in_annotations() -> None:
    old = autoscaling_conversion.to_v1(autoscaler(metrics=[CPU, PODS]))
    assert old["spec"]["targetCPUUtilizationPercentage"] == 70
    assert "metrics" not in old["spec"]
    assert list(old["metadata"]["annotations"]) == ["autoscaling.alpha.kubernetes.io/metrics"]


@settings(max_examples=50)
@given(
    metrics=st.lists(st.sampled_from([PODS]), max_size=2),
    cpu=st.booleans(),
    behavior=st.one_of(st.none(), st.just({"scaleUp": {"selectPolicy": "Max"}})),
)
def test_going_to_version_one_and_back_loses_nothing(
    metrics: list[JsonObject], cpu: bool, behavior: JsonObject | None
) -> None:
    spec: JsonObject = {"metrics": ([CPU] if cpu else []) + metrics}
    if not spec["metrics"]:
        del spec["metrics"]
    if behavior is not None:
        spec["behavior"] = behavior
    original = autoscaler(**spec)
    assert autoscaling_conversion.to_v2(autoscaling_conversion.to_v1(deep_copy(original))) == original


def test_the_converter_leaves_what_has_the_version_already(kinds: Kinds) -> None:
    converter = kinds.definition("horizontalpodautoscalers", "autoscaling/v2").converter
    objects = [autoscaler(), autoscaling_conversion.to_v1(autoscaler())]
    assert converter is not None
    converted = asyncio.run(converter.convert(objects, "autoscaling/v2"))
    assert [obj["apiVersion"] for obj in converted] == ["autoscaling/v2"] * 2


def test_autoscalers_print_targets(kinds: Kinds) -> None:
    document = autoscaler(metrics=[CPU, PODS, PODS])
    table = kinds.table("horizontalpodautoscalers", "autoscaling/v2")
    row = table.cells(document)
    assert row[1] == "Deployment/w"
    assert row[2] == "cpu: <unknown>/70%, <unknown>/10 + 1 more..."
    assert table.cells(autoscaling_conversion.to_v1(document))[2] == row[2]


def test_an_event_of_the_core_group_is_judged_once_it_says_when(kinds: Kinds) -> None:
    about = {"metadata": {"namespace": "ns"}, "involvedObject": {"namespace": "ns"}}
    assert kinds.create("events", about)[1] == []
    made = {**about, "eventTime": "2024-01-01T00:00:00Z", "reportingComponent": "a b", "message": "m" * 1025}
    _, problems = kinds.create("events", {**made, "reportingInstance": "i", "action": "a"})
    assert [problem.split(":")[0] for problem in problems] == ["reportingComponent", "reason", "message"]


def test_the_newer_events_have_nothing_of_the_older_ones(kinds: Kinds) -> None:
    strategy = kinds.definition("events", "events.k8s.io/v1").strategy
    given = {
        "reportingController": "c",
        "reportingInstance": "i",
        "action": "a",
        "reason": "r",
        "type": "Normal",
    }
    event: JsonObject = {"metadata": {"namespace": "ns"}, "regarding": {"namespace": "ns"}, **given}
    event |= {"eventTime": "2024-01-01T00:00:00Z", "deprecatedCount": 1, "deprecatedSource": {"host": "h"}}
    found = [error.message() for error in strategy.validate(kinds.context("events"), event)]
    assert found == [
        'count: Invalid value: "": needs to be unset',
        'source: Invalid value: "": needs to be unset',
    ]

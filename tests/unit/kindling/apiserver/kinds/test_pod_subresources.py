"""Binding pods to nodes, and evicting them within their disruption budgets."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Kinds

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.resources import PODS


def bind(kinds: Kinds, binding: JsonObject) -> JsonObject:
    metadata = {"name": "p", **binding.get("metadata", {})}
    return kinds.act("pods", "binding", "p", {**binding, "metadata": metadata})


def stored_pod(kinds: Kinds, **fields: Any) -> None:
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a": "b"}}
    kinds.memory.put(PODS, {"metadata": metadata, "spec": {}, "status": {"phase": "Running"}, **fields})


def test_binding_writes_the_node_once(kinds: Kinds) -> None:
    stored_pod(kinds)
    assert bind(kinds, {"target": {"kind": "Node", "name": "n"}})["status"] == "Success"
    pod = kinds.memory.get(PODS, "ns", "p")
    assert pod is not None
    assert pod["spec"]["nodeName"] == "n"
    assert pod["status"]["conditions"][0]["type"] == "PodScheduled"
    with pytest.raises(errors.StatusError, match='pod p is already assigned to node "n"'):
        bind(kinds, {"target": {"name": "m"}})


def test_bindings_are_checked(kinds: Kinds) -> None:
    stored_pod(kinds, spec={"schedulingGates": [{"name": "a"}]})
    with pytest.raises(errors.StatusError, match=r"pod p has non-empty \.spec\.schedulingGates"):
        bind(kinds, {"target": {"name": "n"}})
    with pytest.raises(
        errors.StatusError, match="Precondition failed: UID in precondition: w, UID in object meta: u"
    ):
        bind(kinds, {"metadata": {"uid": "w"}, "target": {"name": "n"}})
    with pytest.raises(errors.StatusError, match=r"target\.name: Required value"):
        bind(kinds, {"target": {}})


def evict(kinds: Kinds, eviction: JsonObject | None = None) -> JsonObject:
    return kinds.act("pods", "eviction", "p", {"metadata": {"name": "p"}, **(eviction or {})})


def budget(kinds: Kinds, name: str, **status: Any) -> None:
    definition = kinds.definition("poddisruptionbudgets")
    obj = {
        "metadata": {"name": name, "namespace": "ns", "generation": 1},
        "spec": {"selector": {"matchLabels": {"a": "b"}}},
        "status": {"observedGeneration": 1, **status},
    }
    kinds.memory.put(definition.resource, obj)


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def test_pods_without_a_budget_are_evicted(kinds: Kinds) -> None:
    stored_pod(kinds)
    assert evict(kinds, {"deleteOptions": {"gracePeriodSeconds": 3}})["code"] == 201
    (deletion,) = kinds.memory.deletions
    assert (deletion.options, deletion.dry_run) == ({"gracePeriodSeconds": 3}, False)


def conditions_of_pod(kinds: Kinds) -> list[JsonObject]:
    deleted = [deletion.obj for deletion in kinds.memory.deletions]
    (pod,) = deleted or kinds.memory.list(PODS)
    status = pod["status"]
    return [{**item, "lastTransitionTime": None} for item in status.get("conditions", [])]


def test_an_evicted_pod_says_that_it_was_disrupted(kinds: Kinds) -> None:
    stored_pod(kinds)
    evict(kinds)
    assert conditions_of_pod(kinds) == [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "observedGeneration": 1,
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": None,
        }
    ]


def test_an_eviction_on_trial_marks_no_pod(kinds: Kinds) -> None:
    stored_pod(kinds)
    evict(kinds, {"deleteOptions": {"dryRun": ["All"]}})
    assert conditions_of_pod(kinds) == []
    (deletion,) = kinds.memory.deletions
    assert (deletion.options, deletion.dry_run) == (None, True)


def test_an_eviction_of_another_version_of_the_pod_leaves_it_alone(kinds: Kinds) -> None:
    stored_pod(kinds)
    with pytest.raises(errors.StatusError, match=r"ResourceVersion in the precondition \(3\)") as caught:
        evict(kinds, {"deleteOptions": {"preconditions": {"resourceVersion": "3"}}})
    assert caught.value.code == 409
    assert conditions_of_pod(kinds) == []
    assert kinds.memory.deletions == []


def test_an_eviction_of_a_pod_with_another_uid_marks_nothing(kinds: Kinds) -> None:
    stored_pod(kinds)
    evict(kinds, {"deleteOptions": {"preconditions": {"uid": "other"}}})
    assert conditions_of_pod(kinds) == []


def test_an_eviction_takes_one_disruption_off_the_budget(kinds: Kinds) -> None:
    stored_pod(kinds, status=READY)
    budget(kinds, "b", disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1)
    evict(kinds)
    (found,) = kinds.memory.list(kinds.definition("poddisruptionbudgets").resource)
    status = found["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["p"]


def test_a_budget_that_is_spent_refuses(kinds: Kinds) -> None:
    stored_pod(kinds, status=READY)
    budget(kinds, "b", disruptionsAllowed=0, currentHealthy=1, desiredHealthy=1)
    with pytest.raises(errors.StatusError) as caught:
        evict(kinds)
    assert caught.value.code == 429
    assert caught.value.details is not None
    (cause,) = caught.value.details["causes"]
    assert cause["message"] == "The disruption budget b needs 1 healthy pods and has 1 currently"
    assert kinds.memory.deletions == []


def test_two_budgets_for_one_pod_are_an_error(kinds: Kinds) -> None:
    stored_pod(kinds, status=READY)
    budget(kinds, "b")
    budget(kinds, "c")
    with pytest.raises(errors.StatusError, match="more than one PodDisruptionBudget"):
        evict(kinds)


def test_a_budget_that_nobody_has_looked_at_makes_clients_wait(kinds: Kinds) -> None:
    stored_pod(kinds, status=READY)
    budget(kinds, "b", observedGeneration=0)
    with pytest.raises(errors.StatusError) as caught:
        evict(kinds)
    assert caught.value.headers["Retry-After"] == "10"


def test_pods_that_run_nothing_cost_no_budget(kinds: Kinds) -> None:
    stored_pod(kinds, status={"phase": "Pending"})
    budget(kinds, "b", disruptionsAllowed=0)
    evict(kinds)
    assert len(kinds.memory.deletions) == 1


def test_an_eviction_names_its_own_pod(kinds: Kinds) -> None:
    stored_pod(kinds)
    with pytest.raises(errors.StatusError, match="name in URL does not match name in Eviction object"):
        evict(kinds, {"metadata": {"name": "other"}})

"""Metadata and conditions: reading never fails, writing leaves nothing empty behind."""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import REPLICA_SETS


def _pod() -> JsonObject:
    return {
        "metadata": {
            "name": "p",
            "namespace": "n",
            "uid": "u",
            "resourceVersion": "7",
            "generation": 2,
            "labels": {"a": "b"},
            "annotations": {"c": "d"},
            "finalizers": ["x/y"],
        }
    }


def test_what_is_absent_reads_as_empty() -> None:
    empty: JsonObject = {}
    assert (meta.name(empty), meta.namespace(empty), meta.uid(empty)) == ("", "", "")
    assert (meta.labels(empty), meta.finalizers(empty), meta.generation(empty)) == ({}, [], 0)
    assert meta.key(empty) == ("", "")
    assert meta.controller_of(empty) is None
    assert meta.get_condition(empty, "Ready") is None
    assert not meta.is_being_deleted(empty)


def test_what_is_there_is_read() -> None:
    pod = _pod()
    assert meta.key(pod) == ("n", "p")
    assert (meta.uid(pod), meta.resource_version(pod), meta.generation(pod)) == ("u", "7", 2)
    assert (meta.labels(pod), meta.annotations(pod)) == ({"a": "b"}, {"c": "d"})


def test_labels_and_annotations_are_set_and_removed() -> None:
    pod: JsonObject = {}
    meta.set_label(pod, "x", "1")
    meta.set_annotation(pod, "y", "2")
    assert pod == {"metadata": {"labels": {"x": "1"}, "annotations": {"y": "2"}}}
    meta.set_label(pod, "x", None)
    meta.set_annotation(pod, "none", None)
    assert pod == {"metadata": {"annotations": {"y": "2"}}}


def test_finalizers_are_added_once_and_removed_without_a_rest() -> None:
    pod = _pod()
    assert not meta.add_finalizer(pod, "x/y")
    assert meta.add_finalizer(pod, "z")
    assert meta.remove_finalizer(pod, "x/y")
    assert meta.remove_finalizer(pod, "z")
    assert not meta.remove_finalizer(pod, "z")
    assert "finalizers" not in pod["metadata"]


def test_the_controller_is_found_by_uid() -> None:
    owner: JsonObject = {"metadata": {"name": "rs", "uid": "o"}}
    pod = _pod()
    reference = meta.new_controller_ref(owner, REPLICA_SETS)
    pod["metadata"]["ownerReferences"] = [{"kind": "X", "uid": "other"}, reference]
    assert reference == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "rs",
        "uid": "o",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert meta.controller_of(pod) == reference
    assert meta.is_controlled_by(pod, owner) and meta.is_owned_by(pod, owner)
    assert not meta.is_controlled_by(pod, {"metadata": {"uid": "other"}})
    assert meta.is_owned_by(pod, {"metadata": {"uid": "other"}})


def test_a_condition_moves_in_time_only_with_its_status() -> None:
    conditions: list[JsonObject] = []
    assert meta.set_condition(conditions, "Ready", False, "Starting", "wait", now="t1")
    assert conditions == [
        {
            "type": "Ready",
            "status": "False",
            "reason": "Starting",
            "message": "wait",
            "lastTransitionTime": "t1",
        }
    ]
    assert not meta.set_condition(conditions, "Ready", False, "Starting", "wait", now="t2")
    assert meta.set_condition(conditions, "Ready", "False", "Failing", now="t3")
    assert conditions[0] == {
        "type": "Ready",
        "status": "False",
        "reason": "Failing",
        "lastTransitionTime": "t1",
    }
    assert meta.set_condition(conditions, "Ready", True, "Up", now="t4", observed_generation=3)
    assert conditions[0]["lastTransitionTime"] == "t4"
    assert conditions[0]["observedGeneration"] == 3
    assert meta.is_condition_true({"status": {"conditions": conditions}}, "Ready")


def test_conditions_are_removed() -> None:
    conditions: list[JsonObject] = [{"type": "A"}, {"type": "B"}]
    assert meta.remove_condition(conditions, "A")
    assert not meta.remove_condition(conditions, "A")
    assert conditions == [{"type": "B"}]

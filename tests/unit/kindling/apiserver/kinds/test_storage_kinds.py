"""Claims, volumes, storage classes and drivers of nodes: defaults, and what may change."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Kinds, make

from kubecore.json import JsonObject, deep_copy


def test_claims_say_their_source_in_both_fields(kinds: Kinds) -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "dataSource": {"kind": "PersistentVolumeClaim", "name": "a"},
    }
    made = make(kinds, "persistentvolumeclaims", {"spec": spec})
    expected = {"apiGroup": None, "kind": "PersistentVolumeClaim", "name": "a"}
    assert made["spec"]["dataSource"] == expected
    assert made["spec"]["dataSourceRef"] == expected


def test_sources_that_nobody_fills_are_dropped_from_the_old_field(kinds: Kinds) -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "dataSource": {"apiGroup": "example.com", "kind": "Odd", "name": "a"},
    }
    assert "dataSource" not in make(kinds, "persistentvolumeclaims", {"spec": spec})["spec"]


def claim(size: str, **spec: Any) -> JsonObject:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}


def test_bound_claims_grow_and_do_not_shrink(kinds: Kinds) -> None:
    made = make(kinds, "persistentvolumeclaims", {"spec": claim("2Gi")})
    bound = {**made, "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}}
    assert (
        kinds.update("persistentvolumeclaims", bound, {"spec": claim("3Gi", volumeMode="Filesystem")})[1]
        == []
    )
    _, problems = kinds.update(
        "persistentvolumeclaims", bound, {"spec": claim("1Gi", volumeMode="Filesystem")}
    )
    assert problems == [
        "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
    ]
    _, (problem,) = kinds.update(
        "persistentvolumeclaims", made, {"spec": claim("3Gi", volumeMode="Filesystem")}
    )
    assert problem.startswith("spec: Forbidden: spec is immutable after creation except resources.requests")


def test_the_class_of_a_claim_does_not_change_by_its_annotation(kinds: Kinds) -> None:
    beta = "volume.beta.kubernetes.io/storage-class"
    spec = claim("1Gi", storageClassName="cheap", volumeMode="Filesystem")
    made = make(kinds, "persistentvolumeclaims", {"spec": spec})
    named = {**made["metadata"], "annotations": {beta: "premium"}}
    assert kinds.update("persistentvolumeclaims", made, {"metadata": named})[1] == [
        f'metadata.annotations.{beta}: Invalid value: "premium": field is immutable'
    ]
    older = {**made, "metadata": named, "spec": claim("1Gi", volumeMode="Filesystem")}
    moved = {"metadata": made["metadata"], "spec": {**older["spec"], "storageClassName": "premium"}}
    assert kinds.update("persistentvolumeclaims", older, moved)[1] == []
    moved["spec"]["storageClassName"] = "cheap"
    assert kinds.update("persistentvolumeclaims", older, moved)[1] != []


def test_the_volume_of_a_claim_is_set_once(kinds: Kinds) -> None:
    made = make(kinds, "persistentvolumeclaims", {"spec": claim("1Gi")})
    bound, problems = kinds.update(
        "persistentvolumeclaims", made, {"spec": {**made["spec"], "volumeName": "v"}}
    )
    assert problems == []
    _, (problem,) = kinds.update(
        "persistentvolumeclaims", bound, {"spec": {**bound["spec"], "volumeName": "w"}}
    )
    assert problem.startswith("spec: Forbidden")


def test_volumes_stay_what_they_are(kinds: Kinds) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}}
    made = make(kinds, "persistentvolumes", {"spec": spec})
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["hostPath"] == {"path": "/a", "type": ""}
    _, (problem,) = kinds.update(
        "persistentvolumes", made, {"spec": {**made["spec"], "hostPath": {"path": "/b"}}}
    )
    assert problem.startswith(
        "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable"
    )


def test_a_new_phase_of_a_volume_is_dated(kinds: Kinds) -> None:
    strategy = kinds.part("persistentvolumes", "status")
    old = {
        "metadata": {},
        "spec": {},
        "status": {"phase": "Pending", "lastPhaseTransitionTime": "2024-01-01T00:00:00Z"},
    }
    new = deep_copy(old)
    new["status"]["phase"] = "Available"
    strategy.prepare_for_update(kinds.context("persistentvolumes"), new, old)
    assert new["status"]["lastPhaseTransitionTime"] > "2024-01-01T00:00:00Z"


@pytest.mark.feature("STO-16")
def test_classes_are_fixed_but_for_growth(kinds: Kinds) -> None:
    made = make(kinds, "storageclasses", {"provisioner": "a.b", "parameters": {"x": "y"}})
    assert (made["reclaimPolicy"], made["volumeBindingMode"]) == ("Delete", "Immediate")
    assert kinds.update("storageclasses", made, {"allowVolumeExpansion": True})[1] == []
    assert kinds.update("storageclasses", made, {"parameters": {}})[1] == [
        "parameters: Invalid value: null: field is immutable"
    ]


def test_changed_drivers_have_a_generation(kinds: Kinds) -> None:
    made = make(kinds, "csidrivers", {"spec": {"requiresRepublish": False}})
    assert "generation" not in made["metadata"]
    strategy = kinds.definition("csidrivers").strategy
    changed, _ = kinds.update("csidrivers", made, {"spec": {**made["spec"], "requiresRepublish": True}})
    assert strategy.generation_changed(changed, made)
    labelled = {**made, "metadata": {**made["metadata"], "labels": {"a": "b"}}}
    assert not strategy.generation_changed(labelled, made)


def test_new_attachments_name_a_volume_that_can_be(kinds: Kinds) -> None:
    spec = {"attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": "No Name"}}
    _, (problem,) = kinds.create("volumeattachments", {"spec": spec})
    assert problem.startswith('spec.source.persistentVolumeName: Invalid value: "No Name"')
    # One that is there, from an older server, can still be detached.
    made = make(kinds, "volumeattachments", {"spec": {**spec, "source": {"persistentVolumeName": "v"}}})
    old = {**made, "spec": spec}
    assert kinds.update("volumeattachments", old, {"status": {"attached": False}})[1] == []


def test_drivers_of_a_node_come_and_go_but_do_not_change(kinds: Kinds) -> None:
    driver = {"name": "a.b", "nodeID": "n", "topologyKeys": ["t"], "allocatable": {"count": 3}}
    made = make(kinds, "csinodes", {"spec": {"drivers": [driver]}})
    assert kinds.update("csinodes", made, {"spec": {"drivers": []}})[1] == []
    other = {**driver, "nodeID": "m"}
    assert kinds.update("csinodes", made, {"spec": {"drivers": [other]}})[1] == [
        'spec.drivers: Invalid value: {"Name":"a.b","NodeID":"m","TopologyKeys":["t"],"Allocatable":null}: '
        "field is immutable"
    ]

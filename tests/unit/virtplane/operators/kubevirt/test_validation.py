"""What the KubeVirt object may say."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kubecore.json import JsonObject
from kubecore.patch.mergepatch import apply_merge_patch
from virtplane.operators.kubevirt import validation

ROOT = Path(os.environ["VIRTPLANE_REFERENCE"]) if "VIRTPLANE_REFERENCE" in os.environ else None
KUBEVIRT: JsonObject = {"metadata": {"name": "kubevirt"}, "spec": {"configuration": {}}}
PREFIX = 'admission webhook "kubevirt-update-validator.kubevirt.io" denied the request: '


def test_there_is_one_object_only() -> None:
    assert validation.review_create(KUBEVIRT, 0).allowed
    answer = validation.review_create(KUBEVIRT, 1)
    assert answer.status == {"code": 400, "message": "Kubevirt is already created"}


@pytest.mark.feature("INS-108")
def test_removal_is_refused_while_machines_exist_and_the_object_says_so() -> None:
    kubevirt = {
        "spec": {"uninstallStrategy": "BlockUninstallIfWorkloadsExist"},
        "status": {"phase": "Deployed"},
    }
    assert not validation.review_delete(kubevirt, ["Virtual Machines"]).allowed
    assert validation.review_delete(kubevirt, []).allowed
    assert validation.review_delete({"status": {"phase": "Deployed"}}, ["Virtual Machines"]).allowed


def test_listing_a_graduated_gate_is_warned_of() -> None:
    new = apply_merge_patch(
        KUBEVIRT, {"spec": {"configuration": {"developerConfiguration": {"featureGates": ["NUMA"]}}}}
    )
    assert "can be safely removed" in validation.review_update(new, KUBEVIRT).warnings[0]


def test_unusable_settings_are_warned_of() -> None:
    new = apply_merge_patch(KUBEVIRT, {"spec": {"configuration": {"imagePullPolicy": "Sometimes"}}})
    assert "is ignored until this is mended" in validation.review_update(new, KUBEVIRT).warnings[0]


def test_settings_without_effect_are_warned_of_when_they_are_new() -> None:
    configuration = {"migrations": {"parallelMigrationsPerCluster": 3}, "confidentialCompute": {}}
    new = apply_merge_patch(KUBEVIRT, {"spec": {"configuration": configuration, "synchronizationPort": "1"}})
    wanted = [
        "spec.configuration.confidentialCompute: accepted, but has no effect yet",
        "spec.configuration.migrations.parallelMigrationsPerCluster: accepted, but has no effect yet",
        "spec.synchronizationPort: accepted, but has no effect yet",
    ]
    assert sorted(validation.review_update(new, KUBEVIRT).warnings) == wanted
    assert sorted(validation.review_create(new, 0).warnings) == wanted
    assert validation.review_update(new, new).warnings == ()


def test_methods_of_updates_that_do_nothing_are_warned_of_by_their_names() -> None:
    strategy = {"workloadUpdateMethods": ["LiveMigrate", "Evict"]}
    new = apply_merge_patch(KUBEVIRT, {"spec": {"workloadUpdateStrategy": strategy}})
    path = "spec.workloadUpdateStrategy.workloadUpdateMethods"
    wanted = (f"{path}: the value LiveMigrate is accepted, but has no effect yet",)
    assert validation.review_update(new, KUBEVIRT).warnings == wanted


@pytest.mark.skipif(ROOT is None, reason="VIRTPLANE_REFERENCE names no directory with recordings")
@pytest.mark.parametrize("name", ["certificates", "gates", "overhead", "tls"])
def test_refusals_equal_the_recorded_ones(name: str) -> None:
    assert ROOT
    recorded = json.loads((ROOT / f"conformance/cases-kubevirt/kubevirt/validation-{name}.json").read_text())
    for step in recorded["steps"]:
        body = step["expect"].get("body", {})
        if body.get("kind") != "Status" or not body["message"].startswith(PREFIX):
            continue
        answer = validation.review_update(apply_merge_patch(KUBEVIRT, step["body"]), KUBEVIRT)
        assert answer.status is not None, step["note"]
        assert answer.status["message"] == body["message"].removeprefix(PREFIX)
        assert answer.status["details"] == body["details"]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"workloadUpdateStrategy": {"batchEvictionInterval": "soon"}}, "time: invalid duration"),
        ({"infra": {"replicas": -1}}, "json: cannot unmarshal"),
    ],
)
def test_values_that_kubevirt_s_types_cannot_hold_are_refused(spec: JsonObject, problem: str) -> None:
    answer = validation.unreadable(apply_merge_patch(KUBEVIRT, {"spec": spec}))
    assert answer is not None and (answer.status or {})["message"].startswith(problem)
    assert validation.unreadable(KUBEVIRT) is None


def test_changed_placements_are_tried_on_the_api_server() -> None:
    placement = {"nodePlacement": {"tolerations": [{"tolerationSeconds": 1}]}}
    new = apply_merge_patch(KUBEVIRT, {"spec": {"infra": placement, "workloads": placement}})
    probes = list(validation.placement_probes(new, KUBEVIRT))
    assert [resource.kind for resource, _ in probes] == ["Deployment", "DaemonSet"]
    assert probes[0][1]["spec"]["template"]["spec"]["tolerations"] == [{"tolerationSeconds": 1}]
    assert not list(validation.placement_probes(new, new))
    assert not validation.review_update(new, KUBEVIRT, ["it fits nowhere"]).allowed


def test_deprecated_lifetimes_of_certificates_count() -> None:
    rotation = {"selfSigned": {"caRotateInterval": "1h"}}
    new = apply_merge_patch(KUBEVIRT, {"spec": {"certificateRotateStrategy": rotation}})
    answer = validation.review_update(new, KUBEVIRT)
    assert "Certificate duration cannot exceed CA" in (answer.status or {})["message"]

"""The smaller kinds: defaults, what the server keeps to itself, what may change, how they print."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Kinds

from kindling.apiserver.kinds.machinery.printing import (
    access_modes,
    format_labels,
    format_selector,
    human_duration,
    since,
)
from kubecore import errors
from kubecore.json import JsonObject, deep_copy
from kubecore.resources import PODS


def make(kinds: Kinds, plural: str, document: JsonObject) -> JsonObject:
    made, problems = kinds.create(plural, document)
    assert problems == []
    return made


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 600, "3h10m"),
        (9 * 3600, "9h"),
        (3 * 86400, "3d"),
        (3 * 86400 + 3600, "3d1h"),
        (100 * 86400, "100d"),
        (800 * 86400, "2y70d"),
        (4000 * 86400, "10y"),
    ],
)
def test_durations_are_told_in_the_units_that_matter(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


def test_ages_selectors_and_modes_have_short_forms() -> None:
    assert since("") == "<unknown>"
    assert since("nonsense") == "<unknown>"
    assert format_labels({}) == "<none>"
    assert format_selector(None) == "<none>"
    selector = {
        "matchLabels": {"b": "1"},
        "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]},
            {"key": "c", "operator": "DoesNotExist"},
            {"key": "d", "operator": "Exists"},
        ],
    }
    assert format_selector(selector) == "a in (x,y),b=1,!c,d"
    assert access_modes(["ReadWriteMany", "ReadWriteOnce"]) == "RWO,RWX"


def test_text_data_of_secrets_is_encoded(kinds: Kinds) -> None:
    made = make(kinds, "secrets", {"data": {"a": "eA=="}, "stringData": {"a": "y", "b": "z"}})
    assert made["data"] == {"a": "eQ==", "b": "eg=="}
    assert made["type"] == "Opaque"
    assert "stringData" not in made


def test_types_of_secrets_stay(kinds: Kinds) -> None:
    made = make(kinds, "secrets", {})
    assert kinds.update("secrets", made, {"type": "example.com/other"})[1] == [
        'type: Invalid value: "example.com/other": field is immutable'
    ]


@pytest.mark.parametrize("plural", ["configmaps", "secrets"])
def test_frozen_data_stays(kinds: Kinds, plural: str) -> None:
    made = make(kinds, plural, {"immutable": True, "data": {"a": "eA=="}})
    text = "field is immutable when `immutable` is set"
    assert kinds.update(plural, made, {"data": {}})[1] == [f"data: Forbidden: {text}"]
    assert kinds.update(plural, made, {"immutable": False})[1] == [f"immutable: Forbidden: {text}"]
    assert kinds.update(plural, made, {})[1] == []


def test_namespaces_are_active_labelled_and_held(kinds: Kinds) -> None:
    made = make(kinds, "namespaces", {"metadata": {"name": "blue"}, "status": {"phase": "Odd"}})
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "blue"}
    assert made["spec"]["finalizers"] == ["kubernetes"]
    assert made["status"] == {"phase": "Active"}


def test_finalizers_of_namespaces_change_by_their_own_path(kinds: Kinds) -> None:
    made = make(kinds, "namespaces", {"metadata": {"name": "blue"}})
    kept, _ = kinds.update("namespaces", made, {"spec": {}})
    assert kept["spec"]["finalizers"] == ["kubernetes"]
    finalize = kinds.part("namespaces", "finalize")
    new = {**deep_copy(made), "spec": {"finalizers": ["bare"]}}
    (found,) = finalize.validate_update(kinds.context("namespaces"), new, made)
    assert found.detail == "name is neither a standard finalizer name nor is it fully qualified"


def test_a_deleted_namespace_terminates_first_and_goes_when_nothing_holds_it(kinds: Kinds) -> None:
    strategy = kinds.definition("namespaces").strategy
    made = make(kinds, "namespaces", {"metadata": {"name": "blue"}})
    dying = strategy.before_delete(kinds.context("namespaces"), deep_copy(made))
    assert dying is not None
    assert dying["status"]["phase"] == "Terminating"
    assert dying["metadata"]["deletionTimestamp"]
    dying["spec"] = {}
    assert strategy.before_delete(kinds.context("namespaces"), dying) is None


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_the_clusters_own_namespaces_stay(kinds: Kinds, name: str) -> None:
    made = make(kinds, "namespaces", {"metadata": {"name": name}})
    with pytest.raises(errors.StatusError, match="this namespace may not be deleted"):
        kinds.definition("namespaces").strategy.before_delete(kinds.context("namespaces"), made)


def test_nodes_register_with_their_status(kinds: Kinds) -> None:
    made = make(kinds, "nodes", {"status": {"capacity": {"cpu": "2"}}})
    assert made["status"]["allocatable"] == {"cpu": "2"}


def test_ranges_and_providers_of_nodes_are_set_once(kinds: Kinds) -> None:
    made = make(kinds, "nodes", {"spec": {"podCIDRs": ["10.1.0.0/24"], "providerID": "a"}})
    _, problems = kinds.update("nodes", made, {"spec": {"podCIDRs": ["10.2.0.0/24"], "providerID": "b"}})
    assert problems == [
        'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid',
        'spec.providerID: Forbidden: node updates may not change providerID except from "" to valid',
    ]


def test_nodes_print_roles_and_readiness(kinds: Kinds) -> None:
    labels = {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "control-plane"}
    node = {
        "metadata": {"name": "n", "labels": labels},
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
            "nodeInfo": {"kubeletVersion": "v1"},
        },
    }
    row = kinds.row("nodes", node)
    assert row[1:3] == ["Ready,SchedulingDisabled", "control-plane,worker"]
    assert row[4:7] == ["v1", "192.0.2.1", "<none>"]


def test_limits_of_containers_complete_each_other(kinds: Kinds) -> None:
    item = {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}, "default": {"memory": "1Gi"}}
    (made,) = make(kinds, "limitranges", {"spec": {"limits": [item]}})["spec"]["limits"]
    assert made["default"] == {"cpu": "2", "memory": "1Gi"}
    assert made["defaultRequest"] == {"cpu": "2", "memory": "1Gi"}


def test_quotas_print_use_and_limit(kinds: Kinds) -> None:
    status = {"hard": {"pods": "4", "limits.cpu": "2"}, "used": {"pods": "1"}}
    assert kinds.row("resourcequotas", {"status": status})[1:3] == ["pods: 1/4", "limits.cpu: 0/2"]


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


def test_drivers_of_a_node_come_and_go_but_do_not_change(kinds: Kinds) -> None:
    driver = {"name": "a.b", "nodeID": "n", "topologyKeys": ["t"]}
    made = make(kinds, "csinodes", {"spec": {"drivers": [driver]}})
    assert kinds.update("csinodes", made, {"spec": {"drivers": []}})[1] == []
    other = {**driver, "nodeID": "m"}
    assert kinds.update("csinodes", made, {"spec": {"drivers": [other]}})[1] == [
        'spec.drivers: Invalid value: {"Name":"a.b","NodeID":"m","TopologyKeys":["t"],"Allocatable":null}: '
        "field is immutable"
    ]


def test_network_policies_are_about_egress_only_when_they_say_so(kinds: Kinds) -> None:
    assert make(kinds, "networkpolicies", {"spec": {}})["spec"] == {
        "podSelector": {},
        "policyTypes": ["Ingress"],
    }
    made = make(kinds, "networkpolicies", {"spec": {"egress": [{"ports": [{"port": 53}]}]}})["spec"]
    assert made["policyTypes"] == ["Ingress", "Egress"]
    assert made["egress"][0]["ports"][0]["protocol"] == "TCP"


def test_slices_count_their_labels_as_content(kinds: Kinds) -> None:
    strategy = kinds.definition("endpointslices").strategy
    old = make(kinds, "endpointslices", {"addressType": "IPv4"})
    new = deep_copy(old)
    new["metadata"]["labels"] = {"a": "b"}
    assert strategy.generation_changed(new, old)


def test_endpoints_and_slices_print_three_of_many(kinds: Kinds) -> None:
    addresses = [{"ip": f"10.0.0.{at}"} for at in range(1, 6)]
    subsets = [{"addresses": addresses, "ports": [{"port": 80}]}]
    shown = "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 2 more..."
    assert kinds.row("endpoints", {"subsets": subsets})[1] == shown
    row = kinds.row("endpointslices", {"addressType": "IPv4", "endpoints": [], "ports": []})
    assert row[1:4] == ["IPv4", "<unset>", "<unset>"]


def test_roles_are_bound_in_their_group_and_stay(kinds: Kinds) -> None:
    document = {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]}
    made = make(kinds, "rolebindings", document)
    assert made["roleRef"]["apiGroup"] == "rbac.authorization.k8s.io"
    assert made["subjects"][0]["apiGroup"] == "rbac.authorization.k8s.io"
    _, problems = kinds.update("rolebindings", made, {"roleRef": {**made["roleRef"], "name": "s"}})
    assert problems == [
        'roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"s"}: '
        "cannot change roleRef"
    ]


def test_system_priorities_are_known_and_stay(kinds: Kinds) -> None:
    document = {"metadata": {"name": "system-node-critical"}, "value": 2000001000}
    made = make(kinds, "priorityclasses", document)
    with pytest.raises(errors.StatusError, match="this is a system priority class and cannot be deleted"):
        kinds.definition("priorityclasses").strategy.before_delete(kinds.context("priorityclasses"), made)
    assert kinds.update("priorityclasses", made, {"value": 1})[1] == [
        "value: Forbidden: may not be changed in an update."
    ]


def test_requests_for_certificates_carry_the_requester(kinds: Kinds) -> None:
    strategy = kinds.definition("certificatesigningrequests").strategy
    obj = kinds.read(
        "certificatesigningrequests", {"spec": {"username": "somebody else", "signerName": "a.b/c"}}
    )
    strategy.prepare_for_create(kinds.context("certificatesigningrequests"), obj)
    assert obj["spec"]["username"] == "ann"
    assert obj["spec"]["groups"] == ["system:masters"]


def test_requests_are_approved_by_their_own_path_and_not_denied_as_well(kinds: Kinds) -> None:
    approval = kinds.part("certificatesigningrequests", "approval")
    ctx = kinds.context("certificatesigningrequests")
    old = {"metadata": {"name": "x"}, "spec": {"signerName": "a.b/c"}, "status": {}}
    new = deep_copy(old)
    new["status"]["conditions"] = [{"type": "Approved", "status": "True"}]
    approval.prepare_for_update(ctx, new, old)
    assert approval.validate_update(ctx, new, old) == []
    assert new["status"]["conditions"][0]["lastUpdateTime"]
    both = deep_copy(new)
    both["status"]["conditions"].append({"type": "Denied", "status": "True"})
    (found,) = approval.validate_update(ctx, both, new)
    assert found.detail == "Approved and Denied conditions are mutually exclusive"


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
    assert kinds.memory.deleted == [("p", {"gracePeriodSeconds": 3}, False)]


def conditions_of_pod(kinds: Kinds) -> list[JsonObject]:
    status = kinds.memory.stored["pods", "ns", "p"]["status"]
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
    assert kinds.memory.deleted == [("p", None, True)]


def test_an_eviction_of_another_version_of_the_pod_leaves_it_alone(kinds: Kinds) -> None:
    stored_pod(kinds)
    with pytest.raises(errors.StatusError, match=r"ResourceVersion in the precondition \(3\)") as caught:
        evict(kinds, {"deleteOptions": {"preconditions": {"resourceVersion": "3"}}})
    assert caught.value.code == 409
    assert conditions_of_pod(kinds) == []
    assert kinds.memory.deleted == []


def test_an_eviction_of_a_pod_with_another_uid_marks_nothing(kinds: Kinds) -> None:
    stored_pod(kinds)
    evict(kinds, {"deleteOptions": {"preconditions": {"uid": "other"}}})
    assert conditions_of_pod(kinds) == []


def test_an_eviction_takes_one_disruption_off_the_budget(kinds: Kinds) -> None:
    stored_pod(kinds, status=READY)
    budget(kinds, "b", disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1)
    evict(kinds)
    status = kinds.memory.stored["poddisruptionbudgets", "ns", "b"]["status"]
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
    assert kinds.memory.deleted == []


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
    assert kinds.memory.deleted


def test_an_eviction_names_its_own_pod(kinds: Kinds) -> None:
    stored_pod(kinds)
    with pytest.raises(errors.StatusError, match="name in URL does not match name in Eviction object"):
        evict(kinds, {"metadata": {"name": "other"}})

"""The smaller kinds: defaults, what the server keeps to itself, what may change, how they print."""

from __future__ import annotations

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Kinds, make, told

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy
from kindling.apiserver.registry import object_meta
from kubecore import errors
from kubecore.json import JsonObject, deep_copy


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


def test_the_controller_of_an_ingress_class_stays(kinds: Kinds) -> None:
    made = make(kinds, "ingressclasses", {"spec": {"controller": "a.b/c"}})
    assert kinds.update("ingressclasses", made, {"spec": {}})[1] == [
        'spec.controller: Invalid value: "": field is immutable',
        "spec.controller: Required value",
    ]


def test_the_handler_of_a_runtime_class_is_text_where_it_is_absent(kinds: Kinds) -> None:
    made = make(kinds, "runtimeclasses", {"handler": "h"})
    label, fixed = kinds.update("runtimeclasses", made, {"handler": None})[1]
    assert label.startswith('handler: Invalid value: "": a lowercase RFC 1123 label')
    assert fixed == 'handler: Invalid value: "": field is immutable'


def test_the_overhead_of_a_runtime_class_is_judged_like_limits(kinds: Kinds) -> None:
    made = make(kinds, "runtimeclasses", {"handler": "h"})
    overhead = {"overhead": {"podFixed": {"cpu": "-1"}}}
    assert kinds.update("runtimeclasses", made, overhead)[1] == [
        'overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0'
    ]


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("note", None, 'message: Invalid value: ""'),
        ("deprecatedCount", 2, "count: Invalid value: 2"),
        ("deprecatedSource", {"host": "h"}, 'source: Invalid value: {"Component":"","Host":"h"}'),
        ("eventTime", None, "eventTime: Invalid value: null"),
    ],
)
def test_what_happened_stays_and_is_quoted_as_the_server_holds_it(
    kinds: Kinds, field: str, value: object, problem: str
) -> None:
    event = {
        "metadata": {"name": "e", "namespace": "n"},
        "eventTime": "2026-01-01T00:00:00.000001Z",
        "regarding": {"namespace": "n"},
        **{"action": "a", "reason": "r", "type": "Normal", "note": "n"},
        **{"reportingController": "a.b/c", "reportingInstance": "i"},
    }
    strategy = kinds.definition("events", "events.k8s.io/v1").strategy
    old = kinds.read("events", event, "events.k8s.io/v1")
    new = kinds.read("events", {**event, field: value}, "events.k8s.io/v1")
    found = told(strategy.validate_update(kinds.context("events"), new, old))
    assert f"{problem}: field is immutable" in found


def test_api_services_of_the_server_itself_are_available(kinds: Kinds) -> None:
    spec = {"group": "x.y", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
    metadata = {"name": "v1.x.y"}
    (condition,) = make(kinds, "apiservices", {"metadata": metadata, "spec": spec})["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Available", "True", "Local")
    elsewhere = {**spec, "service": {"namespace": "n", "name": "s"}, "insecureSkipTLSVerify": True}
    assert make(kinds, "apiservices", {"metadata": metadata, "spec": elsewhere})["status"] == {}


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


@pytest.mark.parametrize(
    ("ranges", "problems"),
    [
        (["10.1.0.0/24", "fd00::/64"], []),
        (["10.1.0.0/24", "10.2.0.0/24"], ["Invalid value"]),
        (["10.1.0.0/24", "x"], ["Invalid value", "Internal error", "Invalid value"]),
    ],
)
def test_a_node_has_one_range_of_each_family(kinds: Kinds, ranges: list[str], problems: list[str]) -> None:
    found = kinds.create("nodes", {"spec": {"podCIDRs": ranges}})[1]
    assert [problem.split(": ")[1] for problem in found] == problems
    assert all(problem.startswith("spec.podCIDRs") for problem in found)


def test_features_of_a_node_are_sorted_names(kinds: Kinds) -> None:
    status = {"declaredFeatures": ["B", "A", "A", "c"]}
    found = kinds.create("nodes", {"status": status})[1]
    assert [problem.partition(": Invalid")[0] for problem in found] == [
        "status.declaredFeatures[1]",
        'status.declaredFeatures[2]: Duplicate value: "A"',
        "status.declaredFeatures[3]",
    ]
    assert 'invalid feature name "c": must start with an UpperCamelCase segment' in found[2]


def test_taints_of_a_changed_node_are_judged_twice(kinds: Kinds) -> None:
    made = make(kinds, "nodes", {})
    change = {"spec": {"taints": [{"key": "a", "effect": "Odd"}]}}
    found = [problem.partition(": ")[0] for problem in kinds.update("nodes", made, change)[1]]
    assert found == ["metadata.taints[0].effect", "metadata.taints[0].effect"]


def test_addresses_of_a_node_are_told_once(kinds: Kinds) -> None:
    made = make(kinds, "nodes", {})
    address = {"type": "InternalIP", "address": "10.0.0.1"}
    strategy = kinds.definition("nodes").strategy
    assert isinstance(strategy, BuiltinStrategy)
    new = {**made, "status": {"addresses": [address, address], "capacity": {"cpu": "-1"}}}
    assert told(strategy.validate_status(kinds.context("nodes"), new, made)) == [
        'status.capacity.cpu: Invalid value: "-1": must be greater than or equal to 0',
        'status.addresses[1]: Duplicate value: {"Type":"InternalIP","Address":"10.0.0.1"}',
    ]


def test_quotas_of_what_is_counted_are_whole_also_in_their_status(kinds: Kinds) -> None:
    hard = {"example.com/g": "1500m", "pods": "1500m", "foo": "1"}
    at = "spec.hard[{}]: Invalid value: {}".format
    assert kinds.create("resourcequotas", {"spec": {"hard": hard}})[1] == [
        at("example.com/g", '"1500m": must be an integer'),
        at("foo", '"foo": must be a standard resource for quota'),
        at("pods", '"1500m": must be an integer'),
    ]
    made = make(kinds, "resourcequotas", {})
    strategy = kinds.definition("resourcequotas").strategy
    assert isinstance(strategy, BuiltinStrategy)
    new = {**made, "status": {"used": {"pods": "-1"}}}
    assert told(strategy.validate_status(kinds.context("resourcequotas"), new, made)) == [
        'status.used[pods]: Invalid value: "-1": must be greater than or equal to 0'
    ]


def test_scopes_that_contradict_each_other_are_refused_in_selectors_too(kinds: Kinds) -> None:
    scopes = [{"scopeName": name, "operator": "Exists"} for name in ("Terminating", "NotTerminating")]
    spec = {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": scopes}}
    assert kinds.create("resourcequotas", {"spec": spec})[1] == [
        "spec.scopeSelector.matchExpressions: Invalid value: null: conflicting scopes"
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


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        (
            {"max": {"cpu": "2"}, "min": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "3"}},
            'maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000',
        ),
        (
            {"default": {"a.b/c": "2"}, "defaultRequest": {"a.b/c": "1"}},
            'defaultRequest[a.b/c]: Invalid value: "1": '
            "default value 2 must equal to defaultRequest value 1 in a.b/c",
        ),
    ],
)
def test_limits_leave_room_for_their_ratio_and_promise_devices_once(
    kinds: Kinds, limit: JsonObject, problem: str
) -> None:
    spec = {"limits": [{"type": "a.b/Other", **limit}]}
    assert kinds.create("limitranges", {"spec": spec})[1] == [f"spec.limits[0].{problem}"]


def test_who_has_an_address_stays_and_is_quoted_as_the_server_holds_it(kinds: Kinds) -> None:
    parent = {"resource": "services", "name": "s"}
    made = make(kinds, "ipaddresses", {"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": parent}})
    other = {"spec": {"parentRef": {**parent, "name": "t"}}}
    assert kinds.update("ipaddresses", made, {"spec": {"parentRef": {**parent, "group": ""}}})[1] == []
    assert kinds.update("ipaddresses", made, other)[1] == [
        'spec.parentRef: Invalid value: {"Group":"","Resource":"services","Namespace":"","Name":"t"}: '
        "field is immutable"
    ]


def test_requests_are_dealt_to_queues_by_sixty_bits(kinds: Kinds) -> None:
    def level(hand: int) -> JsonObject:
        queuing = {"queues": 1024, "handSize": hand, "queueLengthLimit": 1}
        limited = {"limitResponse": {"type": "Queue", "queuing": queuing}}
        return {"spec": {"type": "Limited", "limited": limited}}

    assert kinds.create("prioritylevelconfigurations", level(6))[1] == []
    (problem,) = kinds.create("prioritylevelconfigurations", level(7))[1]
    assert problem.endswith(
        "handSize: Invalid value: 7: required entropy bits of deckSize 1024 and handSize 7 "
        "should not be greater than 60"
    )


@pytest.mark.parametrize("plural", ["flowschemas", "prioritylevelconfigurations"])
def test_conditions_of_flows_have_types_each_once(kinds: Kinds, plural: str) -> None:
    strategy = kinds.definition(plural).strategy
    assert isinstance(strategy, BuiltinStrategy)
    new = {"status": {"conditions": [{"type": "A"}, {"type": "A"}, {"type": ""}]}}
    assert told(strategy.validate_status(kinds.context(plural), new, {})) == [
        'status.conditions[1].type: Duplicate value: "A"',
        "status.conditions[2].type: Required value: must not be empty",
    ]


@pytest.mark.parametrize(
    ("plural", "told_more"), [("runtimeclasses", False), ("servicecidrs", False), ("priorityclasses", True)]
)
def test_finalizers_of_some_kinds_are_judged_by_their_form_alone(
    kinds: Kinds, plural: str, told_more: bool
) -> None:
    named = {"metadata": {"name": "a", "finalizers": ["a"]}}
    assert bool(object_meta.finalizer_names(kinds.definition(plural), named)) == told_more

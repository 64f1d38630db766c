"""The decision for one pod, rule by rule; volumes have a module of their own."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.unit.kindling.scheduler.nodes_and_pods import NO_VICTIMS, node, place, pod, reason

from kindling.scheduler import requests
from kindling.scheduler.decision import Unschedulable, decide
from kindling.scheduler.snapshot import take
from kubecore.json import JsonObject

HOPELESS = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


def test_without_nodes_nothing_can_be_scheduled() -> None:
    assert reason(pod()) == "no nodes available to schedule pods"


def test_a_full_node_is_told_with_the_resource_that_is_short() -> None:
    message = reason(
        pod(requests={"cpu": "2"}), node(cpu="3"), pods=(pod("q", on="n1", requests={"cpu": "2"}),)
    )
    assert (
        message == f"0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, {NO_VICTIMS}"
    )


def test_a_node_that_is_too_small_when_empty_is_hopeless() -> None:
    message = reason(pod(requests={"cpu": "5", "memory": "9Gi"}), node())
    assert message == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory. "
        f"no new claims to deallocate, {HOPELESS}"
    )


def test_extended_resources_count_like_others() -> None:
    wanted = pod(requests={"devices.kubevirt.io/kvm": "1"})
    assert "1 Insufficient devices.kubevirt.io/kvm" in reason(wanted, node())
    assert place(wanted, node(), node("n2", resources={"devices.kubevirt.io/kvm": "1k"})) == "n2"


def test_pods_are_counted_and_ended_ones_are_not() -> None:
    placed = pod("q", on="n1")
    assert "1 Too many pods" in reason(pod(), node(pods="1"), pods=(placed,))
    assert place(pod(), node(pods="1"), pods=({**placed, "status": {"phase": "Succeeded"}},)) == "n1"


def test_assumed_pods_take_room_before_the_server_says_so() -> None:
    waiting = pod("q", requests={"cpu": "4"})
    assert "Insufficient cpu" in reason(
        pod(requests={"cpu": "1"}), node(), pods=(waiting,), assumed={"uid-q": "n1"}
    )


def test_init_containers_and_sidecars_are_counted_as_they_run() -> None:
    def needing(init: str, sidecar: str, main: str) -> JsonObject:
        wanted = pod(requests={"cpu": main})
        wanted["spec"]["initContainers"] = [
            {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": sidecar}}},
            {"name": "i", "resources": {"requests": {"cpu": init}}},
        ]
        return wanted

    assert place(needing("3", "1", "1"), node(cpu="4")) == "n1"
    assert "Insufficient cpu" in reason(needing("3500m", "1", "1"), node(cpu="4"))
    assert "Insufficient cpu" in reason(needing("1", "2", "3"), node(cpu="4"))


def test_cordoned_nodes_take_only_pods_that_tolerate_it() -> None:
    cordoned = node(spec={"unschedulable": True})
    assert "1 node(s) were unschedulable." in reason(pod(), cordoned)
    tolerant = pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert place(tolerant, cordoned) == "n1"


@pytest.mark.feature("INS-122", "VML-66")
def test_taints_are_told_together() -> None:
    tainted = node(spec={"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]})
    assert "1 node(s) had untolerated taint(s)." in reason(pod(), tainted)
    assert place(pod(tolerations=[{"key": "a", "value": "b", "effect": "NoSchedule"}]), tainted) == "n1"
    assert place(pod(tolerations=[{"operator": "Exists"}]), tainted) == "n1"
    assert "taint" in reason(pod(tolerations=[{"key": "a", "value": "c"}]), tainted)


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "zone", "operator": "In", "values": ["a"]}, True),
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "gpu", "operator": "DoesNotExist"}, True),
        ({"key": "cores", "operator": "Gt", "values": ["4"]}, True),
        ({"key": "cores", "operator": "Gt", "values": ["+4"]}, True),
        ({"key": "cores", "operator": "Gt", "values": ["+-4"]}, False),
        ({"key": "cores", "operator": "Gt", "values": ["²"]}, False),
        ({"key": "cores", "operator": "Lt", "values": ["9" * 5000]}, False),
        ({"key": "cores", "operator": "Lt", "values": ["4"]}, False),
        ({"key": "zone", "operator": "Gt", "values": ["4"]}, False),
    ],
)
@pytest.mark.feature("INS-121", "VML-65")
def test_node_affinity_speaks_of_labels(expression: JsonObject, fits: bool) -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    wanted, candidate = pod(affinity=affinity), node(labels={"zone": "a", "cores": "8"})
    if fits:
        assert place(wanted, candidate) == "n1"
    else:
        assert "1 node(s) didn't match Pod's node affinity/selector." in reason(wanted, candidate)


@pytest.mark.feature("INS-120", "VML-63")
def test_node_selectors_and_names_are_kept() -> None:
    assert "node affinity/selector" in reason(pod(nodeSelector={"disk": "ssd"}), node())
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    assert place(pod(affinity={"nodeAffinity": required}), node(), node("n2")) == "n2"


def test_host_ports_conflict_where_addresses_overlap() -> None:
    taken = pod("q", on="n1", ports=[{"hostPort": 80, "hostIP": "10.0.0.1"}])
    other_address = pod(ports=[{"hostPort": 80, "hostIP": "10.0.0.2"}])
    assert place(other_address, node(), pods=(taken,)) == "n1"
    assert "free ports" in reason(pod(ports=[{"hostPort": 80}]), node(), pods=(taken,))
    assert place(pod(ports=[{"hostPort": 80, "protocol": "UDP"}]), node(), pods=(taken,)) == "n1"


def pod_affinity(kind: str, key: str = "kubernetes.io/hostname", **term: Any) -> JsonObject:
    rule = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "db"}}, **term}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}


@pytest.mark.feature("VML-64")
def test_pods_go_where_their_friends_are() -> None:
    friend = pod("q", on="n2", labels={"app": "db"})
    wanted = pod(affinity=pod_affinity("podAffinity"))
    assert place(wanted, node(), node("n2"), pods=(friend,)) == "n2"
    assert "1 node(s) didn't match pod affinity rules." in reason(wanted, node())


def test_the_first_of_a_group_that_wants_its_own_kind_may_start() -> None:
    assert place(pod(labels={"app": "db"}, affinity=pod_affinity("podAffinity")), node()) == "n1"


@pytest.mark.feature("VML-64")
def test_pods_keep_away_from_others_in_both_directions() -> None:
    hermit = pod("q", on="n1", labels={"app": "db"}, affinity=pod_affinity("podAntiAffinity"))
    plain = pod("r", on="n1", labels={"app": "db"})
    wanted = pod(labels={"app": "db"}, affinity=pod_affinity("podAntiAffinity"))
    assert place(wanted, node(), node("n2"), pods=(plain,)) == "n2"
    assert "1 node(s) didn't match pod anti-affinity rules." in reason(wanted, node(), pods=(plain,))
    assert "1 node(s) didn't satisfy existing pods anti-affinity rules." in reason(
        pod(labels={"app": "db"}), node(), pods=(hermit,)
    )


def test_affinity_reaches_other_namespaces_only_on_request() -> None:
    far = pod("q", on="n1", labels={"app": "db"})
    far["metadata"]["namespace"] = "other"
    namespaces = [{"metadata": {"name": "other", "labels": {"team": "x"}}}]
    wanted = pod(affinity=pod_affinity("podAntiAffinity"))
    assert place(wanted, node(), pods=(far,), namespaces=namespaces) == "n1"
    selecting = pod(
        affinity=pod_affinity("podAntiAffinity", namespaceSelector={"matchLabels": {"team": "x"}})
    )
    assert "anti-affinity" in reason(selecting, node(), pods=(far,), namespaces=namespaces)


def test_topology_spread_keeps_the_skew_small() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "db"}},
    }
    wanted = pod(labels={"app": "db"}, topologySpreadConstraints=[constraint])
    zones = (node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b"}))
    placed = pod("q", on="n1", labels={"app": "db"})
    assert place(wanted, *zones, pods=(placed,)) == "n2"
    full = (zones[0], node("n2", labels={"zone": "b"}, pods="0"))
    message = reason(wanted, *full, pods=(placed,))
    assert "1 Too many pods, 1 node(s) didn't match pod topology spread constraints." in message
    assert "(missing required label)" in reason(wanted, node())


def test_reasons_are_counted_and_sorted() -> None:
    tainted = {"taints": [{"key": "a", "effect": "NoSchedule"}]}
    message = reason(pod(requests={"cpu": "9"}), node("n1"), node("n2"), node("n3", spec=tainted))
    assert message == (
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. "
        "no new claims to deallocate, preemption: 0/3 nodes are available: "
        "3 Preemption is not helpful for scheduling."
    )


def preempted(wanted: JsonObject, *placed: JsonObject, nodes: int = 1) -> tuple[str, set[str]]:
    result = decide(wanted, take([node(f"n{number + 1}") for number in range(nodes)], placed))
    assert isinstance(result, Unschedulable) and result.preemption is not None
    assert result.message == f"0/{nodes} nodes are available: {nodes} Insufficient cpu."
    return result.preemption.node, {victim["metadata"]["name"] for victim in result.preemption.victims}


def test_less_important_pods_make_room_and_no_more_than_needed() -> None:
    wanted = pod(requests={"cpu": "2"}, priority=1000)
    placed = [
        pod(name, on="n1", requests={"cpu": "2"}, priority=level) for name, level in (("a", 1), ("b", 5))
    ]
    assert preempted(wanted, *placed) == ("n1", {"a"})
    placed[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert NO_VICTIMS in reason(wanted, node(), pods=tuple(placed))


def test_room_is_made_where_the_least_is_lost() -> None:
    wanted = pod(requests={"cpu": "4"}, priority=1000)
    dear = pod("dear", on="n1", requests={"cpu": "4"}, priority=500)
    cheap = [pod(name, on="n2", requests={"cpu": "2"}, priority=1) for name in ("x", "y")]
    assert preempted(wanted, dear, *cheap, nodes=2) == ("n2", {"x", "y"})


def test_equals_stay_and_polite_pods_wait() -> None:
    equal = pod("q", on="n1", requests={"cpu": "4"}, priority=7)
    assert NO_VICTIMS in reason(pod(requests={"cpu": "1"}, priority=7), node(), pods=(equal,))
    polite = pod(requests={"cpu": "1"}, priority=1000, preemptionPolicy="Never")
    assert NO_VICTIMS in reason(polite, node(), pods=(equal,))


def test_the_emptier_node_is_better() -> None:
    busy = pod("q", on="n1", requests={"cpu": "3", "memory": "4Gi"})
    assert place(pod(), node(), node("n2"), pods=(busy,)) == "n2"


@pytest.mark.feature("INS-121")
def test_preferences_outweigh_room() -> None:
    preference = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    preferred = [{"weight": 10, "preference": preference}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    busy = pod("q", on="n1", requests={"cpu": "2"})
    fast = node(labels={"disk": "ssd"})
    assert place(pod(affinity=affinity), fast, node("n2"), pods=(busy,)) == "n1"


def test_soft_taints_and_preferred_anti_affinity_push_pods_away() -> None:
    soft = node(spec={"taints": [{"key": "a", "effect": "PreferNoSchedule"}]})
    assert place(pod(), soft, node("n2")) == "n2"
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
    anti = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    placed = pod("q", on="n1", labels={"app": "db"})
    assert place(pod(affinity={"podAntiAffinity": anti}), node(), node("n2"), pods=(placed,)) == "n2"


def test_a_pod_that_is_resized_takes_what_it_has_and_may_get() -> None:
    def taken(wanted: str, actual: str, reason: str = "") -> int:
        pod = {
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": wanted}}}]},
            "status": {
                "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": actual}}}],
                "conditions": [{"type": "PodResizePending", "reason": reason}] if reason else [],
            },
        }
        return requests.of_placed_pod(pod)["cpu"]

    assert [taken("1", "1"), taken("2", "1"), taken("1", "2")] == [1000, 2000, 2000]
    assert taken("2", "1", "Deferred") == 2000
    assert taken("1000", "1", "Infeasible") == 1000, "nobody may block a node by wanting too much of it"
    assert requests.of_placed_pod({"spec": {"containers": [{"name": "c"}]}}) == {}


@pytest.mark.parametrize("status", [{}, {"resourceClaimStatuses": [{"name": "other"}]}])
def test_a_pod_waits_for_the_claim_that_nobody_makes_from_its_template(status: JsonObject) -> None:
    wanted = pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    wanted["status"] = status
    assert reason(wanted, node()) == (
        '0/1 nodes are available: pod "lab/p": ResourceClaim not created yet. '
        f"still not schedulable, {HOPELESS}"
    )


@pytest.mark.parametrize(
    ("claim", "status"),
    [
        ({"name": "gpu", "resourceClaimName": "c"}, {}),
        (
            {"name": "gpu", "resourceClaimTemplateName": "t"},
            {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]},
        ),
    ],
)
def test_a_pod_with_a_device_claim_waits_because_nothing_allocates_it(
    claim: JsonObject, status: JsonObject
) -> None:
    wanted = {**pod(resourceClaims=[claim]), "status": status}
    assert reason(wanted, node()) == (
        f"0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, {HOPELESS}"
    )


def test_a_claim_that_turned_out_not_to_be_needed_holds_no_pod_back() -> None:
    wanted = pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    wanted["status"] = {"resourceClaimStatuses": [{"name": "gpu"}]}
    assert place(wanted, node()) == "n1"


def test_a_pod_with_a_device_claim_evicts_nobody() -> None:
    wanted = pod(requests={"cpu": "4"}, resourceClaims=[{"name": "g", "resourceClaimName": "c"}], priority=9)
    running = pod("q", on="n1", requests={"cpu": "4"}, priority=0)
    result = decide(wanted, take((node(),), (running,)))
    assert isinstance(result, Unschedulable)
    assert result.preemption is None


def _terms(number: int) -> list[JsonObject]:
    return [
        {"topologyKey": f"k{index}", "labelSelector": {"matchLabels": {f"a{index}": "b"}}}
        for index in range(number)
    ]


def _preferred(number: int) -> list[JsonObject]:
    return [{"weight": 1, "podAffinityTerm": term} for term in _terms(number)]


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_VERY_MANY: list[JsonObject] = [
    {"affinity": {"podAntiAffinity": {_REQUIRED: _terms(10_000)}}},
    {"affinity": {"podAffinity": {_PREFERRED: _preferred(10_000)}}},
    {"affinity": {"nodeAffinity": {_PREFERRED: [{"weight": 1, "preference": {}}] * 10_000}}},
    {"tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(10_000)]},
    {"nodeSelector": {f"k{number}": "v" for number in range(10_000)}},
    {"topologySpreadConstraints": [{"topologyKey": f"k{number}", "maxSkew": 1} for number in range(10_000)]},
]


@pytest.mark.parametrize("rules", _VERY_MANY, ids=range(len(_VERY_MANY)))
def test_a_pod_of_very_many_rules_waits_without_being_judged(rules: JsonObject) -> None:
    wanted = pod()
    wanted["spec"] |= rules
    begun = time.thread_time()
    message = reason(wanted, node(), pods=tuple(pod(f"q{number}", on="n1") for number in range(100)))
    assert "have more than 1000 values" in message
    assert time.thread_time() - begun < 0.5


@pytest.mark.parametrize("rules", _VERY_MANY[:2], ids=["required", "preferred"])
def test_rules_of_placed_pods_cost_no_other_pod_its_place(rules: JsonObject) -> None:
    placed = [pod(f"q{number}", on="n1") for number in range(20)]
    for each in placed:
        each["spec"] |= rules
    begun = time.thread_time()
    assert place(pod(), node(), pods=tuple(placed)) == "n1"
    assert time.thread_time() - begun < 0.5, "no other pod is scheduled meanwhile"


def test_a_pod_of_many_rules_is_judged_by_them() -> None:
    wanted = pod()
    wanted["spec"]["affinity"] = {"podAntiAffinity": {_REQUIRED: _terms(100)}}
    refusing = pod("q", on="n1")
    refusing["metadata"]["labels"] = {"a99": "b"}
    assert "anti-affinity rules" in reason(wanted, node(labels={"k99": "x"}), pods=(refusing,))

"""Pods: defaults, creation, the few things that may change, graceful deletion."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Kinds

from kindling.apiserver.kinds.core.pods.defaults import image_tag, pull_policy
from kindling.apiserver.kinds.core.pods.qos import qos_class
from kubecore.json import JsonObject, deep_copy


def pod(**spec: Any) -> JsonObject:
    return {"spec": {"containers": [{"name": "main", "image": "example.com/app:1"}], **spec}}


@pytest.mark.parametrize(
    ("image", "tag", "policy"),
    [
        ("app", "latest", "Always"),
        ("app:latest", "latest", "Always"),
        ("app:1", "1", "IfNotPresent"),
        ("example.com:5000/app", "latest", "Always"),
        ("example.com:5000/app:2", "2", "IfNotPresent"),
        (f"app@sha256:{'a' * 64}", "", "IfNotPresent"),
        (f"app:2@sha256:{'a' * 64}", "2", "IfNotPresent"),
        ("[::1]:5000/app", "latest", "Always"),
        ("", "", "IfNotPresent"),
        ("App", "", "IfNotPresent"),
        ("an app", "", "IfNotPresent"),
        ("a" * 256, "", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(image: str, tag: str, policy: str) -> None:
    assert image_tag(image) == tag
    assert pull_policy(image) == policy


def test_requests_default_to_limits_in_pods_but_not_in_templates(kinds: Kinds) -> None:
    requirements: JsonObject = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}
    container: JsonObject = {"name": "main", "image": "a:1", "resources": requirements}
    made = kinds.read("pods", {"spec": {"containers": [deep_copy(container)]}})
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [deep_copy(container)]}}
    made = kinds.read("deployments", {"spec": {"template": template}})
    requests = made["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "500m"}


def test_probes_hooks_ports_and_references_are_completed(kinds: Kinds) -> None:
    container = {
        "name": "main",
        "image": "a:1",
        "livenessProbe": {"httpGet": {"port": 80}},
        "readinessProbe": {"grpc": {"port": 90}},
        "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
        "ports": [{"containerPort": 80}],
        "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }
    made = kinds.read("pods", {"spec": {"containers": [container]}})["spec"]["containers"][0]
    assert made["livenessProbe"] == {
        "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert made["readinessProbe"]["grpc"] == {"port": 90, "service": ""}
    assert made["lifecycle"]["preStop"]["httpGet"] == {"path": "/", "port": 80, "scheme": "HTTP"}
    assert made["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert made["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"


def test_host_network_pods_claim_their_ports_on_the_node(kinds: Kinds) -> None:
    container = {"name": "main", "image": "a:1", "ports": [{"containerPort": 80}]}
    made = kinds.read("pods", {"spec": {"hostNetwork": True, "containers": [container]}})
    assert made["spec"]["containers"][0]["ports"][0]["hostPort"] == 80


def test_the_old_name_of_the_account_field_follows_the_new_one(kinds: Kinds) -> None:
    made = kinds.read("pods", pod(serviceAccountName="robot"))
    assert made["spec"]["serviceAccount"] == "robot"


@pytest.mark.parametrize(
    ("containers", "quality"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}], "Burstable"),
        (
            [{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1Gi"}}],
            "Guaranteed",
        ),
        (
            [{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}, {}],
            "Burstable",
        ),
        ([{"requests": {"example.com/device": "1"}}], "BestEffort"),
    ],
)
def test_the_quality_of_service_follows_from_requests_and_limits(
    containers: list[JsonObject], quality: str
) -> None:
    spec = {"containers": [{"name": str(at), "resources": part} for at, part in enumerate(containers)]}
    assert qos_class(spec) == quality


def test_resources_of_the_pod_as_a_whole_decide_alone() -> None:
    amounts = {"cpu": "1", "memory": "1Gi"}
    spec = {"resources": {"limits": amounts, "requests": amounts}, "containers": [{"name": "a"}]}
    assert qos_class(spec) == "Guaranteed"


def test_a_new_pod_is_pending_whatever_status_was_sent(kinds: Kinds) -> None:
    made, problems = kinds.create("pods", {**pod(), "status": {"phase": "Running"}})
    assert problems == []
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("annotation", "profile"),
    [
        ("runtime/default", {"type": "RuntimeDefault"}),
        ("unconfined", {"type": "Unconfined"}),
        ("localhost/mine", {"type": "Localhost", "localhostProfile": "mine"}),
        ("something", None),
    ],
)
def test_annotations_of_apparmor_become_fields(
    kinds: Kinds, annotation: str, profile: JsonObject | None
) -> None:
    metadata = {"annotations": {"container.apparmor.security.beta.kubernetes.io/main": annotation}}
    made, _ = kinds.create("pods", {**pod(), "metadata": metadata})
    found = made["spec"]["containers"][0].get("securityContext") or {}
    assert found.get("appArmorProfile") == profile


def test_a_gated_pod_says_that_it_waits(kinds: Kinds) -> None:
    made, _ = kinds.create("pods", pod(schedulingGates=[{"name": "example.com/a"}]))
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
    )


def test_a_negative_grace_period_means_the_shortest(kinds: Kinds) -> None:
    made, problems = kinds.create("pods", pod(terminationGracePeriodSeconds=-5))
    assert problems == []
    assert made["spec"]["terminationGracePeriodSeconds"] == 1


@pytest.mark.parametrize(
    ("requested", "spec", "status", "expected"),
    [
        (None, {"nodeName": "n"}, {}, 30),
        (None, {"nodeName": "n", "terminationGracePeriodSeconds": 5}, {}, 5),
        (7, {"nodeName": "n"}, {}, 7),
        (0, {"nodeName": "n"}, {}, 0),
        (-1, {"nodeName": "n"}, {}, 1),
        (30, {}, {}, 0),
        (30, {"nodeName": "n"}, {"phase": "Failed"}, 0),
        (30, {"nodeName": "n"}, {"phase": "Succeeded"}, 0),
    ],
)
def test_only_pods_that_may_run_get_time_to_end(
    kinds: Kinds, requested: int | None, spec: JsonObject, status: JsonObject, expected: int
) -> None:
    strategy = kinds.definition("pods").strategy
    obj = {"metadata": {"name": "x"}, "spec": spec, "status": status}
    assert strategy.grace_period(kinds.context("pods"), obj, requested) == expected


@pytest.fixture
def running(kinds: Kinds) -> JsonObject:
    made, problems = kinds.create("pods", pod(tolerations=[{"key": "a", "operator": "Exists"}]))
    assert problems == []
    return made


def changed(running: JsonObject, **fields: Any) -> JsonObject:
    return {"spec": {**deep_copy(running["spec"]), **fields}}


def test_the_image_of_a_pod_may_change(kinds: Kinds, running: JsonObject) -> None:
    containers = deep_copy(running)["spec"]["containers"]
    containers[0]["image"] = "example.com/app:2"
    new, problems = kinds.update("pods", running, changed(running, containers=containers))
    assert problems == []
    assert new["spec"]["containers"][0]["image"] == "example.com/app:2"


def test_nothing_else_of_a_container_may_change(kinds: Kinds, running: JsonObject) -> None:
    containers = deep_copy(running)["spec"]["containers"]
    containers[0]["command"] = ["sh"]
    _, problems = kinds.update("pods", running, changed(running, containers=containers))
    assert len(problems) == 1
    assert problems[0].startswith(
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    )
    assert '+      "command": [' in problems[0]


def test_containers_are_neither_added_nor_removed(kinds: Kinds, running: JsonObject) -> None:
    containers = [*deep_copy(running)["spec"]["containers"], {"name": "b", "image": "b:1"}]
    _, problems = kinds.update("pods", running, changed(running, containers=containers))
    assert problems == ["spec.containers: Forbidden: pod updates may not add or remove containers"]


def test_deadlines_only_get_shorter(kinds: Kinds, running: JsonObject) -> None:
    limited, problems = kinds.update("pods", running, changed(running, activeDeadlineSeconds=100))
    assert problems == []
    _, problems = kinds.update("pods", limited, changed(limited, activeDeadlineSeconds=200))
    text = "spec.activeDeadlineSeconds: Invalid value: 200: must be less than or equal to previous value"
    assert problems == [text]


def test_tolerations_are_only_added(kinds: Kinds, running: JsonObject) -> None:
    more = [*running["spec"]["tolerations"], {"key": "b", "operator": "Exists"}]
    assert kinds.update("pods", running, changed(running, tolerations=more))[1] == []
    fewer = [{"key": "b", "operator": "Exists"}]
    assert kinds.update("pods", running, changed(running, tolerations=fewer))[1] == [
        "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
    ]


def test_gated_pods_may_be_placed_more_narrowly(kinds: Kinds) -> None:
    gates = [{"name": "example.com/a"}, {"name": "example.com/b"}]
    gated, _ = kinds.create("pods", pod(schedulingGates=gates, nodeSelector={"a": "b"}))
    narrower = changed(gated, nodeSelector={"a": "b", "c": "d"}, schedulingGates=gates[:1])
    assert kinds.update("pods", gated, narrower)[1] == []
    other = changed(gated, nodeSelector={"a": "x"})
    (problem,) = kinds.update("pods", gated, other)[1]
    assert problem.endswith("only additions to spec.nodeSelector are allowed (no mutations or deletions)")
    more = changed(gated, schedulingGates=[*gates, {"name": "example.com/c"}])
    (problem,) = kinds.update("pods", gated, more)[1]
    assert problem.endswith("only deletion is allowed, but found new scheduling gate 'example.com/c'")


def through(kinds: Kinds, part: str, old: JsonObject, new: JsonObject) -> tuple[JsonObject, list[str]]:
    strategy = kinds.part("pods", part)
    ctx = kinds.context("pods")
    document = deep_copy(new)
    strategy.default(document)
    strategy.prepare_for_update(ctx, document, deep_copy(old))
    return document, [error.message() for error in strategy.validate_update(ctx, document, deep_copy(old))]


def test_ephemeral_containers_come_by_their_own_way_and_stay(kinds: Kinds, running: JsonObject) -> None:
    debugger = {"name": "debug", "image": "tools:1"}
    request = {**running, "spec": {**running["spec"], "ephemeralContainers": [debugger], "nodeName": "taken"}}
    document, problems = through(kinds, "ephemeralcontainers", running, request)
    assert problems == []
    assert "nodeName" not in document["spec"]
    _, problems = through(kinds, "ephemeralcontainers", document, running)
    assert problems == [
        'spec.ephemeralContainers: Forbidden: existing ephemeral containers "debug" may not be removed\n'
    ]


def test_resizing_keeps_the_quality_of_service(kinds: Kinds) -> None:
    amounts = {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "main", "image": "a:1", "resources": {"requests": amounts}}
    old, _ = kinds.create("pods", {"spec": {"containers": [container]}})
    bigger = deep_copy(old)
    bigger["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "200m"
    bigger["spec"]["containers"][0]["image"] = "b:2"
    document, problems = through(kinds, "resize", old, bigger)
    assert problems == []
    assert document["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "200m"
    assert document["spec"]["containers"][0]["image"] == "a:1"
    other = deep_copy(old)
    other["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    _, problems = through(kinds, "resize", old, other)
    assert problems[0].endswith("Pod QOS Class may not change as a result of resizing")


def test_the_status_path_writes_status_and_labels_alone(kinds: Kinds, running: JsonObject) -> None:
    request = deep_copy(running)
    request["spec"]["nodeName"] = "n"
    request["metadata"]["labels"] = {"a": "b"}
    request["status"] = {"phase": "Running"}
    document, problems = through(kinds, "status", running, request)
    assert problems == []
    assert "nodeName" not in document["spec"]
    assert document["metadata"]["labels"] == {"a": "b"}
    assert document["status"] == {"phase": "Running", "qosClass": "BestEffort"}


def test_containers_that_ended_for_good_do_not_run_again(kinds: Kinds) -> None:
    old, _ = kinds.create("pods", pod(restartPolicy="Never"))
    ended = deep_copy(old)
    ended["status"]["containerStatuses"] = [{"name": "main", "state": {"terminated": {"exitCode": 0}}}]
    again = deep_copy(old)
    again["status"]["containerStatuses"] = [{"name": "main", "state": {"running": {}}}]
    _, problems = through(kinds, "status", ended, again)
    assert problems == [
        "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    ]


def test_pods_are_selected_by_placement_and_state(kinds: Kinds, running: JsonObject) -> None:
    fields = kinds.definition("pods").strategy.selectable_fields(running)
    assert fields["status.phase"] == "Pending"
    assert fields["spec.nodeName"] == ""
    assert fields["spec.hostNetwork"] == "false"

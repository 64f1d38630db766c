"""Workloads: defaults, selectors, what may change, scaling, tables."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Kinds, make

from kubecore.json import JsonObject, deep_copy
from kubecore.objects.schedules import ScheduleError, check_schedule

TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "a:1"}]}}
SELECTOR = {"matchLabels": {"a": "b"}}
ONCE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "a:1"}]}}


def workload(**spec: Any) -> JsonObject:
    return {"spec": {"selector": deep_copy(SELECTOR), "template": deep_copy(TEMPLATE), **spec}}


def test_deployments_roll_by_quarters(kinds: Kinds) -> None:
    spec = make(kinds, "deployments", workload())["spec"]
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    found = (spec["replicas"], spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"])
    assert found == (1, 10, 600)
    assert make(kinds, "deployments", workload(strategy={"type": "Recreate"}))["spec"]["strategy"] == {
        "type": "Recreate"
    }


def test_stateful_sets_keep_claims_and_complete_their_templates(kinds: Kinds) -> None:
    size = {"requests": {"storage": "1Gi"}}
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": size}}
    made = make(kinds, "statefulsets", workload(volumeClaimTemplates=[claim]))
    spec = made["spec"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    (template,) = spec["volumeClaimTemplates"]
    assert (template["kind"], template["spec"]["volumeMode"]) == ("PersistentVolumeClaim", "Filesystem")
    assert template["status"] == {"phase": "Pending"}
    assert made["status"] == {"replicas": 0, "availableReplicas": 0}


def test_daemon_sets_count_generations_of_their_template(kinds: Kinds) -> None:
    key = "deprecated.daemonset.template.generation"
    made = make(kinds, "daemonsets", workload())
    assert made["metadata"]["annotations"] == {key: "1"}
    template = deep_copy(made["spec"]["template"])
    template["spec"]["containers"][0]["image"] = "a:2"
    changed, problems = kinds.update("daemonsets", made, {"spec": {**made["spec"], "template": template}})
    assert problems == []
    assert changed["metadata"]["annotations"][key] == "2"
    same, _ = kinds.update("daemonsets", changed, {})
    assert same["metadata"]["annotations"][key] == "2"


def test_replication_controllers_take_selector_and_labels_from_the_template(kinds: Kinds) -> None:
    made = make(kinds, "replicationcontrollers", {"spec": {"template": deep_copy(TEMPLATE)}})
    assert made["spec"]["selector"] == {"a": "b"}
    assert made["metadata"]["labels"] == {"a": "b"}
    assert kinds.definition("replicationcontrollers").strategy.default_propagation == "Orphan"


@pytest.mark.parametrize(
    ("spec", "messages"),
    [
        (
            {"selector": {"matchLabels": {"a": "x"}}},
            [
                'spec.template.metadata.labels: Invalid value: {"a":"b"}: '
                "`selector` does not match template `labels`"
            ],
        ),
        ({"selector": {}}, ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]),
        ({"replicas": -1}, ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]),
        (
            {"strategy": {"type": "Other"}},
            [
                'spec.strategy: Unsupported value: {"Type":"Other","RollingUpdate":null}: '
                'supported values: "Recreate", "RollingUpdate"'
            ],
        ),
        (
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}},
            [
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: "
                "may not be 0 when `maxSurge` is 0"
            ],
        ),
        (
            {"progressDeadlineSeconds": 5, "minReadySeconds": 10},
            ["spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds"],
        ),
    ],
)
def test_a_deployment_that_makes_no_sense_is_refused(
    kinds: Kinds, spec: JsonObject, messages: list[str]
) -> None:
    assert kinds.create("deployments", workload(**spec))[1] == messages


def test_pods_of_controllers_are_always_restarted(kinds: Kinds) -> None:
    template = deep_copy(TEMPLATE)
    template["spec"]["restartPolicy"] = "Never"
    message = 'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'
    for plural in ("deployments", "replicasets", "statefulsets", "daemonsets"):
        assert kinds.create(plural, workload(template=template))[1] == [message]


@pytest.mark.parametrize("plural", ["deployments", "replicasets", "daemonsets"])
def test_selectors_never_change(kinds: Kinds, plural: str) -> None:
    made = make(kinds, plural, workload())
    template = deep_copy(made["spec"]["template"])
    template["metadata"]["labels"] = {"a": "c"}
    change = {"spec": {**made["spec"], "selector": {"matchLabels": {"a": "c"}}, "template": template}}
    _, problems = kinds.update(plural, made, change)
    assert problems == ['spec.selector: Invalid value: {"matchLabels":{"a":"c"}}: field is immutable']


def test_of_a_stateful_set_only_some_fields_change(kinds: Kinds) -> None:
    made = make(kinds, "statefulsets", workload())
    fine = {"spec": {**made["spec"], "replicas": 3, "minReadySeconds": 5}}
    assert kinds.update("statefulsets", made, fine)[1] == []
    _, (problem,) = kinds.update("statefulsets", made, {"spec": {**made["spec"], "serviceName": "s"}})
    assert problem.startswith(
        "spec: Forbidden: updates to statefulset spec for fields other than 'replicas',"
    )


def test_a_new_stateful_set_names_a_service_that_there_can_be(kinds: Kinds) -> None:
    (problem,) = kinds.create("statefulsets", {"spec": {**workload()["spec"], "serviceName": "A_"}})[1]
    assert problem.startswith('spec.serviceName: Invalid value: "A_": a lowercase RFC 1123 label')
    made = make(kinds, "statefulsets", workload())
    made["spec"]["serviceName"] = "A_"
    assert kinds.update("statefulsets", made, {"spec": {**made["spec"], "replicas": 2}})[1] == []


def test_a_rolling_update_is_quoted_as_the_server_holds_it(kinds: Kinds) -> None:
    strategy = {"type": "OnDelete", "rollingUpdate": {"partition": 1}}
    assert kinds.create("statefulsets", {"spec": {**workload()["spec"], "updateStrategy": strategy}})[1] == [
        'spec.updateStrategy.rollingUpdate: Invalid value: {"Partition":1,"MaxUnavailable":null}: '
        "only allowed for updateStrategy 'RollingUpdate'"
    ]


def test_annotations_of_a_deployment_count_as_a_change(kinds: Kinds) -> None:
    strategy = kinds.definition("deployments").strategy
    old = make(kinds, "deployments", workload())
    new = deep_copy(old)
    assert not strategy.generation_changed(new, old)
    new["metadata"]["annotations"] = {"a": "b"}
    assert strategy.generation_changed(new, old)


def test_a_scale_is_not_negative(kinds: Kinds) -> None:
    paths = kinds.definition("deployments").subresources["scale"].scale
    assert paths is not None and paths.validate is not None
    (found,) = paths.validate(kinds.context("deployments"), {"spec": {"replicas": -1}})
    assert found.message() == "spec.replicas: Invalid value: -1: must be greater than or equal to 0"


def test_counts_in_a_status_fit_together(kinds: Kinds) -> None:
    strategy = kinds.part("replicasets", "status")
    obj = {"metadata": {}, "status": {"replicas": 1, "readyReplicas": 2}}
    (found,) = strategy.validate_update(kinds.context("replicasets"), obj, obj)
    assert found.message() == (
        "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"
    )


def test_counts_that_are_not_set_are_none(kinds: Kinds) -> None:
    strategy = kinds.part("statefulsets", "status")
    obj = {"metadata": {}, "status": {"replicas": -1}}
    found = [error.message() for error in strategy.validate_update(kinds.context("statefulsets"), obj, obj)]
    assert found[0] == "status.replicas: Invalid value: -1: must be greater than or equal to 0"
    assert found[1] == "status.readyReplicas: Invalid value: 0: cannot be greater than status.replicas"


def test_revisions_never_change_their_data(kinds: Kinds) -> None:
    made = make(kinds, "controllerrevisions", {"revision": 1, "data": {"a": 1}})
    assert kinds.update("controllerrevisions", made, {"data": {"a": 2}})[1] == [
        'data: Invalid value: {"a":2}: field is immutable'
    ]


def test_jobs_select_their_pods_by_the_jobs_uid(kinds: Kinds) -> None:
    made = make(kinds, "jobs", {"spec": {"template": deep_copy(ONCE)}})
    uid = made["metadata"]["uid"]
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "controller-uid": uid,
        "batch.kubernetes.io/job-name": "x",
        "job-name": "x",
    }
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert made["spec"]["template"]["metadata"]["labels"] == labels
    assert made["metadata"]["labels"] == labels


def test_jobs_have_one_completion_unless_told_otherwise(kinds: Kinds) -> None:
    plain = make(kinds, "jobs", {"spec": {"template": deep_copy(ONCE)}})["spec"]
    assert (plain["completions"], plain["parallelism"], plain["backoffLimit"]) == (1, 1, 6)
    queue = make(kinds, "jobs", {"spec": {"parallelism": 3, "template": deep_copy(ONCE)}})["spec"]
    assert "completions" not in queue


def test_a_selector_of_ones_own_needs_to_be_asked_for(kinds: Kinds) -> None:
    template = {**deep_copy(ONCE), "metadata": {"labels": {"a": "b"}}}
    spec = {"selector": deep_copy(SELECTOR), "template": template}
    (problem,) = kinds.create("jobs", {"spec": spec})[1]
    assert problem.startswith("spec.selector: Invalid value: ")
    assert problem.endswith("`selector` not auto-generated")
    assert kinds.create("jobs", {"spec": {**spec, "manualSelector": True}})[1] == []


def test_jobs_end(kinds: Kinds) -> None:
    template = deep_copy(ONCE)
    del template["spec"]["restartPolicy"]
    assert kinds.create("jobs", {"spec": {"template": template}})[1] == [
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    ]


def test_a_changed_template_of_a_job_is_quoted_as_the_server_holds_it(kinds: Kinds) -> None:
    made = make(kinds, "jobs", {"spec": {"template": deep_copy(ONCE)}})
    template = deep_copy(made["spec"]["template"])
    template["spec"] |= {"hostNetwork": True, "volumes": [{"name": "v", "emptyDir": {}}]}
    (problem,) = kinds.update("jobs", made, {"spec": {**made["spec"], "template": template}})[1]
    assert problem.startswith('spec.template.spec: Invalid value: {"Volumes":[{"Name":"v","HostPath":null,')
    assert '"EmptyDir":{"Medium":"","SizeLimit":null}' in problem
    assert '"Resources":{"Limits":null,"Requests":null,"Claims":null}' in problem
    assert '"SecurityContext":{"HostNetwork":true,"HostPID":false' in problem
    assert problem.endswith(
        '"Resources":null,"HostnameOverride":null,"SchedulingGroup":null}: field is immutable'
    )


def test_a_changed_selector_is_told_before_what_else_is_wrong(kinds: Kinds) -> None:
    made = make(
        kinds, "daemonsets", {"spec": {"selector": deep_copy(SELECTOR), "template": deep_copy(TEMPLATE)}}
    )
    other = {"spec": {**made["spec"], "selector": {"matchLabels": {"a": "c"}}}}
    first, second = kinds.update("daemonsets", made, other)[1]
    assert first.startswith("spec.selector: ") and first.endswith("field is immutable")
    assert second.startswith("spec.template.metadata.labels: ")


def test_completions_are_fixed_but_not_of_elastic_indexed_jobs(kinds: Kinds) -> None:
    made = make(kinds, "jobs", {"spec": {"template": deep_copy(ONCE)}})
    _, problems = kinds.update("jobs", made, {"spec": {**made["spec"], "completions": 5}})
    assert problems == ["spec.completions: Invalid value: 5: field is immutable"]
    elastic = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": deep_copy(ONCE)}
    made = make(kinds, "jobs", {"spec": elastic})
    change = {"spec": {**made["spec"], "completions": 3, "parallelism": 3}}
    assert kinds.update("jobs", made, change)[1] == []


def test_policies_of_a_job_stay_and_are_quoted_as_the_server_holds_them(kinds: Kinds) -> None:
    rule = {"action": "FailJob", "onPodConditions": [{"type": "a", "status": "True"}]}
    made = make(kinds, "jobs", {"spec": {"template": deep_copy(ONCE)}})
    change = {**made["spec"], "podFailurePolicy": {"rules": [rule]}, "podReplacementPolicy": "Failed"}
    assert kinds.update("jobs", made, {"spec": change})[1] == [
        'spec.podFailurePolicy: Invalid value: {"Rules":[{"Action":"FailJob","OnExitCodes":null,'
        '"OnPodConditions":[{"Type":"a","Status":"True"}]}]}: field is immutable'
    ]


@pytest.mark.parametrize(
    ("field", "value", "fixed"),
    [
        ("nodeSelector", {"a": "b"}, False),
        ("affinity", {"nodeAffinity": {}}, False),
        ("affinity", {"podAffinity": {}}, True),
        ("hostNetwork", True, True),
    ],
)
def test_a_suspended_job_may_still_be_placed(kinds: Kinds, field: str, value: object, fixed: bool) -> None:
    made = make(kinds, "jobs", {"spec": {"template": deep_copy(ONCE), "suspend": True}})
    template = deep_copy(made["spec"]["template"])
    template["spec"][field] = value
    problems = kinds.update("jobs", made, {"spec": {**made["spec"], "template": template}})[1]
    assert [problem.partition(":")[0] for problem in problems] == ["spec.template.spec"] * fixed


@pytest.mark.parametrize(("active", "fixed"), [(0, False), (1, True)])
def test_a_job_at_rest_may_be_given_other_resources(kinds: Kinds, active: int, fixed: bool) -> None:
    made = make(kinds, "jobs", {"spec": {"template": deep_copy(ONCE), "suspend": True}})
    conditions = [{"type": "Suspended", "status": "True"}]
    made["status"] = {"startTime": "2024-01-01T00:00:00Z", "conditions": conditions, "active": active}
    template = deep_copy(made["spec"]["template"])
    template["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    problems = kinds.update("jobs", made, {"spec": {**made["spec"], "template": template}})[1]
    assert [problem.partition(":")[0] for problem in problems] == ["spec.template.spec"] * fixed


@pytest.mark.parametrize(
    "schedule", ["* * * * *", "*/5 0-6,20 1 jan mon-fri", "@daily", "@every 1h30m", "0 0 ? * 0"]
)
def test_schedules_of_five_fields_and_descriptors_are_fine(schedule: str) -> None:
    check_schedule(schedule)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("every day", "expected exactly 5 fields, found 2: [every day]"),
        ("61 * * * *", "end of range (61) above maximum (59): 61"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("@never", "unrecognized descriptor: @never"),
        ("@every soon", 'failed to parse duration @every soon: time: invalid duration "soon"'),
    ],
)
def test_other_schedules_are_refused_with_the_reason(schedule: str, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        check_schedule(schedule)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schedule": ""}, "spec.schedule: Required value"),
        ({"schedule": "TZ=UTC * * * * *"}, 'spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use TZ'),
        ({"timeZone": "Mars/Base"}, 'spec.timeZone: Invalid value: "Mars/Base": unknown time zone Mars/Base'),
        ({"timeZone": ""}, 'spec.timeZone: Invalid value: "": timeZone must be nil or non-empty string'),
        ({"concurrencyPolicy": "Maybe"}, 'spec.concurrencyPolicy: Unsupported value: "Maybe"'),
        ({"startingDeadlineSeconds": -1}, "spec.startingDeadlineSeconds: Invalid value: -1"),
    ],
)
def test_a_cron_job_that_makes_no_sense_is_refused(kinds: Kinds, fields: JsonObject, message: str) -> None:
    spec = {"schedule": "@daily", "jobTemplate": {"spec": {"template": deep_copy(ONCE)}}, **fields}
    (problem,) = kinds.create("cronjobs", {"spec": spec})[1]
    assert problem.startswith(message)


def test_names_of_cron_jobs_leave_room_for_their_jobs(kinds: Kinds) -> None:
    spec = {"schedule": "@daily", "jobTemplate": {"spec": {"template": deep_copy(ONCE)}}}
    document = {"metadata": {"name": "c" * 53}, "spec": spec}
    (problem,) = kinds.create("cronjobs", document)[1]
    assert problem.endswith("must be no more than 52 characters")


@pytest.mark.parametrize(
    ("status", "spec", "shown"),
    [
        ({}, {}, ["x", "Running", "0/1", ""]),
        (
            {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1},
            {},
            ["x", "Complete", "1/1", ""],
        ),
        (
            {"conditions": [{"type": "Suspended", "status": "True"}]},
            {"completions": 3},
            ["x", "Suspended", "0/3", ""],
        ),
        (
            {"startTime": "2024-01-01T00:00:00Z", "completionTime": "2024-01-01T00:01:30Z"},
            {},
            ["x", "Running", "0/1", "90s"],
        ),
        ({}, {"parallelism": 3, "completions": None}, ["x", "Running", "0/1 of 3", ""]),
    ],
)
def test_jobs_print_their_state(kinds: Kinds, status: JsonObject, spec: JsonObject, shown: list[str]) -> None:
    document = {"spec": {"template": deep_copy(ONCE), **spec}, "status": status}
    assert kinds.row("jobs", document)[:4] == shown


def test_workloads_print_counts_and_what_they_run(kinds: Kinds) -> None:
    status = {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2}
    row = kinds.row("deployments", {**workload(replicas=3), "status": status})
    assert row == ["x", "2/3", 3, 2, "<unknown>", "main", "a:1", "a=b"]
    row = kinds.row("replicasets", {**workload(replicas=3), "status": status})
    assert row == ["x", 3, 3, 2, "<unknown>", "main", "a:1", "a=b"]
    row = kinds.row("statefulsets", {**workload(replicas=3), "status": status})
    assert row == ["x", "2/3", "<unknown>", "main", "a:1"]
    row = kinds.row("daemonsets", workload())
    assert row == ["x", 0, 0, 0, 0, 0, "<none>", "<unknown>", "main", "a:1", "a=b"]

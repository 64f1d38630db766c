"""What may be written through ``/status`` of built-in kinds."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Kinds

from kubecore.certificates import new_authority
from kubecore.json import JsonObject

_NEVER = "must be greater than or equal to 0"
_START, _LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z"


def _problems(
    kinds: Kinds, plural: str, status: JsonObject, before: JsonObject, spec: JsonObject | None = None
) -> list[str]:
    """What is wrong with a status that was another one before."""
    strategy = kinds.part(plural, "status")
    new, old = ({"metadata": {}, "spec": spec or {}, "status": each} for each in (status, before))
    return [error.message() for error in strategy.validate_update(kinds.context(plural), new, old)]


def _conditions(*types: str) -> list[JsonObject]:
    return [{"type": each, "status": "True"} for each in types]


@pytest.mark.parametrize(
    ("plural", "status", "problems"),
    [
        (
            "daemonsets",
            {"numberReady": -1, "collisionCount": -2},
            [
                f"status.numberReady: Invalid value: -1: {_NEVER}",
                f"status.collisionCount: Invalid value: -2: {_NEVER}",
            ],
        ),
        (
            "deployments",
            {"replicas": 1, "readyReplicas": 0, "availableReplicas": 1},
            ["status.availableReplicas: Invalid value: 1: cannot be greater than readyReplicas"],
        ),
        (
            "statefulsets",
            {"replicas": 1, "readyReplicas": 0, "availableReplicas": 1},
            ["status.availableReplicas: Invalid value: 1: cannot be greater than status.readyReplicas"],
        ),
        (
            "horizontalpodautoscalers",
            {"currentReplicas": -1, "desiredReplicas": 1},
            [f"status.currentReplicas: Invalid value: -1: {_NEVER}"],
        ),
        (
            "persistentvolumeclaims",
            {"capacity": {"storage": "-1"}},
            ["status.capacity[storage]: Invalid value: -1: must be a valid resource quantity"],
        ),
        (
            "nodes",
            {"capacity": {"cpu": "-1", "example.com/card": "1500m"}},
            [
                f'status.capacity.cpu: Invalid value: "-1": {_NEVER}',
                'status.capacity.example.com/card: Invalid value: "1500m": must be an integer',
            ],
        ),
    ],
)
def test_amounts_make_sense(kinds: Kinds, plural: str, status: JsonObject, problems: list[str]) -> None:
    assert _problems(kinds, plural, status, {}) == problems


@pytest.mark.parametrize("plural", ["deployments", "statefulsets", "daemonsets"])
def test_collisions_that_were_counted_stay_so(kinds: Kinds, plural: str) -> None:
    assert _problems(kinds, plural, {"collisionCount": 2}, {"collisionCount": 1}) == []
    text = "status.collisionCount: Invalid value: 0: cannot be decremented"
    assert _problems(kinds, plural, {}, {"collisionCount": 1}) == [text]


def test_labels_of_a_deployment_are_not_written_with_its_status(kinds: Kinds) -> None:
    old = {"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 1}, "status": {}}
    new = {"metadata": {"labels": {"c": "d"}}, "spec": {"replicas": 2}, "status": {"replicas": 1}}
    kinds.part("deployments", "status").prepare_for_update(kinds.context("deployments"), new, old)
    assert new == {**old, "status": {"replicas": 1}}


_COMPLETE = {
    "startTime": _START,
    "completionTime": _LATER,
    "succeeded": 1,
    "conditions": _conditions("SuccessCriteriaMet", "Complete"),
}
_FAILED = {"startTime": _START, "failed": 1, "conditions": _conditions("FailureTarget", "Failed")}


@pytest.mark.parametrize("status", [{"active": 2, "ready": 1}, _COMPLETE, _FAILED])
def test_a_job_runs_and_ends(kinds: Kinds, status: JsonObject) -> None:
    assert _problems(kinds, "jobs", status, {}) == []
    assert _problems(kinds, "jobs", status, status) == []


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"active": 1}, "status.active: Invalid value: 1: active>0 is invalid for finished job"),
        (
            {"terminating": 1},
            "status.terminating: Invalid value: 1: terminating>0 is invalid for finished job",
        ),
        (
            {"completionTime": None},
            "status.completionTime: Required value: completionTime is required for Complete jobs",
        ),
        (
            {"startTime": _LATER, "completionTime": _START},
            f'status.completionTime: Invalid value: "{_START}": '
            "completionTime cannot be set before startTime",
        ),
        ({"startTime": None}, "status.startTime: Required value: startTime is required for finished job"),
        (
            {"uncountedTerminatedPods": {"failed": ["u"]}},
            'status.uncountedTerminatedPods: Invalid value: {"failed":["u"]}: '
            "uncountedTerminatedPods needs to be empty for finished job",
        ),
        (
            {"conditions": _conditions("Complete")},
            "status.conditions: Invalid value: "
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (
            {"completedIndexes": "0"},
            'status.completedIndexes: Invalid value: "0": '
            "cannot set non-empty completedIndexes when non-indexed completion mode",
        ),
        (
            {"failedIndexes": ""},
            'status.failedIndexes: Invalid value: "": '
            "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
        ),
    ],
)
def test_what_is_said_of_a_complete_job_fits_together(
    kinds: Kinds, changed: JsonObject, problem: str
) -> None:
    assert _problems(kinds, "jobs", {**_COMPLETE, **changed}, {}) == [problem]


def test_a_job_does_not_end_both_ways(kinds: Kinds) -> None:
    both = {
        **_COMPLETE,
        "conditions": _conditions("SuccessCriteriaMet", "Complete", "FailureTarget", "Failed"),
    }
    assert _problems(kinds, "jobs", both, {}) == [
        f"status.conditions: Invalid value: cannot set {first}=True and {second}=true conditions"
        for first in ("Complete", "SuccessCriteriaMet")
        for second in ("Failed", "FailureTarget")
    ]


@pytest.mark.parametrize(
    ("status", "before", "problem"),
    [
        ({"failed": 0}, {"failed": 1}, "status.failed: Invalid value: 0: cannot decrease the failed counter"),
        (
            {"succeeded": 0},
            {"succeeded": 1},
            "status.succeeded: Invalid value: 0: cannot decrease the succeeded counter",
        ),
        (
            {"ready": 2, "active": 1},
            {},
            "status.ready: Invalid value: 2: cannot set more ready pods than active",
        ),
        (
            {"completionTime": _LATER},
            {},
            f'status.completionTime: Invalid value: "{_LATER}": '
            "cannot set completionTime when there is no Complete=True condition",
        ),
        (
            {"startTime": _LATER},
            {"startTime": _START},
            "status.startTime: Required value: startTime cannot be removed for unsuspended job",
        ),
        (
            {**_COMPLETE, "completionTime": "2026-01-01T00:00:06Z"},
            _COMPLETE,
            'status.completionTime: Invalid value: "2026-01-01T00:00:06Z": completionTime cannot be mutated',
        ),
        (
            {**_FAILED, "conditions": _conditions("FailureTarget")},
            _FAILED,
            "status.conditions: Invalid value: cannot disable the terminal Failed=True condition",
        ),
        (
            {"startTime": _START, "succeeded": 1},
            {"startTime": _START, "succeeded": 1, "conditions": _conditions("SuccessCriteriaMet")},
            "status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
        ),
    ],
)
def test_what_a_job_has_been_is_not_forgotten(
    kinds: Kinds, status: JsonObject, before: JsonObject, problem: str
) -> None:
    assert _problems(kinds, "jobs", status, before) == [problem]


def test_an_indexed_job_may_be_made_smaller(kinds: Kinds) -> None:
    spec = {"completionMode": "Indexed", "completions": 1, "parallelism": 1}
    assert _problems(kinds, "jobs", {"succeeded": 0}, {"succeeded": 1}, spec) == []


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        ({"completedIndexes": "0,2-3", "failedIndexes": "1,4"}, ""),
        (
            {"completedIndexes": "3,1"},
            'status.completedIndexes: Invalid value: "3,1": error parsing completedIndexes: '
            "non-increasing order, previous: 3, current: 1",
        ),
        (
            {"failedIndexes": "5"},
            'status.failedIndexes: Invalid value: "5": error parsing failedIndexes: too large index: "5"',
        ),
        (
            {"completedIndexes": "0,2-3", "failedIndexes": "1,3-4"},
            'status.failedIndexes: Invalid value: "1,3-4": '
            "failedIndexes and completedIndexes overlap at index: 3",
        ),
    ],
)
def test_an_index_of_a_job_ends_once(kinds: Kinds, status: JsonObject, problem: str) -> None:
    spec = {"completionMode": "Indexed", "completions": 5, "parallelism": 1, "backoffLimitPerIndex": 1}
    assert _problems(kinds, "jobs", status, {}, spec) == ([problem] if problem else [])


def test_a_job_with_a_policy_completes_by_it(kinds: Kinds) -> None:
    status = {**_COMPLETE, "conditions": _conditions("Complete")}
    text = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
    assert f"status.conditions: Invalid value: {text}" in _problems(
        kinds, "jobs", status, {}, {"successPolicy": {"rules": []}}
    )


@pytest.mark.parametrize(
    ("status", "problems"),
    [
        ({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}, []),
        (
            {"hostIP": "10.0.0.1", "hostIPs": [{"ip": "x"}]},
            [
                'status.hostIPs[0].ip: Invalid value: "x": must be equal to `hostIP`',
                'status.hostIPs[0]: Invalid value: "x": '
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ],
        ),
        (
            {"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]},
            [
                'status.hostIPs: Invalid value: [{"IP":"10.0.0.1"},{"IP":"10.0.0.2"}]: '
                "may specify no more than one IP for each IP family"
            ],
        ),
        ({"qosClass": "Burstable"}, ['status.qosClass: Invalid value: "Burstable": field is immutable']),
        ({"resourceClaimStatuses": [{"name": "card", "resourceClaimName": "made"}]}, []),
        (
            {"resourceClaimStatuses": [{"name": "other"}]},
            [
                'status.resourceClaimStatuses[0].name: Invalid value: "other": '
                "must match the name of an entry in `spec.resourceClaims`"
            ],
        ),
        (
            {"extendedResourceClaimStatus": {}},
            [
                "status.extendedResourceClaimStatus.requestMappings: Required value: "
                "at least one request mapping is required",
                "status.extendedResourceClaimStatus.resourceClaimName: Required value",
            ],
        ),
    ],
)
def test_a_pod_is_where_it_is_and_has_the_claims_that_it_asked_for(
    kinds: Kinds, status: JsonObject, problems: list[str]
) -> None:
    assert _problems(kinds, "pods", status, {}, {"resourceClaims": [{"name": "card"}]}) == problems


def _issued(text: bytes) -> dict[str, Any]:
    return {"certificate": base64.b64encode(text).decode()}


def test_what_is_issued_is_a_chain_of_certificates(kinds: Kinds) -> None:
    pair = new_authority("test", timedelta(days=1), datetime.now(UTC))
    for text in (pair.certificate, pair.certificate * 2, b"# chain\n" + pair.certificate):
        assert _problems(kinds, "certificatesigningrequests", _issued(text), {}) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"nothing", "must contain at least one CERTIFICATE PEM block"),
        (b"-----BEGIN CERTIFICATE-----\n" * 50_000, "must contain at least one CERTIFICATE PEM block"),
        (
            b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
            "found CERTIFICATE PEM block containing 0 certificates",
        ),
        (
            b"-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n",
            "x509: malformed certificate",
        ),
        (
            b"-----BEGIN CERTIFICATE-----\na: b\n\nbm9uZQ==\n-----END CERTIFICATE-----\n",
            "no PEM block headers are permitted",
        ),
        (
            b"-----BEGIN PRIVATE KEY-----\nbm9uZQ==\n-----END PRIVATE KEY-----\n",
            'only CERTIFICATE PEM blocks are allowed, found "PRIVATE KEY"',
        ),
    ],
)
def test_what_is_no_certificate_is_not_issued(kinds: Kinds, text: bytes, problem: str) -> None:
    found = _problems(kinds, "certificatesigningrequests", _issued(text), {})
    assert found == [f'status.certificate: Invalid value: "<certificate data>": {problem}']
    assert _problems(kinds, "certificatesigningrequests", _issued(text), _issued(text)) == []


def test_a_controllers_counts_fit_together(kinds: Kinds) -> None:
    less = "Invalid value: 0: cannot be greater than status.replicas"
    assert _problems(kinds, "replicationcontrollers", {"replicas": -1}, {}) == [
        f"status.replicas: Invalid value: -1: {_NEVER}",
        f"status.fullyLabeledReplicas: {less}",
        f"status.readyReplicas: {less}",
        f"status.availableReplicas: {less}",
    ]


def test_a_pod_of_a_job_ends_once(kinds: Kinds) -> None:
    status = {"uncountedTerminatedPods": {"succeeded": ["a", "a", ""], "failed": ["a"]}}
    assert _problems(kinds, "jobs", status, {}) == [
        'status.uncountedTerminatedPods.succeeded[1]: Duplicate value: "a"',
        'status.uncountedTerminatedPods.succeeded[2]: Invalid value: "": must not be empty',
        'status.uncountedTerminatedPods.failed[0]: Duplicate value: "a"',
    ]


def test_a_pod_has_one_address_of_each_family(kinds: Kinds) -> None:
    both = {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}
    assert _problems(kinds, "pods", both, {}) == []
    twice = {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}]}
    assert _problems(kinds, "pods", twice, {}) == [
        'status.podIPs: Invalid value: [{"IP":"10.0.0.1"},{"IP":"10.0.0.1"}]: '
        "may specify no more than one IP for each IP family",
        'status.podIPs[1]: Duplicate value: {"IP":"10.0.0.1"}',
    ]
    (problem,) = _problems(kinds, "pods", {"podIPs": [{"ip": "here"}]}, {})
    assert problem.startswith('status.podIPs[0]: Invalid value: "here": must be a valid IP address')

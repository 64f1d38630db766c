"""Failure and success policies of jobs, and the size of those that count by index."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Kinds, make

from kindling.apiserver.kinds.batch.indexes import count_indexes, shared_index
from kubecore.json import JsonObject

_POD = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "a:1"}]}}
_INDEXED = {"completionMode": "Indexed", "completions": 5, "parallelism": 2}


def _problems(kinds: Kinds, **spec: Any) -> list[str]:
    return kinds.create("jobs", {"spec": {"template": _POD, **spec}})[1]


def test_indexes_are_counted() -> None:
    assert count_indexes("", 5) == 0
    assert count_indexes("0,2-4", 5) == 4


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [("", "", None), ("0,2-3", "1,4", None), ("0-4", "2", 2), ("x,2", "y,2", 2), ("0,4", "1-2,4", 4)],
)
def test_lists_share_their_first_common_index(one: str, other: str, shared: int | None) -> None:
    assert shared_index(one, other, 5) == shared_index(other, one, 5) == shared


@pytest.mark.parametrize(
    ("manager", "problems"),
    [
        ("example.com/queue", []),
        ("", ["spec.managedBy: Required value"]),
        (
            "queue",
            [
                'spec.managedBy: Invalid value: "queue": must be a domain-prefixed path '
                '(such as "acme.io/foo")'
            ],
        ),
        ("a.b/" + "c" * 60, ["spec.managedBy: Too long: may not be more than 63 bytes"]),
    ],
)
def test_who_manages_a_job_has_a_domain(kinds: Kinds, manager: str, problems: list[str]) -> None:
    assert _problems(kinds, managedBy=manager) == problems


def test_the_path_of_a_manager_is_one_of_addresses(kinds: Kinds) -> None:
    (problem,) = _problems(kinds, managedBy="a.b/c d")
    assert problem.startswith('spec.managedBy: Invalid value: "c d": Invalid path (regex used for validation')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a", 'cannot convert string to integer for index: "a"'),
        ("1-b", 'cannot convert string to integer for index: "b"'),
        ("5", 'too large index: "5"'),
        (
            "1-2-3",
            'the fragment "1-2-3" violates the requirement that an index interval can have at most two ',
        ),
        ("3-3", "non-increasing order, previous: 3, current: 3"),
        ("3,1", "non-increasing order, previous: 3, current: 1"),
    ],
)
def test_a_list_of_indexes_rises(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as caught:
        count_indexes(text, 5)
    assert str(caught.value).startswith(problem)


def test_success_is_what_can_be_reached(kinds: Kinds) -> None:
    at = "spec.successPolicy.rules[0]"
    assert _problems(kinds, **_INDEXED, successPolicy={"rules": [{"succeededIndexes": "0-2"}]}) == []
    assert _problems(kinds, **_INDEXED, successPolicy={"rules": [{}]}) == [
        f"{at}: Required value: at least one of succeededCount or succeededIndexes must be specified"
    ]
    many = {"rules": [{"succeededIndexes": "0-1", "succeededCount": 6}]}
    assert _problems(kinds, **_INDEXED, successPolicy=many) == [
        f"{at}.succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified "
        "completions)",
        f"{at}.succeededCount: Invalid value: 6: must be less than or equal to 2 (the number of indexes in "
        "the specified succeededIndexes field)",
    ]
    assert _problems(kinds, successPolicy={"rules": [{"succeededCount": 1}]}) == [
        'spec.successPolicy: Invalid value: {"Rules":[{"SucceededIndexes":null,"SucceededCount":1}]}: '
        "requires indexed completion mode"
    ]


def test_a_failure_is_told_by_its_codes_in_order_or_by_conditions(kinds: Kinds) -> None:
    rule: JsonObject = {"onExitCodes": {"values": [3, 1, 3]}}
    at = "spec.podFailurePolicy.rules[0]"
    assert _problems(kinds, podFailurePolicy={"rules": [rule]}) == [
        f'{at}.action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]',
        f'{at}.onExitCodes.operator: Required value: valid values: ["In" "NotIn"]',
        f"{at}.onExitCodes.values[2]: Duplicate value: 3",
        f"{at}.onExitCodes.values: Invalid value: [3,1,3]: must be ordered",
    ]
    rule = {"action": "Ignore", "onPodConditions": [{"type": "Gone", "status": "Maybe"}]}
    assert _problems(kinds, podFailurePolicy={"rules": [rule]}) == [
        f'{at}.onPodConditions[0].status: Unsupported value: "Maybe": '
        'supported values: "False", "True", "Unknown"'
    ]


def test_jobs_that_count_by_index_have_a_limit(kinds: Kinds) -> None:
    assert _problems(kinds, **_INDEXED, backoffLimitPerIndex=1, maxFailedIndexes=6) == [
        "spec.maxFailedIndexes: Invalid value: 6: must be less than or equal to completions"
    ]
    many = {**_INDEXED, "completions": 200_000, "parallelism": 20_000, "backoffLimitPerIndex": 1}
    assert _problems(kinds, **many) == [
        "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000",
        "spec.parallelism: Invalid value: 20000: must be less than or equal to 10000 when completions are "
        "above 100000 and used with backoff limit per index",
    ]


def test_completions_of_an_indexed_job_follow_its_parallelism(kinds: Kinds) -> None:
    made = make(kinds, "jobs", {"spec": {"template": _POD, **_INDEXED}})
    assert kinds.update("jobs", made, {"spec": {**made["spec"], "completions": 3}})[1] == [
        "spec.completions: Invalid value: 3: can only be modified in tandem with spec.parallelism"
    ]


def test_a_schedule_without_time_zone_is_judged_with_one(kinds: Kinds) -> None:
    spec = {"schedule": "TZ=UTC * * * *", "jobTemplate": {"spec": {"template": _POD}}}
    first, second = kinds.create("cronjobs", {"spec": spec})[1]
    assert first.startswith('spec.schedule: Invalid value: "TZ=UTC * * * *": expected exactly 5 fields')
    assert second.endswith("cannot use TZ or CRON_TZ in schedule, use timeZone field instead")

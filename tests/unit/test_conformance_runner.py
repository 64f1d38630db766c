"""How the replay of recorded cases counts, and what it holds against the floor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.replay_recorded import KNOWN_FAILURES, Outcome, count, judge, report, worth_repeating


def test_results_are_counted_and_the_first_difference_is_kept() -> None:
    failure = {"step": "step 1", "path": "$.a", "expected": 1, "got": 2}
    results: list[dict[str, Any]] = [
        {"name": "area/good", "failures": []},
        {"name": "area/bad", "failures": [failure, {**failure, "step": "step 2"}]},
    ]
    outcome = count(results, "FAIL area/bad: …\n1 passed, 1 failed, 7 skipped\n")
    assert outcome.summary == "1 passed, 1 failed, 7 skipped"
    assert outcome.failures == {"area/bad": "step 1: $.a: expected 1, got 2"}


def test_a_set_below_its_floor_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome(passed=9, failures={"area/bad": "x"}, late=["area/slow"])
    assert judge("kubernetes", outcome, 9, partial=False)
    assert not judge("kubernetes", outcome, 10, partial=False)
    assert judge("kubernetes", outcome, 10, partial=True)
    report("kubernetes", outcome)
    printed = capsys.readouterr().out
    assert "passed on the second attempt: area/slow" in printed
    assert printed.endswith("kubernetes: 9 passed, 1 failed, 0 skipped\n")


def test_a_failure_is_tried_again_unless_its_reason_is_known() -> None:
    outcome = Outcome(failures={"area/late": "x", "area/known": "x"})
    assert worth_repeating(outcome, ["area/known", "area/other"]) == ["area/late"]


def test_the_page_of_the_replay_says_why_known_failures_fail() -> None:
    page = (Path(__file__).parents[2] / "docs/conformance.md").read_text()
    names = json.loads(KNOWN_FAILURES.read_text())
    assert [name for name in names if f"`{name}`" not in page] == []

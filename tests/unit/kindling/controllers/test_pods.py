"""Which of several pods go first."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kindling.controllers.pods import deletion_rank

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _rank(cost: str | None) -> tuple[object, ...]:
    notes = {} if cost is None else {"controller.kubernetes.io/pod-deletion-cost": cost}
    return deletion_rank({"metadata": {"annotations": notes}}, 0, _NOW)


def test_a_pod_that_costs_less_goes_first() -> None:
    assert _rank("-2147483648") < _rank("-1") < _rank(None) < _rank("1") < _rank("2147483647")


@pytest.mark.parametrize("cost", ["", "+1", "007", "\u00b2", "--5", "1.0", "2147483648", "9" * 5000])
def test_what_is_no_number_costs_nothing(cost: str) -> None:
    assert _rank(cost) == _rank(None)

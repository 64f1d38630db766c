"""Conditions of the objects that controllers look after."""

from __future__ import annotations

from virtplane.cluster.conditions import LONGEST_MESSAGE, new_condition


def test_a_message_is_no_longer_than_kubernetes_lets_conditions_have() -> None:
    condition = new_condition("Failure", "True", "FailedCreate", "invalid value: " + "x" * 1_000_000)
    assert len(condition["message"]) == LONGEST_MESSAGE
    assert condition["message"].startswith("invalid value: xxx")

"""How fast and how far an autoscaler may change replicas."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kindling.controllers.workloads.autoscaling_limits import Decision, History, Moment, decide
from kubecore.json import JsonObject

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _ago(seconds: float, replicas: int) -> Moment:
    return Moment(NOW - timedelta(seconds=seconds), replicas)


def _decide(desired: int, current: int, history: History | None = None, **spec: object) -> Decision:
    limits: JsonObject = {"minReplicas": 1, "maxReplicas": 100, **spec}
    return decide(desired, current, limits, history or History(), NOW)


def _said(decision: Decision) -> tuple[int, str, str]:
    return decision.replicas, decision.able.reason, decision.limited.reason


def test_what_is_within_all_limits_is_taken() -> None:
    assert _said(_decide(6, 4)) == (6, "ReadyForNewScale", "DesiredWithinRange")
    assert _said(_decide(4, 4)) == (4, "ReadyForNewScale", "DesiredWithinRange")


def test_four_pods_or_twice_as_many_are_added_in_a_quarter_of_a_minute() -> None:
    assert _said(_decide(50, 2)) == (6, "ReadyForNewScale", "ScaleUpLimit")
    assert _said(_decide(50, 10)) == (20, "ReadyForNewScale", "ScaleUpLimit")
    lately = History(added=(_ago(10, 5),))
    assert _said(_decide(50, 10, lately)) == (10, "ReadyForNewScale", "ScaleUpLimit")
    assert _decide(50, 10, History(added=(_ago(20, 5),))).replicas == 20


def test_the_bounds_of_the_spec_hold() -> None:
    assert _said(_decide(9, 4, maxReplicas=7)) == (7, "ReadyForNewScale", "TooManyReplicas")
    old = History(wanted=(_ago(400, 9),))
    assert _said(_decide(1, 9, old, minReplicas=3)) == (3, "ReadyForNewScale", "TooFewReplicas")


def test_replicas_go_once_nothing_has_asked_for_them_for_five_minutes() -> None:
    assert _said(_decide(2, 8)) == (8, "ScaleDownStabilized", "DesiredWithinRange")
    lately = History(wanted=(_ago(299, 5), _ago(301, 8)))
    assert _said(_decide(2, 8, lately)) == (5, "ScaleDownStabilized", "DesiredWithinRange")
    assert _said(_decide(2, 8, History(wanted=(_ago(301, 8),)))) == (
        2,
        "ReadyForNewScale",
        "DesiredWithinRange",
    )


def test_the_spec_may_ask_for_more_patience() -> None:
    slow: JsonObject = {"scaleUp": {"stabilizationWindowSeconds": 60, "policies": []}}
    slow["scaleUp"]["policies"] = [{"type": "Pods", "value": 10, "periodSeconds": 60}]
    lately = History(wanted=(_ago(30, 5), _ago(90, 4)))
    assert _said(_decide(9, 4, lately, behavior=slow)) == (5, "ScaleUpStabilized", "DesiredWithinRange")


def test_policies_are_chosen_between() -> None:
    policies = [
        {"type": "Pods", "value": 1, "periodSeconds": 60},
        {"type": "Percent", "value": 50, "periodSeconds": 60},
    ]
    old = History(wanted=(_ago(400, 10),))

    def down(select: str) -> int:
        rules = {"scaleDown": {"selectPolicy": select, "policies": policies}}
        return _decide(1, 10, old, behavior=rules).replicas

    assert (down("Max"), down("Min"), down("Disabled")) == (5, 9, 10)
    rules = {"scaleUp": {"selectPolicy": "Min", "policies": policies}}
    assert _decide(30, 10, behavior=rules).replicas == 11


def test_only_the_last_hour_is_remembered() -> None:
    history = History(wanted=(_ago(4000, 7), _ago(100, 3)), added=(_ago(4000, 1),))
    kept = _decide(4, 4, history).history
    assert [each.replicas for each in kept.wanted] == [3, 4]
    assert kept.added == ()

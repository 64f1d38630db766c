"""Conditions that say when they were last looked at."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.operators.kit.heartbeats import condition, find, with_states, without_heartbeats

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
READY = (True, False, False)


def ready(status: JsonObject, now: str) -> JsonObject:
    return with_states(status, READY, now, "Available", "Complete", "it works")


def test_the_named_condition_alone_says_why() -> None:
    status = ready({"phase": "x"}, NOW)
    assert status["phase"] == "x"
    times = {"lastHeartbeatTime": NOW, "lastTransitionTime": NOW}
    assert status["conditions"] == [
        {"type": "Available", "status": "True", **times, "reason": "Complete", "message": "it works"},
        {"type": "Progressing", "status": "False", **times},
        {"type": "Degraded", "status": "False", **times},
    ]


def test_a_condition_that_stays_keeps_its_transition() -> None:
    after = with_states(ready({}, NOW), (True, False, True), LATER, "Degraded", "Broken", "it does not work")
    assert find(after, "Available")["lastTransitionTime"] == NOW
    assert find(after, "Available")["lastHeartbeatTime"] == LATER
    assert find(after, "Degraded")["lastTransitionTime"] == LATER


def test_conditions_of_others_stay_as_they_are() -> None:
    mine = {"type": "StoragePoolFull", "status": "True"}
    assert ready({"conditions": [mine]}, NOW)["conditions"][0] == mine


def test_a_heartbeat_alone_makes_no_difference() -> None:
    assert without_heartbeats(ready({}, NOW)) == without_heartbeats(ready(ready({}, NOW), LATER))
    assert without_heartbeats(ready({}, NOW)) != without_heartbeats(ready({}, LATER))


def test_a_condition_that_is_not_there_is_new() -> None:
    assert find({}, "Available") == {}
    assert condition({}, "Available", "True", NOW)["lastTransitionTime"] == NOW

"""How many replicas the use of resources asks for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kindling.controllers.workloads.autoscaling_metrics import NoValue, Proposal, proposal, samples_of
from kubecore.json import JsonObject
from kubecore.objects.times import format_time

NOW = datetime(2026, 1, 1, tzinfo=UTC)
_OLD = NOW - timedelta(hours=1)


def _pod(name: str, *, ready: bool = True, phase: str = "Running", started: datetime = _OLD) -> JsonObject:
    changed = format_time(started + timedelta(seconds=5))
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": changed}
    container = {"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [container]},
        "status": {"phase": phase, "startTime": format_time(started), "conditions": [condition]},
    }


def _used(name: str, cpu: str) -> JsonObject:
    usage = {"cpu": cpu, "memory": "32Mi"}
    measured = {"timestamp": format_time(NOW), "window": "15s"}
    return {"metadata": {"name": name}, **measured, "containers": [{"name": "c", "usage": usage}]}


def _wanted(pods: list[JsonObject], used: list[JsonObject], resource: str = "cpu", **target: Any) -> Proposal:
    target = target or {"type": "Utilization", "averageUtilization": 50}
    metric = {"type": "Resource", "resource": {"name": resource, "target": target}}
    return proposal(metric, len(pods), pods, samples_of(used, resource, ""), NOW)


def test_pods_are_added_until_each_uses_what_it_should() -> None:
    found = _wanted([_pod("a"), _pod("b")], [_used("a", "100m"), _used("b", "50m")])
    assert (found.replicas, found.metric) == (3, "cpu resource utilization (percentage of request)")
    current = {"averageValue": "75m", "averageUtilization": 75}
    assert found.status == {"type": "Resource", "resource": {"name": "cpu", "current": current}}


def test_pods_are_taken_away_likewise() -> None:
    pods = [_pod(name) for name in "abcd"]
    assert _wanted(pods, [_used(name, "20m") for name in "abcd"]).replicas == 2


def test_a_tenth_more_or_less_changes_nothing() -> None:
    pods = [_pod(name) for name in "abcd"]
    for cpu in ("46m", "54m"):
        assert _wanted(pods, [_used(name, cpu) for name in "abcd"]).replicas == 4


def test_an_average_needs_no_requests() -> None:
    pods = [_pod("a"), _pod("b")]
    del pods[0]["spec"]["containers"][0]["resources"]
    used = [_used("a", "300m"), _used("b", "300m")]
    found = _wanted(pods, used, type="AverageValue", averageValue="200m")
    assert (found.replicas, found.metric) == (3, "cpu resource")
    assert found.status["resource"]["current"] == {"averageValue": "300m"}


def test_without_a_request_there_is_no_percentage() -> None:
    pods = [_pod("a")]
    del pods[0]["spec"]["containers"][0]["resources"]
    with pytest.raises(NoValue, match="missing request for cpu in container c of Pod a"):
        _wanted(pods, [_used("a", "10m")])


def test_of_a_pod_that_says_nothing_the_least_surprising_is_assumed() -> None:
    pods = [_pod(name) for name in "abc"]
    # It may use nothing: three pods at 200 % of the target are six, and with one that idles four.
    assert _wanted(pods, [_used("a", "100m"), _used("b", "100m")]).replicas == 4
    # It may use all it asked for: it is not taken for idle.
    assert _wanted(pods, [_used("a", "10m"), _used("b", "10m")]).replicas == 3


def test_pods_that_start_do_not_count_as_busy() -> None:
    fresh = _pod("b", ready=False, started=NOW - timedelta(seconds=20))
    used = [_used("a", "100m"), _used("b", "1000m")]
    assert _wanted([_pod("a"), fresh], used).replicas == 2


def test_pods_that_end_do_not_count() -> None:
    ended = _pod("b", phase="Failed")
    assert _wanted([_pod("a"), ended], [_used("a", "100m")]).replicas == 2


def test_memory_counts_from_the_beginning() -> None:
    fresh = _pod("a", ready=False, started=NOW - timedelta(seconds=20))
    assert _wanted([fresh], [_used("a", "1m")], "memory").replicas == 1


def test_pods_without_samples_give_no_number() -> None:
    with pytest.raises(NoValue, match="did not receive metrics for targeted pods"):
        _wanted([_pod("a", phase="Pending")], [_used("a", "1m")])


def test_one_container_is_measured_where_it_is_named() -> None:
    pod, used = _pod("a"), _used("a", "100m")
    pod["spec"]["containers"].append({"name": "log"})
    used["containers"].append({"name": "log", "usage": {"cpu": "900m", "memory": "1Gi"}})
    source = {"name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 50}}
    metric = {"type": "ContainerResource", "containerResource": source}
    found = proposal(metric, 1, [pod], samples_of([used], "cpu", "c"), NOW)
    assert (found.replicas, found.metric) == (2, "cpu container resource utilization (percentage of request)")
    assert found.status["containerResource"]["container"] == "c"

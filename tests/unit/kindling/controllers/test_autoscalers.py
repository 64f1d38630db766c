"""HorizontalPodAutoscalers scale what they point to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from kindling.controllers.workloads.autoscalers import SYNC_SECONDS, AutoscalerController
from kubecore.client import Request, Response
from kubecore.json import JsonObject
from kubecore.objects.times import format_time
from kubecore.resources import DEPLOYMENTS, EVENTS, HORIZONTAL_POD_AUTOSCALERS, PODS, ResourceType
from kubecore.testing import MemoryApi

from .conftest import Cluster

pytestmark = pytest.mark.looptime

_PERCENT = {"type": "Utilization", "averageUtilization": 50}


def _cpu(target: JsonObject) -> JsonObject:
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _autoscaler(kind: str = "Deployment", name: str = "web", **spec: Any) -> JsonObject:
    target = {"apiVersion": "apps/v1", "kind": kind, "name": name}
    wanted = {"minReplicas": 1, "maxReplicas": 10, "metrics": [_cpu(_PERCENT)], "scaleTargetRef": target}
    return {"metadata": {"name": "auto", "namespace": "lab"}, "spec": {**wanted, **spec}}


class _Metrics:
    """The server of metrics: what each pod of the Deployment uses."""

    def __init__(self, cluster: Cluster) -> None:
        self.used: str | None = "50m"
        self._cluster = cluster
        cluster.api.reactions.append(self._answer)

    def _answer(self, request: Request) -> Response | None:
        if not request.path.startswith("/apis/metrics.k8s.io/"):
            return None
        usage = {"cpu": self.used}
        moment = format_time(self._cluster.now())
        items = [
            {"metadata": {"name": pod["metadata"]["name"]}, "timestamp": moment, "window": "15s"}
            | {"containers": [{"name": "c", "usage": usage}]}
            for pod in self._cluster.pods()
            if self.used is not None
        ]
        return Response(200, {}, orjson.dumps({"kind": "PodMetricsList", "metadata": {}, "items": items}))


@pytest.fixture
def metrics(cluster: Cluster) -> Iterator[_Metrics]:
    found = _Metrics(cluster)
    _put_deployment(cluster, 2)
    for number in range(2):
        _put_pod(cluster, f"web-{number}")
    yield found


def _put_deployment(cluster: Cluster, replicas: int) -> None:
    """The scale of an object is read from the object here, so it has the selector of its scale."""
    metadata = {"name": "web", "namespace": "lab"}
    status = {"selector": "app=web"}
    cluster.api.put(DEPLOYMENTS, {"metadata": metadata, "spec": {"replicas": replicas}, "status": status})


def _put_pod(cluster: Cluster, name: str) -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "100m"}}}
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}
    status = {"phase": "Running", "startTime": "2025-01-01T00:00:00Z", "conditions": [condition]}
    metadata = {"name": name, "namespace": "lab", "labels": {"app": "web"}}
    cluster.api.put(PODS, {"metadata": metadata, "spec": {"containers": [container]}, "status": status})


def _replicas(cluster: Cluster) -> int:
    found: int = cluster.get(DEPLOYMENTS, "web", "lab")["spec"]["replicas"]
    return found


def _status(cluster: Cluster) -> JsonObject:
    found: JsonObject = cluster.get(HORIZONTAL_POD_AUTOSCALERS, "auto", "lab").get("status", {})
    return found


def _said(cluster: Cluster) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in _status(cluster)["conditions"]}


def _message(cluster: Cluster, condition: str) -> str:
    found: str = next(each["message"] for each in _status(cluster)["conditions"] if each["type"] == condition)
    return found


async def test_busy_pods_get_more_of_their_kind_and_idle_ones_less_after_a_while(
    cluster: Cluster, metrics: _Metrics
) -> None:
    metrics.used = "100m"
    cluster.api.put(HORIZONTAL_POD_AUTOSCALERS, _autoscaler())
    async with cluster.running(AutoscalerController):
        assert _replicas(cluster) == 4
        assert _said(cluster) == {
            "AbleToScale": ("True", "SucceededRescale"),
            "ScalingActive": ("True", "ValidMetricFound"),
            "ScalingLimited": ("False", "DesiredWithinRange"),
        }
        (event,) = cluster.api.list(EVENTS, "lab")
        reason = "cpu resource utilization (percentage of request) above target"
        assert (event["reason"], event["message"]) == ("SuccessfulRescale", f"New size: 4; reason: {reason}")
        metrics.used = "10m"
        await asyncio.sleep(200)
        assert (_replicas(cluster), _said(cluster)["AbleToScale"][1]) == (4, "ScaleDownStabilized")
        await asyncio.sleep(200)
        assert _replicas(cluster) == 1


async def test_a_look_does_not_lead_to_the_next_before_its_time(cluster: Cluster, metrics: _Metrics) -> None:
    cluster.api.put(HORIZONTAL_POD_AUTOSCALERS, _autoscaler())
    async with cluster.running(AutoscalerController):
        asked = [each for each in cluster.api.requests if "metrics.k8s.io" in each.path]
        await asyncio.sleep(60)
        later = [each for each in cluster.api.requests if "metrics.k8s.io" in each.path]
        assert (len(asked), len(later)) == (1, 5)


async def test_an_autoscaler_that_changes_all_the_time_is_looked_at_once_a_second(
    cluster: Cluster, metrics: _Metrics
) -> None:
    cluster.api.put(HORIZONTAL_POD_AUTOSCALERS, _autoscaler())
    async with cluster.running(AutoscalerController):
        cluster.api.requests.clear()
        for number in range(100):
            found = cluster.get(HORIZONTAL_POD_AUTOSCALERS, "auto", "lab")
            spec = {**found["spec"], "maxReplicas": 100 + number}
            cluster.api.put(HORIZONTAL_POD_AUTOSCALERS, {**found, "spec": spec})
            await asyncio.sleep(0.05)
        assert 4 <= len([each for each in cluster.api.requests if "metrics.k8s.io" in each.path]) <= 6
        metrics.used = "1000m"
        await asyncio.sleep(SYNC_SECONDS)
        assert _replicas(cluster) > 2


@pytest.mark.parametrize(("replicas", "wanted"), [(20, 10), (1, 3), (0, 0)])
async def test_bounds_come_before_metrics_and_nothing_is_scaled_from_zero(
    cluster: Cluster, metrics: _Metrics, replicas: int, wanted: int
) -> None:
    _put_deployment(cluster, replicas)
    cluster.api.put(HORIZONTAL_POD_AUTOSCALERS, _autoscaler(minReplicas=3))
    async with cluster.running(AutoscalerController):
        assert _replicas(cluster) == wanted
        assert _status(cluster)["desiredReplicas"] == wanted


async def test_without_metrics_nothing_is_scaled_and_the_reason_is_told(
    cluster: Cluster, metrics: _Metrics
) -> None:
    metrics.used = None
    cluster.api.put(HORIZONTAL_POD_AUTOSCALERS, _autoscaler())
    async with cluster.running(AutoscalerController):
        assert _replicas(cluster) == 2
        assert _said(cluster)["ScalingActive"] == ("False", "FailedGetResourceMetric")
        assert _message(cluster, "ScalingActive") == (
            "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get"
            " metrics for resource cpu: no metrics returned from resource metrics API"
        )
        metrics.used = "100m"
        await asyncio.sleep(20)
        assert _replicas(cluster) == 4


async def test_metrics_that_nobody_serves_keep_what_is_there(cluster: Cluster, metrics: _Metrics) -> None:
    average = {"type": "AverageValue", "averageValue": "1"}
    unserved = {"type": "Pods", "pods": {"metric": {"name": "requests"}, "target": average}}
    metrics.used = "10m"
    cluster.api.put(HORIZONTAL_POD_AUTOSCALERS, _autoscaler(metrics=[_cpu(_PERCENT), unserved]))
    async with cluster.running(AutoscalerController):
        await asyncio.sleep(600)
        assert _replicas(cluster) == 2
        assert _said(cluster)["ScalingActive"] == ("False", "FailedGetPodsMetric")
        metrics.used = "200m"
        await asyncio.sleep(20)
        assert _replicas(cluster) == 6


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("Deployment", "other", 'deployments.apps "other" not found'),
        ("Nothing", "web", 'no matches for kind "Nothing" in group "apps"'),
    ],
)
async def test_a_target_that_is_not_there_is_told(
    cluster: Cluster, metrics: _Metrics, kind: str, name: str, text: str
) -> None:
    cluster.api.put(HORIZONTAL_POD_AUTOSCALERS, _autoscaler(kind, name))
    async with cluster.running(AutoscalerController):
        assert _said(cluster) == {"AbleToScale": ("False", "FailedGetScale")}
        expected = f"the HPA controller was unable to get the target's current scale: {text}"
        assert _message(cluster, "AbleToScale") == expected


async def test_many_targets_of_no_kind_do_not_each_ask_for_all_kinds(
    cluster: Cluster, metrics: _Metrics
) -> None:
    for number in range(20):
        wanted = _autoscaler(f"Nothing{number}")
        wanted["metadata"]["name"] = f"auto-{number}"
        cluster.api.put(HORIZONTAL_POD_AUTOSCALERS, wanted)
    async with cluster.running(AutoscalerController):
        asked = [each for each in cluster.api.requests if each.path == "/apis"]
        assert len(asked) <= 2, "once for each worker"


async def test_no_autoscaler_of_a_namespace_scales_what_belongs_to_none(cluster: Cluster) -> None:
    fleets = ResourceType("example.com", "v1", "fleets", "Fleet", namespaced=False)
    cluster.api = MemoryApi([fleets])
    cluster.api.put(fleets, {"metadata": {"name": "all"}, "spec": {"replicas": 2}})
    target = {"apiVersion": "example.com/v1", "kind": "Fleet", "name": "all"}
    wanted = _autoscaler(scaleTargetRef=target, minReplicas=7)
    cluster.api.put(HORIZONTAL_POD_AUTOSCALERS, wanted)
    async with cluster.running(AutoscalerController):
        assert cluster.get(fleets, "all")["spec"]["replicas"] == 2
        assert _said(cluster) == {"AbleToScale": ("False", "FailedGetScale")}
        text = "the server could not find the requested resource"
        expected = f"the HPA controller was unable to get the target's current scale: {text}"
        assert _message(cluster, "AbleToScale") == expected


async def test_an_autoscaler_of_many_metrics_costs_one_question_and_nobody_else_waits(
    cluster: Cluster, metrics: _Metrics
) -> None:
    many = [_cpu({"type": "Utilization", "averageUtilization": 100 + number}) for number in range(2000)]
    cluster.api.put(HORIZONTAL_POD_AUTOSCALERS, _autoscaler(metrics=many))
    turns: list[int] = []

    async def others() -> None:
        turns.append(0)
        while not _status(cluster):
            await asyncio.sleep(0)
            turns[-1] += 1

    def asked(request: Request) -> None:
        if "metrics.k8s.io" in request.path:
            tasks.append(asyncio.create_task(others()))

    tasks: list[asyncio.Task[None]] = []
    cluster.api.reactions.insert(0, asked)
    async with cluster.running(AutoscalerController):
        await asyncio.gather(*tasks)
    (turns_of_others,) = turns
    assert turns_of_others > len(many)


@pytest.mark.parametrize("selector", ["", "a in (", "=" * 10000])
async def test_a_scale_whose_selector_means_nothing_is_told(
    cluster: Cluster, metrics: _Metrics, selector: str
) -> None:
    found = cluster.get(DEPLOYMENTS, "web", "lab")
    cluster.api.put(DEPLOYMENTS, {**found, "status": {"selector": selector}})
    cluster.api.put(HORIZONTAL_POD_AUTOSCALERS, _autoscaler())
    async with cluster.running(AutoscalerController):
        assert _said(cluster)["ScalingActive"] == ("False", "InvalidSelector")
        assert _replicas(cluster) == 2

"""The ServiceMonitor and the PrometheusRule of the components."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.testing import MemoryApi
from virtplane.api.config import ClusterConfig
from virtplane.api.resources import PROMETHEUS_RULES, SERVICE_MONITORS
from virtplane.operators.kubevirt.monitor import keep_monitor, keep_rules, remove_monitor, remove_rules
from virtplane.operators.kubevirt.strategy.parameters import Parameters
from virtplane.operators.kubevirt.strategy.services import services


def _parameters(spec: JsonObject) -> Parameters:
    return Parameters("kubevirt", "product:1", "compact", ClusterConfig(), spec=spec)


def _api(*namespaces: str) -> MemoryApi:
    api = MemoryApi([SERVICE_MONITORS])
    for name in namespaces:
        api.put(resources.NAMESPACES, {"metadata": {"name": name}})
    return api


@pytest.mark.parametrize(
    ("spec", "namespaces", "wanted"),
    [
        ({}, ("monitoring",), ["monitoring"]),
        ({}, ("monitoring", "openshift-monitoring"), ["openshift-monitoring"]),
        ({}, (), []),
        ({"monitorNamespace": "m"}, ("monitoring", "m"), ["m"]),
        ({"monitorNamespace": "m", "serviceMonitorNamespace": "s"}, ("m", "s"), ["s"]),
        ({"serviceMonitorNamespace": "s"}, ("monitoring",), []),
    ],
)
async def test_it_is_in_the_namespace_that_is_named_and_exists(
    spec: JsonObject, namespaces: tuple[str, ...], wanted: list[str]
) -> None:
    api = _api(*namespaces)
    async with api.client() as client:
        for _ in range(2):
            await keep_monitor(client, _parameters(spec))
        assert [each["metadata"]["namespace"] for each in api.list(SERVICE_MONITORS)] == wanted
        await remove_monitor(client)
        assert api.list(SERVICE_MONITORS) == []


async def test_it_moves_and_leaves_those_of_others_alone() -> None:
    api = _api("monitoring", "s")
    api.put(SERVICE_MONITORS, {"metadata": {"name": "prometheus-kubevirt-rules", "namespace": "other"}})
    async with api.client() as client:
        await keep_monitor(client, _parameters({}))
        await keep_monitor(client, _parameters({"serviceMonitorNamespace": "s"}))
        found = {each["metadata"]["namespace"]: each for each in api.list(SERVICE_MONITORS)}
        assert set(found) == {"other", "s"}
        monitor, parameters = found["s"]["spec"], _parameters({})
        [metrics] = [each for each in services(parameters) if "prometheus" in each["metadata"]["name"]]
        assert monitor["namespaceSelector"]["matchNames"] == [metrics["metadata"]["namespace"]]
        assert monitor["selector"]["matchLabels"].items() <= metrics["metadata"]["labels"].items()
        assert monitor["endpoints"][0]["port"] == metrics["spec"]["ports"][0]["name"]
        await remove_monitor(client)
        assert [each["metadata"]["namespace"] for each in api.list(SERVICE_MONITORS)] == ["other"]


async def test_clusters_without_its_kind_go_without_it() -> None:
    async with MemoryApi().client() as client:
        await keep_monitor(client, _parameters({}))
        await remove_monitor(client)


_URL = "https://runbooks.test/%s"


async def test_rules_are_in_the_installations_namespace_until_it_goes() -> None:
    api = MemoryApi([PROMETHEUS_RULES])
    api.put(PROMETHEUS_RULES, {"metadata": {"name": "of-others", "namespace": "kubevirt"}})
    async with api.client() as client:
        for _ in range(2):
            await keep_rules(client, _parameters({}), _URL)
        names = [each["metadata"]["name"] for each in api.list(PROMETHEUS_RULES, "kubevirt")]
        assert names == ["of-others", "prometheus-kubevirt-rules"]
        await remove_rules(client)
        assert [each["metadata"]["name"] for each in api.list(PROMETHEUS_RULES)] == ["of-others"]


async def test_the_gate_for_statistics_goes_without_rules() -> None:
    gates = {"developerConfiguration": {"featureGates": ["VMStatsCollector"]}}
    kubevirt: JsonObject = {"spec": {"configuration": gates}, "status": {"phase": "Deployed"}}
    parameters = replace(_parameters({}), config=ClusterConfig(kubevirt))
    api = MemoryApi([PROMETHEUS_RULES])
    async with api.client() as client:
        await keep_rules(client, _parameters({}), _URL)
        await keep_rules(client, parameters, _URL)
        assert api.list(PROMETHEUS_RULES) == []


async def test_clusters_without_the_kind_of_rules_go_without_them() -> None:
    async with MemoryApi().client() as client:
        await keep_rules(client, _parameters({}), _URL)
        await remove_rules(client)

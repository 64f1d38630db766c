"""Services, the priority class, and disruption budgets."""

from __future__ import annotations

from collections.abc import Mapping

from kubecore.json import JsonObject
from virtplane.api.labels import APP, PROMETHEUS
from virtplane.operators.kubevirt.strategy.parameters import Parameters
from virtplane.operators.kubevirt.strategy.webhooks import API_SERVICE, OPERATOR_SERVICE

PRIORITY_CLASS = "kubevirt-cluster-critical"
API_PORT = 8443
OPERATOR_WEBHOOK_PORT = 8444
HEALTH_PORT = 8445
HANDLER_HEALTH_PORT = 8185
HANDLER_PORT = 8186


def priority_class() -> JsonObject:
    """Components go before what users run."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PRIORITY_CLASS, "labels": {APP: ""}},
        "value": 1000000000,
        "globalDefault": False,
        "description": "This priority class should be used for core kubevirt components only.",
    }


def services(parameters: Parameters) -> list[JsonObject]:
    """How components are reached: virt-api, the operator's webhooks and everybody's metrics."""
    namespace = parameters.namespace
    metrics = _service("kubevirt-prometheus-metrics", namespace, {PROMETHEUS: "true"}, "metrics", "metrics")
    metrics["metadata"]["labels"][PROMETHEUS] = "true"
    metrics["spec"]["clusterIP"] = "None"
    return [
        _service(API_SERVICE, namespace, parameters.component_selector, "", API_PORT),
        _service(OPERATOR_SERVICE, namespace, {APP: "virt-operator"}, "webhooks", "webhooks"),
        metrics,
    ]


def _service(
    name: str, namespace: str, selector: Mapping[str, str], port_name: str, target: int | str
) -> JsonObject:
    port: JsonObject = {"port": 443, "targetPort": target, "protocol": "TCP"}
    if port_name:
        port["name"] = port_name
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": {APP: name}},
        "spec": {"selector": dict(selector), "ports": [port], "type": "ClusterIP"},
    }


def disruption_budget(name: str, namespace: str, replicas: int) -> JsonObject:
    """All replicas of a component but one stay up while nodes are drained."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"{name}-pdb", "namespace": namespace, "labels": {APP: name}},
        "spec": {"minAvailable": replicas - 1, "selector": {"matchLabels": {APP: name}}},
    }

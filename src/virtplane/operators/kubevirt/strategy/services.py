"""The services of the components, and their PriorityClass."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api import ports
from virtplane.api.labels import ALLOW_CLUSTER_SERVICES, APP, PROMETHEUS
from virtplane.operators.kit import workloads
from virtplane.operators.kit.workloads import Workloads
from virtplane.operators.kubevirt.product import KUBEVIRT
from virtplane.operators.kubevirt.strategy.parameters import Parameters
from virtplane.operators.kubevirt.strategy.webhooks import API_SERVICE, OPERATOR_SERVICE

PRIORITY_CLASS = "kubevirt-cluster-critical"
_PRIORITY_TEXT = "This priority class should be used for core kubevirt components only."


def made_for(namespace: str) -> Workloads:
    """The `Workloads` that create KubeVirt's workloads and services in a namespace."""
    return Workloads(KUBEVIRT, namespace, {PROMETHEUS: "true", ALLOW_CLUSTER_SERVICES: "true"})


def priority_class() -> JsonObject:
    """The PriorityClass of the components."""
    return workloads.priority_class(KUBEVIRT, PRIORITY_CLASS, _PRIORITY_TEXT)


def services(parameters: Parameters) -> list[JsonObject]:
    """The services of virt-api, of the operator's webhooks, and of metrics."""
    made = made_for(parameters.namespace)
    metrics = made.service("kubevirt-prometheus-metrics", {PROMETHEUS: "true"}, "metrics", "metrics")
    metrics["metadata"]["labels"][PROMETHEUS] = "true"
    metrics["spec"]["clusterIP"] = "None"
    return [
        made.service(API_SERVICE, parameters.component_selector, ports.API),
        made.service(OPERATOR_SERVICE, {APP: "virt-operator"}, "webhooks", "webhooks"),
        metrics,
    ]

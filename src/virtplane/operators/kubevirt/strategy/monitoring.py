"""The rights of the cluster's Prometheus to read the components' metrics."""

from __future__ import annotations

from kubecore.json import JsonObject, get_str
from virtplane.operators.kit.roles import (
    READ,
    account_subject,
    path_rule,
    rule,
)
from virtplane.operators.kubevirt.product import ACCESS
from virtplane.operators.kubevirt.strategy.parameters import Parameters

METRICS_PATH = "/metrics"
_METRICS_READER = "kubevirt-metrics-reader"
_MONITORING = "kubevirt-monitoring"
_DEFAULT_ACCOUNT = "prometheus-k8s"
_DEFAULT_NAMESPACES = ("openshift-monitoring", "monitoring")
"""Where KubeVirt looks for Prometheus' account when the KubeVirt object names no namespace."""


def monitoring(parameters: Parameters) -> list[JsonObject]:
    """The right to read metrics and to find the pods that have them, for ``spec.monitorAccount``."""
    account = get_str(parameters.spec, "monitorAccount") or _DEFAULT_ACCOUNT
    wanted = get_str(parameters.spec, "monitorNamespace")
    subjects = [account_subject(account, name) for name in ([wanted] if wanted else _DEFAULT_NAMESPACES)]
    return [
        ACCESS.cluster_role(_METRICS_READER, [metrics_rule()]),
        ACCESS.bind_cluster_role(_METRICS_READER, subjects),
        ACCESS.role(_MONITORING, parameters.namespace, [rule("core", "services endpoints pods", READ)]),
        ACCESS.bind_role(_MONITORING, parameters.namespace, subjects),
    ]


def metrics_rule() -> JsonObject:
    """The rule that allows reading metrics of components."""
    return path_rule(METRICS_PATH, ("get",))

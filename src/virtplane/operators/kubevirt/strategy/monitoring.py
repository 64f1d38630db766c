"""The rights of the cluster's Prometheus to read components' metrics, and what tells it where they are."""

from __future__ import annotations

from kubecore.json import JsonObject, get_str
from virtplane.api.labels import PROMETHEUS
from virtplane.api.resources import SERVICE_MONITORS
from virtplane.operators.kit.roles import (
    READ,
    account_subject,
    path_rule,
    rule,
)
from virtplane.operators.kubevirt.product import ACCESS, KUBEVIRT
from virtplane.operators.kubevirt.strategy.parameters import Parameters

METRICS_PATH = "/metrics"
_METRICS_READER = "kubevirt-metrics-reader"
_MONITORING = "kubevirt-monitoring"
_MONITOR = "prometheus-kubevirt-rules"
_TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"
"""Prometheus' own token, in its pods."""
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


def monitor_namespaces(spec: JsonObject) -> tuple[str, ...]:
    """Where the ServiceMonitor may be, the first that exists; `spec` is that of the KubeVirt object."""
    wanted = get_str(spec, "serviceMonitorNamespace") or get_str(spec, "monitorNamespace")
    return (wanted,) if wanted else _DEFAULT_NAMESPACES


def service_monitor(parameters: Parameters, namespace: str) -> JsonObject:
    """What has Prometheus read the metrics of all components. It is in `namespace`."""
    own = {PROMETHEUS: "true", "k8s-app": "kubevirt", "openshift.io/cluster-monitoring": ""}
    document: JsonObject = {
        "apiVersion": SERVICE_MONITORS.api_version,
        "kind": SERVICE_MONITORS.kind,
        "metadata": {"name": _MONITOR, "namespace": namespace, "labels": {**KUBEVIRT.labels(), **own}},
        "spec": {
            "selector": {"matchLabels": {PROMETHEUS: "true"}},
            "namespaceSelector": {"matchNames": [parameters.namespace]},
            "endpoints": [
                {
                    "port": "metrics",
                    "scheme": "https",
                    "honorLabels": True,
                    "bearerTokenFile": _TOKEN_FILE,
                    "tlsConfig": {"insecureSkipVerify": True},
                }
            ],
        },
    }
    KUBEVIRT.mark_managed(document, parameters.spec, parameters.marks)
    return document


def metrics_rule() -> JsonObject:
    """The rule that allows reading metrics of components."""
    return path_rule(METRICS_PATH, ("get",))

"""The alerts of KubeVirt; their names and expressions are KubeVirt's.

Only those are there whose metrics this product or Kubernetes' own exporters have: an alert about something
that nobody measures would always fire, or never.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubecore.json import JsonObject
from virtplane.api.labels import PROMETHEUS
from virtplane.api.resources import PROMETHEUS_RULES
from virtplane.operators.kubevirt.product import KUBEVIRT
from virtplane.operators.kubevirt.strategy.machinealerts import DESCRIPTIONS, Alert, machine_alerts
from virtplane.operators.kubevirt.strategy.parameters import Parameters
from virtplane.operators.kubevirt.strategy.recordings import COMPONENTS, pods_of, recordings

DEFAULT_RUNBOOK_URL = "https://kubevirt.io/monitoring/runbooks/%s"
RULES = "prometheus-kubevirt-rules"
_DEPRECATED = 'cluster:kubevirt_api_request_deprecated_total:sum{verb!~"LIST|WATCH|DELETE"}'


def prometheus_rules(parameters: Parameters, runbook_url: str) -> JsonObject:
    """The object with all rules; ``%s`` in `runbook_url` becomes the name of an alert."""
    groups = [
        {"name": "recordingRules.rules", "rules": recordings(parameters)},
        {"name": "alerts.rules", "rules": alerts(parameters, runbook_url)},
    ]
    document: JsonObject = {
        "apiVersion": PROMETHEUS_RULES.api_version,
        "kind": PROMETHEUS_RULES.kind,
        "metadata": {
            "name": RULES,
            "namespace": parameters.namespace,
            "labels": {**KUBEVIRT.labels(), PROMETHEUS: "true", "k8s-app": "kubevirt"},
        },
        "spec": {"groups": groups},
    }
    KUBEVIRT.mark_managed(document, parameters.spec, parameters.marks)
    return document


def alerts(parameters: Parameters, runbook_url: str) -> list[JsonObject]:
    """All alerts; those of machines carry no namespace of their own."""
    namespace = parameters.namespace
    components = [*_system_alerts(), *_component_alerts(parameters)]
    return [
        *(_rule(alert, runbook_url, {"namespace": namespace}) for alert in components),
        *(_rule(alert, runbook_url, {}) for alert in machine_alerts()),
    ]


def _rule(alert: Alert, runbook_url: str, labels: Mapping[str, str]) -> JsonObject:
    name, expression, after, severity, impact, summary = alert
    about = {"description": DESCRIPTIONS[name]} if name in DESCRIPTIONS else {}
    return {
        "alert": name,
        "expr": expression,
        **({"for": after} if after else {}),
        "annotations": {"summary": summary, **about, "runbook_url": runbook_url % name},
        "labels": {
            **labels,
            "severity": severity,
            "operator_health_impact": impact,
            "kubernetes_operator_part_of": "kubevirt",
            "kubernetes_operator_component": "kubevirt",
        },
    }


def _system_alerts() -> list[Alert]:
    without_kvm = (
        "((cluster:kubevirt_nodes_with_kvm:count or on() vector(0)) == 0"
        " and (sum(kubevirt_configuration_emulation_enabled) or on() vector(0)) == 0)"
    )
    schedulable = (
        "(sum(kube_node_labels{label_kubevirt_io_schedulable='true'} * on(node) group_left()"
        " (1 - kube_node_spec_unschedulable)) or on() vector(0)) == 0"
    )
    few_nodes = (
        "(cluster:kubevirt_nodes_allocatable:count > 1) and (cluster:kubevirt_nodes_with_kvm:count < 2)"
    )
    return [
        (
            "LowKVMNodesCount",
            few_nodes,
            "5m",
            "warning",
            "warning",
            "Fewer than two nodes offer KVM: guests cannot be moved.",
        ),
        (
            "KubeVirtNoAvailableNodesToRunVMs",
            f"{without_kvm} or {schedulable}",
            "5m",
            "warning",
            "critical",
            "No node can run guests: none offers KVM, and none may emulate it, or none is schedulable.",
        ),
        (
            "KubeVirtDeprecatedAPIRequested",
            f"sum by (resource,group,version) ((round(increase({_DEPRECATED}[10m])) > 0"
            f" and {_DEPRECATED} offset 10m) or ({_DEPRECATED} != 0 unless {_DEPRECATED} offset 10m))",
            "",
            "info",
            "none",
            "Deprecated {{ $labels.resource }} of {{ $labels.group }}/{{ $labels.version }} were requested.",
        ),
    ]


_READY_ALERTS: Mapping[str, tuple[str, str]] = {
    "api": ("LowReadyVirtAPICount", "NoReadyVirtAPI"),
    "controller": ("LowReadyVirtControllersCount", "NoReadyVirtController"),
    "handler": ("LowReadyVirtHandlerCount", "NoReadyVirtHandler"),
    "operator": ("LowReadyVirtOperatorsCount", "NoReadyVirtOperator"),
}
_DOWN_ALERTS: Mapping[str, str] = {
    "api": "VirtAPIDown",
    "controller": "VirtControllerDown",
    "handler": "VirtHandlerDown",
    "operator": "VirtOperatorDown",
}
_LOW_ALERTS: Mapping[str, tuple[str, str]] = {
    "api": ("LowVirtAPICount", "60m"),
    "controller": ("LowVirtControllersCount", "10m"),
    "operator": ("LowVirtOperatorCount", "60m"),
}


def _component_alerts(parameters: Parameters) -> list[Alert]:
    namespace, found = parameters.namespace, []
    for name in COMPONENTS:
        start, shown = f"cluster:kubevirt_virt_{name}", f"virt-{name}"
        ready, running = f"{start}_ready:sum", f"{start}_pods_running:count"
        low, none = _READY_ALERTS[name]
        critical = ("10m", "critical", "critical")
        found += [
            (_DOWN_ALERTS[name], f"{running} == 0", *critical, f"No pod of {shown} runs."),
            (
                low,
                f"{ready} < {running} and {ready} > 0",
                "10m",
                "warning",
                "warning",
                f"Some pods of {shown} run and are not ready.",
            ),
            (none, f"{ready} == 0", *critical, f"No pod of {shown} is ready."),
        ]
        if name in ("controller", "operator"):
            leading = f"NoLeadingVirt{name.capitalize()}"
            found.append((leading, f"{start}_leading:sum == 0", *critical, f"No {shown} leads."))
        if name in _LOW_ALERTS:
            low, after = _LOW_ALERTS[name]
            deployment = shown if parameters.layout == "distributed" else "virt-operator"
            wanted = f"kube_deployment_spec_replicas{{deployment='{deployment}', namespace='{namespace}'}}"
            expression = f"{running} / on() {wanted} < 0.75"
            summary = f"Fewer than three of four pods of {shown} run."
            found.append((low, expression, after, "warning", "warning", summary))
        found.append(_burst(parameters, name))
    return [*found, *_node_alerts(namespace)]


def _burst(parameters: Parameters, name: str) -> Alert:
    own = pods_of(parameters, name)
    requests = f'kubevirt_rest_client_requests_total{{namespace="{parameters.namespace}",pod=~"virt-{own}-.*"'
    refused = f'sum(rate({requests},code=~"(4|5)[0-9][0-9]"}}[5m]))'
    return (
        f"Virt{name.capitalize()}RESTErrorsBurst",
        f"{refused} / sum(rate({requests}}}[5m])) >= 0.8",
        "5m",
        "critical",
        "critical",
        f"Four of five requests of virt-{name} are refused.",
    )


def _node_alerts(namespace: str) -> list[Alert]:
    handlers = "kube_pod_status_ready{condition='true',pod=~'virt-handler.*'}"
    placed = "max by(pod,node)(kube_pod_info{pod=~'virt-handler.*',node!=''})"
    orphaned = (
        f"(((max by (node) ({handlers} * on(pod) group_left(node) {placed}) ) == 1)"
        " or (count by (node)( kube_pod_info{pod=~'virt-launcher.*',node!=''})*0)) == 0"
    )
    of = f"{{namespace='{namespace}', daemonset='virt-handler'}}"
    rollout = (
        f"(kube_daemonset_status_number_ready{of} - kube_daemonset_status_desired_number_scheduled{of}) != 0"
    )
    stuck = "sum(kube_pod_status_phase{phase='Failed', pod=~'virt-launcher-.*'}) >= 200"
    return [
        (
            "OrphanedVirtualMachineInstances",
            orphaned,
            "10m",
            "warning",
            "warning",
            "Guests run on node {{ $labels.node }}, which has no ready virt-handler.",
        ),
        (
            "VirtHandlerDaemonSetRolloutFailing",
            rollout,
            "15m",
            "warning",
            "warning",
            "Some virt-handlers are not rolled out.",
        ),
        (
            "VirtLauncherPodsStuckFailed",
            stuck,
            "10m",
            "critical",
            "critical",
            "At least 200 launcher pods have failed and are still there.",
        ),
    ]

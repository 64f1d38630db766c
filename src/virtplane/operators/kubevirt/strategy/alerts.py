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
from virtplane.operators.kubevirt.strategy.parameters import Parameters
from virtplane.operators.kubevirt.strategy.recordings import COMPONENTS, pods_of, recordings

DEFAULT_RUNBOOK_URL = "https://kubevirt.io/monitoring/runbooks/%s"
RULES = "prometheus-kubevirt-rules"
_DEPRECATED = 'cluster:kubevirt_api_request_deprecated_total:sum{verb!~"LIST|WATCH|DELETE"}'

_Alert = tuple[str, str, str, str, str, str]
"""Name, expression, how long it must hold (empty: not at all), severity, impact, summary."""


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
        *(_rule(alert, runbook_url, {}) for alert in (*_machine_alerts(), *_memory_alerts())),
    ]


def _rule(alert: _Alert, runbook_url: str, labels: Mapping[str, str]) -> JsonObject:
    name, expression, after, severity, impact, summary = alert
    return {
        "alert": name,
        "expr": expression,
        **({"for": after} if after else {}),
        "annotations": {"summary": summary, "runbook_url": runbook_url % name},
        "labels": {
            **labels,
            "severity": severity,
            "operator_health_impact": impact,
            "kubernetes_operator_part_of": "kubevirt",
            "kubernetes_operator_component": "kubevirt",
        },
    }


def _system_alerts() -> list[_Alert]:
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


def _component_alerts(parameters: Parameters) -> list[_Alert]:
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


def _burst(parameters: Parameters, name: str) -> _Alert:
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


def _node_alerts(namespace: str) -> list[_Alert]:
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


def _machine_alerts() -> list[_Alert]:
    running = "topk by(name, namespace) (1, kubevirt_vmi_info{phase='running'})"
    there = "kubevirt_vmi_info{phase=~'scheduled|running'}"
    waiting = " == 1 or ".join(f"kubevirt_vm_info{{status='{word}'}}" for word in ("starting", "terminating"))
    on_node = " == 1 or ".join(
        f"kubevirt_vm_info{{status='{word}'}}" for word in ("starting", "stopping", "terminating")
    )
    failed = "kubevirt_vm_info{status_group='error'} == 1"
    provisioning = "kubevirt_vm_info{status='provisioning'}==1"
    moves = "topk by (vmi, namespace, vmim) (1, max_over_time(kubevirt_vmi_migration_succeeded[1d]))"
    return [
        (
            "VMCannotBeEvicted",
            _named(f"kubevirt_vmi_non_evictable * on(name, namespace) group_left() {running} == 1"),
            "1m",
            "warning",
            "none",
            "The guest {{ $labels.name }} is to be migrated when it is evicted, and cannot be.",
        ),
        (
            "KubeVirtVMIExcessiveMigrations",
            _named(f"sum by (vmi, namespace) ({moves}) >= 12", "vmi"),
            "",
            "warning",
            "none",
            "The guest {{ $labels.vmi }} was migrated at least twelve times in a day.",
        ),
        (
            "OutdatedVirtualMachineInstanceWorkloads",
            "kubevirt_vmi_number_of_outdated{namespace!=''} != 0",
            "24h",
            "warning",
            "none",
            "Some guests have run in launchers of an old image for a day.",
        ),
        (
            "VirtualMachineStuckInUnhealthyState",
            _named(
                f"sum by (name, namespace, status)({provisioning} or {waiting} == 1 or {failed})"
                " unless on(name, namespace) kubevirt_vmi_info"
            ),
            "10m",
            "warning",
            "none",
            "The machine {{ $labels.name }} is {{ $labels.status }} without an instance for ten minutes.",
        ),
        (
            "VirtualMachineStuckOnNode",
            _named(
                f"sum by (name, namespace, status, node)(({on_node} == 1 or"
                f" ({failed} and on(name, namespace) {there}) )"
                f" * on(name, namespace) group_left(node) topk by(name, namespace) (1, {there}))"
            ),
            "5m",
            "warning",
            "none",
            "The machine {{ $labels.name }} is {{ $labels.status }} on {{ $labels.node }} for five minutes.",
        ),
    ]


def _memory_alerts() -> list[_Alert]:
    start = "vmi:kubevirt_vmi"
    headroom, faults = f"{start}_memory_headroom_ratio:sum", f"{start}_pgmajfaults"
    swaps = f"{start}_swap_traffic_bytes"
    is_told = f"({start}_memory_available_bytes:sum > 0)"
    info = "label_replace(kubevirt_vmi_info{phase='running'}, 'vm', '$1', 'name', '(.+)')"
    by_pod = f"label_replace({info}, 'name', '$1', 'vmi_pod', '(.+)')"
    machine = f"on(name, namespace) group_left(vm) topk by(name, namespace) (1, {by_pod})"
    pressure = f"({faults}:rate5m > 5 or ({swaps}:rate5m > 1048576))"
    quiet = f"({swaps}:rate30m < 2048) and ({faults}:rate30m < 1)"
    return [
        (
            "KubeVirtVMGuestMemoryPressure",
            f"((({headroom} < 0.05) and {pressure} and {is_told}) * {machine})",
            "5m",
            "warning",
            "none",
            "The guest of {{ $labels.vm }} has little memory left, and swaps or reads its pages again.",
        ),
        (
            "KubeVirtVMGuestMemoryAvailableLow",
            f"((({headroom} < 0.03) and {quiet} and {is_told}) * {machine})",
            "30m",
            "info",
            "none",
            "The guest of {{ $labels.vm }} has hardly any memory left.",
        ),
    ]


def _named(expression: str, label: str = "name") -> str:
    """The expression with the label ``vm`` of the machine's name."""
    return f'label_replace({expression}, "vm", "$1", "{label}", "(.+)")'

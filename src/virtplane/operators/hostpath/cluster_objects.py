"""The CSIDriver, and what some clusters have: security context constraints and Prometheus' objects."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api import resources
from virtplane.operators.hostpath.product import (
    CSI_ACCOUNT,
    CSI_NAME,
    DRIVER,
    LEGACY_ACCOUNT,
    NAME,
    OPERATOR,
    PROMETHEUS,
    Settings,
    made,
)
from virtplane.operators.kit.roles import READ, account_subject, rule
from virtplane.storage.hostpath.configuration import FULL_PERCENT

CONSTRAINTS = resources.SECURITY_CONTEXT_CONSTRAINTS
SERVICE_MONITORS = resources.SERVICE_MONITORS
PROMETHEUS_RULES = resources.PROMETHEUS_RULES

_MONITORING = "hostpath-provisioner-monitoring"
_METRICS = "hpp-prometheus-metrics"
_UP = "kubevirt_hpp_operator_up"


def csi_driver(settings: Settings) -> JsonObject:
    """What Kubernetes knows of the driver."""
    spec = {
        "attachRequired": False,
        "podInfoOnMount": True,
        "storageCapacity": True,
        "requiresRepublish": False,
        "volumeLifecycleModes": ["Persistent", "Ephemeral"],
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
    }
    return made(settings, "storage.k8s.io/v1", "CSIDriver", DRIVER, spec=spec)


def constraints(settings: Settings, *, legacy: bool) -> list[JsonObject]:
    """Which pods the driver's accounts may run, on OpenShift."""
    found = [_constraint(settings, CSI_NAME, CSI_ACCOUNT, ["*"], privileged=True)]
    if legacy:
        volumes = ["hostPath", "secret", "projected"]
        found.insert(0, _constraint(settings, NAME, LEGACY_ACCOUNT, volumes, privileged=False))
    return found


def _constraint(
    settings: Settings, name: str, account: str, volumes: list[str], *, privileged: bool
) -> JsonObject:
    any_kind = {"type": "RunAsAny"}
    return made(
        settings,
        "security.openshift.io/v1",
        "SecurityContextConstraints",
        name,
        allowPrivilegedContainer=privileged,
        allowHostDirVolumePlugin=True,
        allowHostIPC=False,
        allowHostNetwork=False,
        allowHostPID=False,
        allowHostPorts=False,
        readOnlyRootFilesystem=False,
        requiredDropCapabilities=["KILL", "MKNOD", "SETUID", "SETGID"],
        runAsUser=any_kind,
        seLinuxContext=any_kind,
        fsGroup=any_kind,
        supplementalGroups=any_kind,
        users=[f"system:serviceaccount:{settings.namespace}:{account}"],
        volumes=volumes,
    )


def monitoring(settings: Settings) -> list[JsonObject]:
    """What has Prometheus read the metrics and evaluate the alerts."""
    namespace = settings.monitoring_namespace
    rbac = "rbac.authorization.k8s.io"
    service = made(
        settings,
        "v1",
        "Service",
        _METRICS,
        namespaced=True,
        spec={
            "selector": {PROMETHEUS: "true"},
            "ports": [{"name": "metrics", "port": 8080, "targetPort": "metrics", "protocol": "TCP"}],
        },
    )
    monitor = made(
        settings,
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        "service-monitor-hpp",
        namespaced=True,
        spec={
            "selector": {"matchLabels": {PROMETHEUS: "true"}},
            "namespaceSelector": {"matchNames": [settings.namespace]},
            "endpoints": [{"port": "metrics", "scheme": "http"}],
        },
    )
    rules = made(
        settings,
        "monitoring.coreos.com/v1",
        "PrometheusRule",
        "prometheus-hpp-rules",
        namespaced=True,
        spec={"groups": [{"name": "hpp.rules", "rules": [_recording(settings), *alerts(settings)]}]},
    )
    role = made(
        settings,
        f"{rbac}/v1",
        "Role",
        _MONITORING,
        namespaced=True,
        rules=[rule("core", "services endpoints pods", READ)],
    )
    binding = made(
        settings,
        f"{rbac}/v1",
        "RoleBinding",
        _MONITORING,
        namespaced=True,
        roleRef={"apiGroup": rbac, "kind": "Role", "name": _MONITORING},
        subjects=[account_subject("prometheus-k8s", namespace)],
    )
    objects = [rules, role, binding, monitor, service]
    for document in objects:
        document["metadata"]["labels"][PROMETHEUS] = "true"
    return objects


def alerts(settings: Settings) -> list[JsonObject]:
    """Upstream's alerts, and those of thin pools."""
    available, capacity = "kubevirt_hpp_pool_available_bytes", "kubevirt_hpp_pool_capacity_bytes"
    promised = "kubevirt_hpp_pool_provisioned_bytes"
    table = (
        ("HPPOperatorDown", f"{_UP} == 0", "5m", "critical", "Hostpath Provisioner operator is down."),
        (
            "HPPNotReady",
            "kubevirt_hpp_cr_ready == 0",
            "5m",
            "critical",
            "Hostpath Provisioner is not available to use.",
        ),
        (
            "HPPSharingPoolPathWithOS",
            "kubevirt_hpp_pool_path_shared_with_os == 1",
            "1m",
            "warning",
            "HPP pool path sharing a filesystem with OS, fix to prevent HPP PVs from causing disk pressure"
            " and affecting node operation.",
        ),
        (
            "HPPPoolOvercommitted",
            f"{promised} > {capacity} and {available} < 0.2 * {capacity}",
            "5m",
            "warning",
            "HPP pool has promised more than it has and is more than 80% full: volumes will get ENOSPC.",
        ),
        (
            "HPPPoolFull",
            f"{available} < {FULL_PERCENT / 100} * {capacity}",
            "1m",
            "critical",
            "HPP pool is full: writes to new blocks of its volumes fail.",
        ),
    )
    return [
        {
            "alert": name,
            "expr": expression,
            "for": after,
            "annotations": {"summary": summary, "runbook_url": settings.runbook_url % name},
            "labels": {
                "severity": "warning",
                "operator_health_impact": impact,
                "kubernetes_operator_part_of": "kubevirt",
                "kubernetes_operator_component": OPERATOR,
            },
        }
        for name, expression, after, impact, summary in table
    ]


def _recording(settings: Settings) -> JsonObject:
    # In the compact layout the operator is a part of virt-operator's process.
    pod = "virt-operator" if settings.layout == "compact" else OPERATOR
    up = f"sum(up{{namespace='{settings.namespace}', pod=~'{pod}-.*'}} or vector(0))"
    return {"record": _UP, "expr": up}

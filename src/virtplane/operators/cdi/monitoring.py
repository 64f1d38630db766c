"""What has Prometheus read the metrics of CDI and evaluate its alerts, where the cluster has Prometheus."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api import cdi_labels, resources
from virtplane.api import cdi_names as names
from virtplane.operators.cdi.product import Parameters, made
from virtplane.operators.kit.roles import READ, account_subject, rule

SERVICE_MONITORS = resources.SERVICE_MONITORS
PROMETHEUS_RULES = resources.PROMETHEUS_RULES

_ROLE = "cdi-monitoring"
_RBAC = "rbac.authorization.k8s.io"
_ACCOUNT = "prometheus-k8s"
_RESTARTS = "kube_pod_container_status_restarts_total"
_UNUSUAL_RESTARTS = 3
_INFO = "kubevirt_cdi_storageprofile_info"
_HEALTHY = ',degraded="false"'
_UP = "cluster:kubevirt_cdi_operator_up:sum"
_WORKERS = {
    "import": ("importer-.*", "importer"),
    "upload": ("cdi-upload-.*", "cdi-upload-server"),
    "clone": (".*-source-pod", "cdi-clone-source"),
}
"""Pods and containers whose restarts are counted."""


def monitoring_rules() -> list[JsonObject]:
    """What Prometheus may read to find the metrics."""
    return [rule("core", "services endpoints pods", READ)]


def monitoring(parameters: Parameters) -> list[JsonObject]:
    """The rules, the monitor with its token, and the rights of Prometheus."""
    role = made(parameters, f"{_RBAC}/v1", "Role", _ROLE, namespaced=True, rules=monitoring_rules())
    binding = made(
        parameters,
        f"{_RBAC}/v1",
        "RoleBinding",
        _ROLE,
        namespaced=True,
        roleRef={"apiGroup": _RBAC, "kind": "Role", "name": _ROLE},
        subjects=[account_subject(_ACCOUNT, parameters.settings.monitoring_namespace)],
    )
    token = made(
        parameters,
        "v1",
        "Secret",
        names.METRICS_READER_TOKEN,
        namespaced=True,
        type="kubernetes.io/service-account-token",
    )
    token["metadata"]["annotations"] = {"kubernetes.io/service-account.name": names.METRICS_READER}
    rules = made(
        parameters,
        PROMETHEUS_RULES.api_version,
        PROMETHEUS_RULES.kind,
        "prometheus-cdi-rules",
        namespaced=True,
        spec={
            "groups": [
                {"name": "recordingRules.rules", "rules": recordings(parameters)},
                {"name": "alerts.rules", "rules": alerts(parameters.settings.runbook_url)},
            ]
        },
    )
    monitor = _monitor(parameters)
    objects = [rules, monitor, role, binding, token]
    for document in objects:
        document["metadata"]["labels"][cdi_labels.PROMETHEUS] = "true"
    return objects


def _monitor(parameters: Parameters) -> JsonObject:
    credentials = {"name": names.METRICS_READER_TOKEN, "key": "token"}
    document = made(
        parameters,
        SERVICE_MONITORS.api_version,
        SERVICE_MONITORS.kind,
        "service-monitor-cdi",
        namespaced=True,
        spec={
            "selector": {"matchLabels": {cdi_labels.PROMETHEUS: "true"}},
            "namespaceSelector": {"matchNames": [parameters.namespace]},
            "endpoints": [
                {
                    "port": "metrics",
                    "scheme": "https",
                    "authorization": {"credentials": credentials},
                    "tlsConfig": {"insecureSkipVerify": True},
                }
            ],
        },
    )
    document["metadata"]["labels"]["openshift.io/cluster-monitoring"] = ""
    return document


def recordings(parameters: Parameters) -> list[JsonObject]:
    """The recording rules, under their present and their former names."""
    # In the compact layout the operator is a part of virt-operator's process.
    pod = "virt-operator" if parameters.settings.is_compact else names.OPERATOR
    up = f"sum(up{{namespace='{parameters.namespace}', pod=~'{pod}-.*'}} or vector(0))"
    found = {"kubevirt_cdi_operator_up": up, _UP: up}
    for what, (pods, container) in _WORKERS.items():
        chosen = f"{_RESTARTS}{{pod=~'{pods}', container='{container}'}}"
        expression = f"count({chosen} > {_UNUSUAL_RESTARTS}) or on() vector(0)"
        found[f"kubevirt_cdi_{what}_pods_high_restart"] = expression
        found[_high_restart(what)] = expression
    return [{"record": name, "expr": expression} for name, expression in found.items()]


def _high_restart(what: str) -> str:
    return f"cluster:kubevirt_cdi_{what}_pods_high_restart:count"


def alerts(runbook_url: str) -> list[JsonObject]:
    """The alerts: name, expression, how long it must hold, severity, impact, summary."""
    restarts = " or ".join(f"{_high_restart(what)} > 0" for what in _WORKERS)
    table = (
        ("CDIOperatorDown", f"{_UP} == 0", "10m", "critical", "critical", "CDI operator is down"),
        (
            "CDINotReady",
            "kubevirt_cdi_cr_ready == 0",
            "10m",
            "critical",
            "critical",
            "CDI is not available to use",
        ),
        (
            "CDIDataVolumeUnusualRestartCount",
            restarts,
            "5m",
            "warning",
            "none",
            "Some CDI population workloads have an unusual restart count, meaning they are probably failing"
            " and need to be investigated",
        ),
        (
            "CDIStorageProfilesIncomplete",
            f'sum by(storageclass,provisioner) (({_INFO}{{complete="false"}}>0))',
            "5m",
            "info",
            "none",
            "Incomplete StorageProfile {{ $labels.storageclass }}, accessMode/volumeMode cannot be inferred"
            " by CDI for PVC population request",
        ),
        (
            "CDIDataImportCronOutdated",
            'sum by(namespace,cron_name) (kubevirt_cdi_dataimportcron_outdated{pending="false"}) > 0',
            "15m",
            "warning",
            "none",
            "DataImportCron (recurring polling of VM templates disk image sources, also known as golden"
            " images) PVCs are not being updated on the defined schedule",
        ),
        (
            "CDINoDefaultStorageClass",
            f"{_defaults()} + (count(kubevirt_cdi_datavolume_pending == 0) or on() vector(0)) == 0",
            "5m",
            "warning",
            "none",
            "No default StorageClass or virtualization StorageClass, and a DataVolume is pending for one",
        ),
        (
            "CDIMultipleDefaultVirtStorageClasses",
            f'sum({_INFO}{{virtdefault="true"}} or on() vector(0)) > 1',
            "5m",
            "warning",
            "none",
            "More than one default virtualization StorageClass detected",
        ),
        (
            "CDIDefaultStorageClassDegraded",
            f'{_defaults(_HEALTHY)} + on () (0*(sum({_INFO}{{default="true"}}) or'
            f' sum({_INFO}{{virtdefault="true"}}))) == 0',
            "5m",
            "warning",
            "none",
            "Default storage class has no smart clone or ReadWriteMany",
        ),
    )
    return [
        {
            "alert": name,
            "expr": expression,
            "for": after,
            "annotations": {"summary": summary, "runbook_url": runbook_url % name},
            "labels": {
                "severity": severity,
                "operator_health_impact": impact,
                "kubernetes_operator_part_of": "kubevirt",
                "kubernetes_operator_component": cdi_labels.APP,
            },
        }
        for name, expression, after, severity, impact, summary in table
    ]


def _defaults(also: str = "") -> str:
    """How many classes are default, for all or for virtual machines."""
    counts = (f'sum({_INFO}{{{name}="true"{also}}} or on() vector(0))' for name in ("default", "virtdefault"))
    return " + ".join(counts)

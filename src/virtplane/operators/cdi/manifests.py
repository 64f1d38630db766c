"""What ``virtplane install`` applies for cdi-operator."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api import cdi_crds, cdi_labels, ports
from virtplane.api import cdi_names as names
from virtplane.api.accounts import COMPONENT_USER
from virtplane.api.pod_security import restricted_container
from virtplane.operators.cdi.operator_rights import operator_rights
from virtplane.operators.cdi.product import OPERATOR_LABEL, Settings, own_labels
from virtplane.operators.kit.workloads import probed


def install_objects(settings: Settings) -> list[JsonObject]:
    """The definition, the operator's rights, and in the distributed layout its Deployment."""
    objects = [cdi_crds.installation_definition(), *operator_rights(settings)]
    if not settings.is_compact:
        objects.append(_deployment(settings))
    return objects


def _deployment(settings: Settings) -> JsonObject:
    args = ["--namespace", "$(POD_NAMESPACE)", "--layout", settings.layout, "--image", settings.image]
    args += ["--verbosity", str(settings.verbosity)]
    if settings.require_webhook_certificate:
        args.append("--require-webhook-certificate")
    container: JsonObject = {
        "name": names.OPERATOR,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["virtplane", "run", names.OPERATOR],
        "args": args,
        "env": [
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "MONITORING_NAMESPACE", "value": settings.monitoring_namespace},
            {"name": "RUNBOOK_URL_TEMPLATE", "value": settings.runbook_url},
        ],
        "ports": [{"name": "metrics", "containerPort": ports.HEALTH, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "10m", "memory": "150Mi"}},
        "securityContext": restricted_container(),
    }
    probed(container, ports.HEALTH)
    own = {"name": names.OPERATOR, OPERATOR_LABEL: ""}
    pods = {**own, **own_labels(), cdi_labels.COMPONENT: names.OPERATOR, cdi_labels.PROMETHEUS: "true"}
    pod = {
        "serviceAccountName": names.OPERATOR,
        "securityContext": {"runAsNonRoot": True, "runAsUser": COMPONENT_USER},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": names.OPERATOR, "namespace": settings.namespace, "labels": pods},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": own},
            "template": {"metadata": {"labels": pods}, "spec": pod},
        },
    }

"""What cdi-operator itself may do; whoever grants rights must have them."""

from __future__ import annotations

from collections.abc import Sequence

from kubecore.json import JsonObject
from virtplane.api import cdi_names as names
from virtplane.operators.cdi import component_rights as components
from virtplane.operators.cdi import webhooks
from virtplane.operators.cdi.monitoring import monitoring_rules
from virtplane.operators.cdi.product import OPERATOR_LABEL, Settings, own_labels
from virtplane.operators.cdi.user_roles import edit_rules, view_rules
from virtplane.operators.kit.roles import READ, WRITE, account_subject, rule

_RBAC = "rbac.authorization.k8s.io"
_CLUSTER_ROLE = f"{names.OPERATOR}-cluster"
_AUTHENTICATION_READER = "extension-apiserver-authentication-reader"


def cluster_rules() -> list[JsonObject]:
    """The operator's in the whole cluster."""
    return [
        rule(_RBAC, "clusterroles clusterrolebindings", WRITE),
        rule("security.openshift.io", "securitycontextconstraints", WRITE),
        rule("apiextensions.k8s.io", "customresourcedefinitions customresourcedefinitions/status", WRITE),
        rule("cdi.kubevirt.io", "cdis cdis/finalizers cdis/status", WRITE),
        *_webhook_rules(),
        rule("apiregistration.k8s.io", "apiservices", WRITE),
        rule("populator.storage.k8s.io", "volumepopulators", WRITE),
        rule("core", "events", ("create", "patch", "update")),
        *edit_rules(),
        *view_rules(),
        *components.api_server_rules(),
        *components.controller_rules(),
        *components.upload_proxy_rules(),
        *components.cron_rules(),
        *components.metrics_rules(),
        *components.profile_rules(),
    ]


def _webhook_rules() -> list[JsonObject]:
    """Of the registrations of others the operator changes none."""
    group = "admissionregistration.k8s.io"
    both = "validatingwebhookconfigurations mutatingwebhookconfigurations"
    changed = ("get", "update", "patch", "delete")
    return [
        rule(group, both, ("create", "list", "watch")),
        rule(group, "validatingwebhookconfigurations", changed, webhooks.VALIDATING),
        rule(group, "mutatingwebhookconfigurations", changed, webhooks.MUTATING),
    ]


def namespace_rules() -> list[JsonObject]:
    """The operator's in its own namespace."""
    return [
        rule(_RBAC, "roles rolebindings", WRITE),
        rule("core", "serviceaccounts services configmaps secrets events", WRITE),
        rule("apps", "deployments deployments/finalizers", WRITE),
        rule(
            "route.openshift.io", "routes routes/custom-host", (*READ, "create", "update", "patch", "delete")
        ),
        rule("monitoring.coreos.com", "servicemonitors prometheusrules", WRITE),
        *components.api_server_namespace_rules(),
        *components.controller_namespace_rules(),
        *components.upload_proxy_namespace_rules(),
        *monitoring_rules(),
    ]


def operator_rights(settings: Settings) -> list[JsonObject]:
    """The operator's account, roles and bindings, and cdi-apiserver's right to know the front proxy.

    That one is in a namespace in which the operator may write nothing.
    """
    subjects = [account_subject(names.OPERATOR, settings.namespace)]
    reader = _binding(
        "RoleBinding",
        "cdi-extension-apiserver-authentication",
        ("Role", _AUTHENTICATION_READER),
        [account_subject(names.API_SERVER, settings.namespace)],
        namespace="kube-system",
    )
    namespace = settings.namespace
    return [
        _made("v1", "ServiceAccount", names.OPERATOR, namespace),
        {**_made(f"{_RBAC}/v1", "ClusterRole", _CLUSTER_ROLE), "rules": cluster_rules()},
        _binding("ClusterRoleBinding", names.OPERATOR, ("ClusterRole", _CLUSTER_ROLE), subjects),
        {**_made(f"{_RBAC}/v1", "Role", names.OPERATOR, namespace), "rules": namespace_rules()},
        _binding("RoleBinding", names.OPERATOR, ("Role", names.OPERATOR), subjects, namespace=namespace),
        reader,
    ]


def _binding(
    kind: str,
    name: str,
    role: tuple[str, str],
    subjects: Sequence[JsonObject],
    *,
    namespace: str = "",
) -> JsonObject:
    return {
        **_made(f"{_RBAC}/v1", kind, name, namespace),
        "roleRef": {"apiGroup": _RBAC, "kind": role[0], "name": role[1]},
        "subjects": list(subjects),
    }


def _made(api_version: str, kind: str, name: str, namespace: str = "") -> JsonObject:
    metadata: JsonObject = {"name": name, "labels": {OPERATOR_LABEL: "", **own_labels()}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}

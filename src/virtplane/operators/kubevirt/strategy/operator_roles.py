"""The rights of virt-operator itself."""

from __future__ import annotations

from collections.abc import Sequence

from kubecore.json import JsonObject
from virtplane.components import CDI_COMPONENTS, CDI_OPERATOR, COMPONENTS
from virtplane.operators.kit.roles import (
    AGGREGATE_TO,
    ALL,
    READ,
    WRITE,
    account_subject,
    rule,
)
from virtplane.operators.kubevirt.product import ACCESS
from virtplane.operators.kubevirt.strategy.components import INSTALLED, rights, vm_console_proxy
from virtplane.operators.kubevirt.strategy.monitoring import metrics_rule

OPERATOR = COMPONENTS["virt-operator"].service_account


def operator_rules(namespace: str) -> list[JsonObject]:
    """virt-operator: installs everything, and so holds every right that it hands out.

    In the compact layout it runs other components in its own process, each impersonating its own account.
    """
    components = (*INSTALLED, vm_console_proxy.COMPONENT)
    granted = [rule for component in components for rule in component.cluster_rules]
    return [
        rule("kubevirt.io", "kubevirts kubevirts/status kubevirts/finalizers", (*READ, "patch", "update")),
        rule("core", "serviceaccounts services endpoints", WRITE),
        rule("core", "configmaps", ("create", "patch", "update", "delete")),
        rule("apps", "controllerrevisions", ("watch", "list", "create", "delete", "patch")),
        rule("apps", "deployments daemonsets", WRITE),
        rule("policy", "poddisruptionbudgets", WRITE),
        rule("rbac.authorization.k8s.io", "clusterroles clusterrolebindings roles rolebindings", WRITE),
        rule("apiextensions.k8s.io", "customresourcedefinitions", WRITE),
        rule(
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations mutatingwebhookconfigurations validatingadmissionpolicies"
            " validatingadmissionpolicybindings",
            WRITE,
        ),
        rule("apiregistration.k8s.io", "apiservices", WRITE),
        rule("scheduling.k8s.io", "priorityclasses", WRITE),
        rule("monitoring.coreos.com", "servicemonitors prometheusrules", WRITE),
        *_constraint_rules(),
        rule("core", "namespaces", (*READ, "patch")),
        rule("core", "nodes", READ),
        rule("core events.k8s.io", "events", rights.EVENT_VERBS),
        rule("instancetype.kubevirt.io", "*", ALL),
        rule("authentication.k8s.io", "tokenreviews", ("create",)),
        rule("authorization.k8s.io", "subjectaccessreviews", ("create",)),
        metrics_rule(),
        rule("core", "serviceaccounts", ("impersonate",), _impersonated()),
        # In the compact layout, impersonating requests state the node that the components run on.
        rule("authentication.k8s.io", "userextras/authentication.kubernetes.io/node-name", ("impersonate",)),
        *_without_duplicates(granted),
        *_user_rights(),
    ]


def _constraint_rules() -> list[JsonObject]:
    """Of the constraints of others the operator changes none."""
    accounts = [COMPONENTS[name].service_account for name in ("virt-handler", "virt-controller")]
    group, kind = "security.openshift.io", "securitycontextconstraints"
    return [
        rule(group, kind, ("create", *READ)),
        rule(group, kind, ("update", "patch", "delete"), accounts),
    ]


def _impersonated() -> list[str]:
    """The accounts of the components that a compact process runs."""
    beside = ("hostpath-provisioner-operator", CDI_OPERATOR, *CDI_COMPONENTS)
    own = [component.account for component in (*INSTALLED, vm_console_proxy.COMPONENT)]
    return [*own, *(COMPONENTS[name].service_account for name in beside)]


def _user_rights() -> list[JsonObject]:
    """The rights of the user roles: the operator can grant only rights that it has itself."""
    groups = (
        "kubevirt.io subresources.kubevirt.io snapshot.kubevirt.io backup.kubevirt.io export.kubevirt.io"
        " clone.kubevirt.io instancetype.kubevirt.io pool.kubevirt.io migrations.kubevirt.io"
        " plugin.kubevirt.io token.kubevirt.io"
    )
    return [rule(groups, "*", (*ALL,))]


def operator_objects(namespace: str) -> list[JsonObject]:
    """The operator's own account, roles and bindings, which come with its manifests."""
    subjects = [account_subject(OPERATOR, namespace)]
    own_role = [
        rule("core", "secrets configmaps pods", WRITE),
        rule("route.openshift.io", "routes routes/custom-host", WRITE),
        *_without_duplicates([rule for component in INSTALLED for rule in component.namespace_rules]),
    ]
    administration = ACCESS.cluster_role(
        "kubevirt.io:operator", [rule("kubevirt.io", "kubevirts", ALL)], {AGGREGATE_TO + "admin": "true"}
    )
    return [
        administration,
        ACCESS.service_account(OPERATOR, namespace),
        ACCESS.cluster_role(OPERATOR, operator_rules(namespace)),
        ACCESS.bind_cluster_role(OPERATOR, subjects),
        ACCESS.bind_cluster_role(OPERATOR + "-auth-delegator", subjects, "system:auth-delegator"),
        ACCESS.role(OPERATOR, namespace, own_role),
        ACCESS.bind_role(OPERATOR, namespace, subjects),
        ACCESS.bind_role(
            OPERATOR + "-auth-reader", "kube-system", subjects, "extension-apiserver-authentication-reader"
        ),
    ]


def _without_duplicates(rules: Sequence[JsonObject]) -> list[JsonObject]:
    kept: list[JsonObject] = []
    for candidate in rules:
        if candidate not in kept:
            kept.append(candidate)
    return kept

"""Service accounts of components, and the least that each may do."""

from __future__ import annotations

from collections.abc import Sequence

from kubecore.json import JsonObject
from virtplane.api.resources import SUBRESOURCES_GROUP
from virtplane.components import COMPONENTS
from virtplane.operators.kit.roles import (
    AGGREGATE_TO,
    ALL,
    READ,
    WRITE,
    account_subject,
    rule,
)
from virtplane.operators.kubevirt.product import ACCESS
from virtplane.operators.kubevirt.strategy.monitoring import metrics_rule

API = COMPONENTS["virt-api"].service_account
CONTROLLER = COMPONENTS["virt-controller"].service_account
HANDLER = COMPONENTS["virt-handler"].service_account
EXPORT_PROXY = "kubevirt-exportproxy"
OPERATOR = COMPONENTS["virt-operator"].service_account

_CRDS = rule("apiextensions.k8s.io", "customresourcedefinitions", READ)
_INSTALLATION = rule("kubevirt.io", "kubevirts", READ)
_POLICIES = rule("migrations.kubevirt.io", "migrationpolicies", READ)
_CONFIG_MAPS = rule("core", "configmaps", READ)
_LEASES = rule(
    "coordination.k8s.io", "leases", ("get", "list", "watch", "delete", "update", "create", "patch")
)
_INSTANCETYPES = rule(
    "instancetype.kubevirt.io",
    "virtualmachineinstancetypes virtualmachineclusterinstancetypes virtualmachinepreferences"
    " virtualmachineclusterpreferences",
    READ,
)
_SNAPSHOTS = "virtualmachinesnapshots virtualmachinerestores virtualmachinesnapshotcontents"
_EVENTS = ("update", "create", "patch")


def _with_parts(plural: str) -> str:
    return f"{plural} {plural}/status {plural}/finalizers"


def api_rules() -> list[JsonObject]:
    """virt-api: reads what webhooks and subresources look up; changes machines and instances."""
    return [
        rule("core", "pods", ("get", "list", "delete", "patch")),
        rule(
            "kubevirt.io",
            "virtualmachines virtualmachineinstances",
            ("get", "list", "watch", "patch", "update"),
        ),
        rule("core", "persistentvolumeclaims", ("get", "list")),
        rule("kubevirt.io", "virtualmachines/status", ("patch",)),
        rule("kubevirt.io", "virtualmachineinstancemigrations", ("create", "get", "list", "watch", "patch")),
        rule("kubevirt.io", "virtualmachineinstancepresets", ("watch", "list")),
        _CONFIG_MAPS,
        rule("core", "limitranges", ("watch", "list")),
        _CRDS,
        _INSTALLATION,
        rule("snapshot.kubevirt.io", _SNAPSHOTS, READ),
        rule("snapshot.storage.k8s.io", "volumesnapshots", ("get",)),
        rule("backup.kubevirt.io", "virtualmachinebackups virtualmachinebackuptrackers", READ),
        rule("cdi.kubevirt.io", "datasources datavolumes", READ),
        rule("core", "namespaces", READ),
        _INSTANCETYPES,
        _POLICIES,
        rule("apps", "controllerrevisions", ("create", "list", "get")),
        rule("core", "nodes", ("get",)),
    ]


def controller_rules() -> list[JsonObject]:
    """virt-controller: everything that becomes of machines."""
    return [
        rule("core", "namespaces", ("get", "list", "watch", "patch")),
        rule("policy", "poddisruptionbudgets", ("get", "list", "watch", "delete", "create", "patch")),
        rule("core", "pods configmaps endpoints services", WRITE),
        rule("core events.k8s.io", "events", _EVENTS),
        rule("core", "secrets", ("create",)),
        rule("core", "pods/finalizers", ("update",)),
        rule("core", "pods/eviction", ("create",)),
        rule("core", "pods/status", ("patch",)),
        rule("core", "nodes", ("get", "list", "watch", "update", "patch")),
        rule("apps", "daemonsets", ("list",)),
        rule("apps", "controllerrevisions", ("watch", "list", "create", "delete", "get", "update")),
        rule("core", "persistentvolumeclaims", WRITE),
        rule("snapshot.kubevirt.io", " ".join(_with_parts(kind) for kind in _SNAPSHOTS.split()), WRITE),
        rule("export.kubevirt.io", _with_parts("virtualmachineexports"), WRITE),
        rule(
            "backup.kubevirt.io",
            _with_parts("virtualmachinebackups") + " " + _with_parts("virtualmachinebackuptrackers"),
            WRITE,
        ),
        rule("template.kubevirt.io", "virtualmachinetemplates", READ),
        rule("pool.kubevirt.io", _with_parts("virtualmachinepools") + " virtualmachinepools/scale", WRITE),
        rule("kubevirt.io", "*", ("*",)),
        rule("kubevirt.io", "virtualmachines/finalizers virtualmachineinstances/finalizers", ("update",)),
        rule(SUBRESOURCES_GROUP, "virtualmachines/stop", ("update",)),
        rule(
            SUBRESOURCES_GROUP,
            " ".join(
                f"virtualmachineinstances/{action}"
                for action in [
                    "addvolume",
                    "removevolume",
                    "backup",
                    "redefine-checkpoint",
                    "freeze",
                    "unfreeze",
                    "reset",
                    "softreboot",
                    "sev/setupsession",
                    "sev/injectlaunchsecret",
                ]
            ),
            ("update",),
        ),
        rule("cdi.kubevirt.io", "*", ("*",)),
        _CRDS,
        rule("authorization.k8s.io", "subjectaccessreviews", ("create",)),
        rule("snapshot.storage.k8s.io", "volumesnapshotclasses", READ),
        rule(
            "snapshot.storage.k8s.io",
            "volumesnapshots",
            ("get", "list", "watch", "create", "update", "delete"),
        ),
        rule("storage.k8s.io", "storageclasses", READ),
        _INSTANCETYPES,
        _POLICIES,
        rule(
            "clone.kubevirt.io",
            _with_parts("virtualmachineclones"),
            ("get", "list", "watch", "update", "patch", "delete"),
        ),
        rule("core", "resourcequotas", ("list", "watch")),
        rule("batch", "jobs", ("create", "get", "delete")),
        rule("resource.k8s.io", "resourceslices resourceclaims", READ),
    ]


def handler_rules() -> list[JsonObject]:
    """virt-handler: reports its guests and its node."""
    return [
        rule("kubevirt.io", "virtualmachineinstances", ("update", "list", "watch")),
        rule("core", "nodes", ("patch", "list", "watch", "get")),
        rule("core", "nodes/status", ("patch",)),
        _CONFIG_MAPS,
        rule("core events.k8s.io", "events", ("create", "patch")),
        _CRDS,
        _INSTALLATION,
        _POLICIES,
        rule(
            "backup.kubevirt.io",
            "virtualmachinebackuptrackers virtualmachinebackuptrackers/status",
            ("list", "watch", "patch"),
        ),
        rule("plugin.kubevirt.io", "plugins", READ),
    ]


def export_proxy_rules() -> list[JsonObject]:
    """virt-exportproxy: finds exports."""
    return [
        rule("export.kubevirt.io", "virtualmachineexports", READ),
        rule("kubevirt.io", "kubevirts", ("list", "watch")),
    ]


def controller_namespace_rules() -> list[JsonObject]:
    """virt-controller in the namespace of the installation: how exports are reached from outside."""
    return [
        rule("core", "secrets", READ),
        rule("networking.k8s.io", "ingresses", READ),
        rule("route.openshift.io", "routes", READ),
        _LEASES,
    ]


def component_roles(namespace: str) -> list[JsonObject]:
    """Accounts, roles and bindings of the components that the operator installs."""
    return [
        *ACCESS.component(API, namespace, api_rules(), [_CONFIG_MAPS]),
        ACCESS.bind_cluster_role(
            "kubevirt-apiserver-auth-delegator", [account_subject(API, namespace)], "system:auth-delegator"
        ),
        ACCESS.bind_role(
            "kubevirt-apiserver-auth-reader",
            "kube-system",
            [account_subject(API, namespace)],
            "extension-apiserver-authentication-reader",
        ),
        *ACCESS.component(CONTROLLER, namespace, controller_rules(), controller_namespace_rules()),
        *ACCESS.component(HANDLER, namespace, handler_rules(), [_CONFIG_MAPS]),
        # Both ask who reads their metrics.
        *(
            ACCESS.bind_cluster_role(
                f"{name}-auth-delegator", [account_subject(name, namespace)], "system:auth-delegator"
            )
            for name in (CONTROLLER, HANDLER)
        ),
        *ACCESS.component(EXPORT_PROXY, namespace, export_proxy_rules(), [_CONFIG_MAPS]),
    ]


def operator_rules(namespace: str) -> list[JsonObject]:
    """virt-operator: installs everything, and so holds every right that it hands out.

    In the compact layout it runs other components in its own process, each impersonating its own account.
    """
    granted = [*api_rules(), *controller_rules(), *handler_rules(), *export_proxy_rules()]
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
        rule("core", "namespaces", (*READ, "patch")),
        rule("core", "nodes", READ),
        rule("core events.k8s.io", "events", _EVENTS),
        rule("instancetype.kubevirt.io", "*", ALL),
        rule("authentication.k8s.io", "tokenreviews", ("create",)),
        rule("authorization.k8s.io", "subjectaccessreviews", ("create",)),
        metrics_rule(),
        rule("core", "serviceaccounts", ("impersonate",), (API, CONTROLLER, HANDLER, EXPORT_PROXY)),
        # The compact layout tells the server which node its components run on.
        rule("authentication.k8s.io", "userextras/authentication.kubernetes.io/node-name", ("impersonate",)),
        *_without_duplicates(granted),
        *_user_rights(),
    ]


def _user_rights() -> list[JsonObject]:
    """Rights that the user roles grant; nobody may grant what he does not have."""
    groups = (
        "kubevirt.io subresources.kubevirt.io snapshot.kubevirt.io backup.kubevirt.io export.kubevirt.io"
        " clone.kubevirt.io instancetype.kubevirt.io pool.kubevirt.io migrations.kubevirt.io"
        " plugin.kubevirt.io"
    )
    return [rule(groups, "*", (*ALL,))]


def operator_objects(namespace: str) -> list[JsonObject]:
    """The operator's own account, roles and bindings, which come with its manifests."""
    subjects = [account_subject(OPERATOR, namespace)]
    own_role = [
        rule("core", "secrets configmaps pods", WRITE),
        rule("route.openshift.io", "routes routes/custom-host", WRITE),
        *controller_namespace_rules(),
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

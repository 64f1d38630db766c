"""Accounts and rights: those of the driver, of the legacy provisioner, and of the operator itself."""

from __future__ import annotations

from collections.abc import Sequence

from kubecore.json import JsonObject
from virtplane.operators.hostpath.product import CSI_ACCOUNT, LEGACY_ACCOUNT, NAME, OPERATOR, Settings, made
from virtplane.operators.kit.roles import READ, WRITE, account_subject, rule

_GROUP = "rbac.authorization.k8s.io"
_EVENT_VERBS = ("list", "watch", "create", "patch", "update")


def legacy_rules() -> list[JsonObject]:
    """The legacy provisioner's."""
    return [
        rule("core", "persistentvolumes", (*READ, "create", "delete")),
        rule("core", "persistentvolumeclaims", (*READ, "update")),
        rule("storage.k8s.io", "storageclasses", READ),
        rule("core", "events", _EVENT_VERBS),
        rule("core", "nodes", ("get",)),
    ]


def driver_rules(*, snapshots: bool) -> list[JsonObject]:
    """The CSI driver's sidecars': upstream's, and those of expansion, which upstream has not.

    Our sidecars write patches where upstream's write whole objects.
    """
    rules = [
        rule("core", "persistentvolumes", (*READ, "create", "delete", "patch")),
        rule("core", "persistentvolumeclaims", (*READ, "update", "patch")),
        rule("core", "persistentvolumeclaims/status", ("patch", "update")),
        rule("core", "pods", READ),
        rule("storage.k8s.io", "storageclasses", (*READ, "create")),
        rule("core", "events", _EVENT_VERBS),
        rule("storage.k8s.io", "csinodes volumeattributesclasses", READ),
        rule("core", "nodes", READ),
        rule("storage.k8s.io", "volumeattachments", (*READ, "patch")),
        rule("storage.k8s.io", "volumeattachments/status", ("patch",)),
    ]
    if snapshots:
        group = "snapshot.storage.k8s.io"
        rules += [
            rule(group, "volumesnapshotclasses", READ),
            rule(group, "volumesnapshots", (*READ, "update", "patch")),
            rule(group, "volumesnapshotcontents", ("create", *READ, "update", "delete", "patch")),
            rule(group, "volumesnapshotcontents/status", ("update", "patch")),
        ]
    return rules


def driver_namespace_rules() -> list[JsonObject]:
    """The sidecars' in the operator's namespace."""
    return [
        rule("coordination.k8s.io", "leases", ("get", "update", "create")),
        rule("storage.k8s.io", "csistoragecapacities", (*READ, "delete", "update", "patch", "create")),
        rule("core", "pods", ("get",)),
        # The owner of a node's storage capacities is found through the pod's.
        rule("apps", "daemonsets replicasets", ("get",)),
    ]


def operator_rules() -> list[JsonObject]:
    """The operator's own; whoever grants rights must have them."""
    return [
        rule(
            "hostpathprovisioner.kubevirt.io",
            "hostpathprovisioners hostpathprovisioners/finalizers hostpathprovisioners/status",
            WRITE,
        ),
        rule("storage.k8s.io", "csidrivers", WRITE),
        rule(_GROUP, "clusterroles clusterrolebindings roles rolebindings", WRITE),
        rule(
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations validatingadmissionpolicies validatingadmissionpolicybindings",
            WRITE,
        ),
        rule("apps", "daemonsets deployments", WRITE),
        rule("batch", "jobs", WRITE),
        rule("core", "serviceaccounts services persistentvolumeclaims", WRITE),
        rule("monitoring.coreos.com", "servicemonitors prometheusrules", WRITE),
        rule("security.openshift.io", "securitycontextconstraints", WRITE),
        rule("core", "pods", READ),
        # What Prometheus is granted, which finds the metrics through them.
        rule("core", "services endpoints", READ),
        rule("core", "events", _EVENT_VERBS),
        rule("authentication.k8s.io", "tokenreviews", ("create",)),
        rule("authorization.k8s.io", "subjectaccessreviews", ("create",)),
        *driver_rules(snapshots=True),
        *driver_namespace_rules(),
        *legacy_rules(),
    ]


def operator_namespace_rules() -> list[JsonObject]:
    """The operator's in its own namespace: its certificates and its lease."""
    return [
        rule("core", "secrets configmaps", WRITE),
        rule("coordination.k8s.io", "leases", ("get", "update", "create")),
    ]


def accounts(settings: Settings, *, legacy: bool) -> list[JsonObject]:
    """The ServiceAccounts of the driver, and of the legacy provisioner if there is one."""
    names = [LEGACY_ACCOUNT, CSI_ACCOUNT] if legacy else [CSI_ACCOUNT]
    return [made(settings, "v1", "ServiceAccount", name, namespaced=True) for name in names]


def cluster_rights(settings: Settings, *, legacy: bool, snapshots: bool) -> list[JsonObject]:
    """ClusterRoles and their bindings."""
    granted = [(CSI_ACCOUNT, CSI_ACCOUNT, driver_rules(snapshots=snapshots))]
    if legacy:
        granted.insert(0, (NAME, LEGACY_ACCOUNT, legacy_rules()))
    roles = [made(settings, f"{_GROUP}/v1", "ClusterRole", name, rules=rules) for name, _, rules in granted]
    return roles + [
        _binding(settings, "ClusterRole", name, [account_subject(account, settings.namespace)])
        for name, account, _ in granted
    ]


def namespace_rights(settings: Settings) -> list[JsonObject]:
    """The driver's Role and its binding."""
    role = made(
        settings, f"{_GROUP}/v1", "Role", CSI_ACCOUNT, namespaced=True, rules=driver_namespace_rules()
    )
    subjects = [account_subject(CSI_ACCOUNT, settings.namespace)]
    return [role, _binding(settings, "Role", CSI_ACCOUNT, subjects)]


def operator_rights(settings: Settings) -> list[JsonObject]:
    """The operator's account, roles and bindings, which come with its manifests."""
    subjects = [account_subject(OPERATOR, settings.namespace)]
    version = f"{_GROUP}/v1"
    return [
        made(settings, "v1", "ServiceAccount", OPERATOR, namespaced=True),
        made(settings, version, "ClusterRole", OPERATOR, rules=operator_rules()),
        _binding(settings, "ClusterRole", OPERATOR, subjects),
        made(settings, version, "Role", OPERATOR, namespaced=True, rules=operator_namespace_rules()),
        _binding(settings, "Role", OPERATOR, subjects),
        _binding(
            settings, "ClusterRole", f"{OPERATOR}-auth-delegator", subjects, role_name="system:auth-delegator"
        ),
        _reader_binding(settings, subjects),
    ]


def _reader_binding(settings: Settings, subjects: Sequence[JsonObject]) -> JsonObject:
    """The right to read the API server's front proxy's certificates, which webhooks may insist on."""
    name = f"{OPERATOR}-auth-reader"
    document = _binding(
        settings, "Role", name, subjects, role_name="extension-apiserver-authentication-reader"
    )
    document["metadata"]["namespace"] = "kube-system"
    return document


def _binding(
    settings: Settings, kind: str, name: str, subjects: Sequence[JsonObject], role_name: str = ""
) -> JsonObject:
    return made(
        settings,
        f"{_GROUP}/v1",
        f"{kind}Binding",
        name,
        namespaced=kind == "Role",
        roleRef={"apiGroup": _GROUP, "kind": kind, "name": role_name or name},
        subjects=list(subjects),
    )

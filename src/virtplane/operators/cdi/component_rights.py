"""Accounts of the components and what they may do.

Controllers write patches where upstream's write whole objects. Of CDI's own kinds they have the rights that
they need, where upstream's have all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubecore.json import JsonObject
from virtplane.api import cdi_names as names
from virtplane.operators.cdi.product import Parameters, made
from virtplane.operators.kit.roles import ALL, READ, account_subject, path_rule, rule

_RBAC = "rbac.authorization.k8s.io"
_CDI = "cdi.kubevirt.io"
_SNAPSHOTS = "snapshot.storage.k8s.io"
_CONTROLLER_ROLE = "cdi"
_PPROF_READER = "cdi-pprof-reader"
_CREATE = ("create",)
_GET = ("get",)
_LIST = ("list",)
_UPDATE = ("update",)
_CHANGE = ("update", "patch")
_READ_AND_CHANGE = (*READ, *_CHANGE)


def api_server_rules() -> list[JsonObject]:
    """cdi-apiserver's: what its webhooks look up, and whether users may do what they ask for."""
    return [
        rule("authorization.k8s.io", "subjectaccessreviews", _CREATE),
        rule("authentication.k8s.io", "tokenreviews", _CREATE),
        rule("core", "namespaces persistentvolumeclaims", _GET),
        rule("core", "persistentvolumes", _LIST),
        rule("storage.k8s.io", "storageclasses", _LIST),
        rule(_SNAPSHOTS, "volumesnapshots", _GET),
        rule(_CDI, "datavolumes", ("get", "list")),
        rule(_CDI, "cdis datasources volumeclonesources", _GET),
        rule(_CDI, "cdiconfigs", READ),
        rule(_CDI, "storageprofiles", _LIST),
    ]


def api_server_namespace_rules() -> list[JsonObject]:
    """cdi-apiserver's in CDI's namespace: the key that it signs tokens with."""
    return [
        rule("core", "secrets", _GET, [names.SIGNING_KEY]),
        rule("core", "secrets", _CREATE),
    ]


def upload_proxy_rules() -> list[JsonObject]:
    """cdi-uploadproxy's: the claims that are uploaded to, and who reads its metrics."""
    return [
        rule("core", "persistentvolumeclaims", _GET),
        rule(_CDI, "cdiconfigs", READ),
        rule("authentication.k8s.io", "tokenreviews", _CREATE),
        rule("authorization.k8s.io", "subjectaccessreviews", _CREATE),
    ]


def upload_proxy_namespace_rules() -> list[JsonObject]:
    """cdi-uploadproxy's in CDI's namespace: the authorities of upload servers, and the key of tokens."""
    return [rule("core", "configmaps", _GET), rule("core", "secrets", _GET, [names.SIGNING_KEY])]


def cron_rules() -> list[JsonObject]:
    """Those of the jobs that look at the sources of crons."""
    return [rule(_CDI, "dataimportcrons", ("get", "list", "update", "patch"))]


def controller_rules() -> list[JsonObject]:
    """cdi-deployment's in all namespaces."""
    return [
        rule("core", "events", ("create", "patch", *READ)),
        rule("core", "persistentvolumeclaims", ALL),
        rule("core", "persistentvolumes", _READ_AND_CHANGE),
        rule("core", "persistentvolumeclaims/finalizers pods/finalizers", _UPDATE),
        rule("core", "pods", (*READ, "create", "delete", "patch")),  # opens their gates
        rule("core", "services", (*READ, "create", "delete")),
        rule("core", "namespaces", READ),
        rule("core", "configmaps", ("get", "create")),
        rule("core", "secrets", _CREATE),
        rule("storage.k8s.io", "storageclasses csidrivers", READ),
        rule("config.openshift.io", "proxies infrastructures", READ),
        rule("config.openshift.io", "clusterversions", _GET),
        rule(_CDI, "datavolumes dataimportcrons datasources objecttransfers storageprofiles", ALL),
        rule(_CDI, "volumeimportsources volumeuploadsources volumeclonesources cdiconfigs", ALL),
        rule(_CDI, "datavolumes/status objecttransfers/status storageprofiles/status", ("get", *_CHANGE)),
        rule(
            _CDI,
            "datavolumes/finalizers dataimportcrons/finalizers datasources/finalizers"
            " objecttransfers/finalizers cdis/finalizers",
            _UPDATE,
        ),
        rule(_CDI, "cdis", READ),
        rule("forklift.cdi.kubevirt.io", "ovirtvolumepopulators openstackvolumepopulators", _READ_AND_CHANGE),
        rule(_SNAPSHOTS, "volumesnapshots", ALL),
        rule(_SNAPSHOTS, "volumesnapshotclasses", READ),
        rule(_SNAPSHOTS, "volumesnapshotcontents", (*READ, "create", "delete")),
        rule("apiextensions.k8s.io", "customresourcedefinitions", READ),
        rule("scheduling.k8s.io", "priorityclasses", READ),
        rule("image.openshift.io", "imagestreams", READ),
        rule("kubevirt.io", "virtualmachines/finalizers", _UPDATE),
        rule("authentication.k8s.io", "tokenreviews", _CREATE),
        rule("authorization.k8s.io", "subjectaccessreviews", _CREATE),
    ]


def controller_namespace_rules() -> list[JsonObject]:
    """cdi-deployment's in CDI's namespace."""
    return [
        rule("core", "configmaps", (*READ, "create", "delete", *_CHANGE)),
        rule("core", "secrets", READ),
        rule("batch", "cronjobs", ALL),
        rule("batch", "jobs", (*READ, "create", "delete", "deletecollection")),
        rule("coordination.k8s.io", "leases", ("get", "create", *_CHANGE)),
        rule("networking.k8s.io", "ingresses", READ),
        rule("route.openshift.io", "routes", READ),
    ]


def metrics_rules() -> list[JsonObject]:
    """Those of whoever reads metrics."""
    return [path_rule("/metrics", _GET)]


def profile_rules() -> list[JsonObject]:
    """Those of whoever profiles the components."""
    return [path_rule("/debug/pprof /debug/pprof/*", _GET)]


@dataclass(frozen=True, slots=True)
class _Account:
    """A ServiceAccount with its rights in the cluster and in CDI's namespace.

    `cluster_role` and `role` are named as upstream does.
    """

    name: str
    rules: Sequence[JsonObject]
    namespace_rules: Sequence[JsonObject] = ()
    cluster_role: str = ""
    role: str = ""


def _accounts() -> list[_Account]:
    return [
        _Account(names.API_SERVER, api_server_rules(), api_server_namespace_rules()),
        _Account(
            names.CONTROLLER_ACCOUNT,
            controller_rules(),
            controller_namespace_rules(),
            _CONTROLLER_ROLE,
            names.CONTROLLER,
        ),
        _Account(names.UPLOAD_PROXY, upload_proxy_rules(), upload_proxy_namespace_rules()),
        _Account(names.CRON_ACCOUNT, cron_rules()),
        _Account(names.METRICS_READER, metrics_rules()),
    ]


def component_rights(parameters: Parameters) -> list[JsonObject]:
    """The accounts, their roles, and the bindings."""
    found: list[JsonObject] = []
    for account in _accounts():
        found += _rights(parameters, account)
    found.append(made(parameters, f"{_RBAC}/v1", "ClusterRole", _PPROF_READER, rules=profile_rules()))
    return found


def _rights(parameters: Parameters, account: _Account) -> list[JsonObject]:
    version = f"{_RBAC}/v1"
    cluster_role, role = account.cluster_role or account.name, account.role or account.name
    subjects = [account_subject(account.name, parameters.namespace)]
    found = [
        made(parameters, "v1", "ServiceAccount", account.name, namespaced=True),
        made(parameters, version, "ClusterRole", cluster_role, rules=list(account.rules)),
        made(
            parameters,
            version,
            "ClusterRoleBinding",
            account.name,
            roleRef={"apiGroup": _RBAC, "kind": "ClusterRole", "name": cluster_role},
            subjects=subjects,
        ),
    ]
    if account.namespace_rules:
        rules = list(account.namespace_rules)
        found += [
            made(parameters, version, "Role", role, namespaced=True, rules=rules),
            made(
                parameters,
                version,
                "RoleBinding",
                role,
                namespaced=True,
                roleRef={"apiGroup": _RBAC, "kind": "Role", "name": role},
                subjects=subjects,
            ),
        ]
    return found

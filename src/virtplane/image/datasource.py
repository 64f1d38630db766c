"""The objects by which a cluster offers a disk to its users: a DataVolume, and a DataSource that leads to it.

Machines name the DataSource (``sourceRef``), and infer the instance type and the preference from its labels.
"""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import ROLE_BINDINGS, ROLES
from virtplane.api import cdi_labels, labels, resources

NAME = "debian"
NAMESPACE = "kubevirt-os-images"
"""Where KubeVirt's SSP operator has such disks, unless an administrator names another namespace."""
INSTANCETYPE, PREFERENCE = "u1.small", "debian"
"""Of the common instance types, for machines that name none."""

UPLOAD: JsonObject = {"upload": {}}
"""The source of a DataVolume to which a client uploads the disk."""

_MANAGED_BY, _MANAGER = "app.kubernetes.io/managed-by", "virtplane-image"
SELECTOR = f"{_MANAGED_BY}={_MANAGER}"
"""Selects DataVolumes and DataSources that were made here."""

_VIEW = "os-images.kubevirt.io:view"
"""What SSP calls the Role, and its RoleBinding."""
_EVERYBODY = ("system:authenticated", "system:serviceaccounts")

_LABELS = {
    _MANAGED_BY: _MANAGER,
    labels.DEFAULT_INSTANCETYPE: INSTANCETYPE,
    labels.DEFAULT_PREFERENCE: PREFERENCE,
}


def http_source(url: str, *, checksum: str = "", cert_config_map: str = "") -> JsonObject:
    """The source of a DataVolume that imports the disk from `url`.

    `checksum` (``sha256:…``) is that of the file; `cert_config_map` names a ConfigMap with the certificate
    authority of an HTTPS server.
    """
    http: JsonObject = {"url": url}
    if checksum:
        http["checksum"] = checksum
    if cert_config_map:
        http["certConfigMap"] = cert_config_map
    return {"http": http}


def data_volume(
    namespace: str, source: JsonObject, size_bytes: int, *, name: str = NAME, storage_class: str = ""
) -> JsonObject:
    """The DataVolume `name` with a disk of `size_bytes` out of `source`.

    It is filled at once, since no machine ever uses it itself. The storage class's profile says the rest.
    """
    storage: JsonObject = {"resources": {"requests": {"storage": str(size_bytes)}}}
    if storage_class:
        storage["storageClassName"] = storage_class
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(_LABELS),
            "annotations": {cdi_labels.IMMEDIATE_BINDING: "true"},
        },
        "spec": {"source": source, "storage": storage},
    }


def data_source(namespace: str, *, claim: str = NAME) -> JsonObject:
    """The DataSource, leading to the claim of the DataVolume with the name `claim`.

    A newer disk is a DataVolume of another name, to which the DataSource is then led.
    """
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataSource",
        "metadata": {"name": NAME, "namespace": namespace, "labels": dict(_LABELS)},
        "spec": {"source": {"pvc": {"name": claim, "namespace": namespace}}},
    }


def is_made_here(document: JsonObject) -> bool:
    """Whether a DataSource is one of these, and follows no DataImportCron."""
    found = meta.labels(document)
    return found.get(_MANAGED_BY) == _MANAGER and cdi_labels.CRON not in found


def view_role(namespace: str) -> JsonObject:
    """The Role to see the disks in `namespace` and to clone them. Its name and rules are those of SSP, with
    snapshots, which DataSources may lead to as well.
    """
    read = ["get", "list", "watch"]
    kinds = [resources.DATA_VOLUMES, resources.DATA_SOURCES, resources.DATA_IMPORT_CRONS]
    snapshots = resources.VOLUME_SNAPSHOTS
    rules: list[JsonObject] = [
        {"apiGroups": [""], "resources": ["namespaces", "persistentvolumeclaims"], "verbs": read},
        {"apiGroups": [kinds[0].group], "resources": [kind.plural for kind in kinds], "verbs": read},
        {"apiGroups": [snapshots.group], "resources": [snapshots.plural], "verbs": read},
        {"apiGroups": [kinds[0].group], "resources": [f"{kinds[0].plural}/source"], "verbs": ["create"]},
    ]
    head = {"apiVersion": ROLES.api_version, "kind": ROLES.kind}
    return {**head, "metadata": {"name": _VIEW, "namespace": namespace}, "rules": rules}


def view_binding(namespace: str) -> JsonObject:
    """The RoleBinding that gives `view_role` to every user who is logged in, and to every service account."""
    subjects = [{"apiGroup": ROLES.group, "kind": "Group", "name": name} for name in _EVERYBODY]
    return {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": ROLE_BINDINGS.kind,
        "metadata": {"name": _VIEW, "namespace": namespace},
        "subjects": subjects,
        "roleRef": {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": _VIEW},
    }

"""The hostpath provisioner's names, labels and settings."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from kubecore.json import JsonObject
from kubecore.objects import meta
from virtplane.api import resources as api
from virtplane.api.paths import KUBELET_ROOT
from virtplane.operators.kit.product import COMPONENT, MANAGED_BY, PART_OF, VERSION, Product

OPERATOR = "hostpath-provisioner-operator"
NAME = "hostpath-provisioner"
CSI_NAME = "hostpath-provisioner-csi"
LEGACY_ACCOUNT = "hostpath-provisioner-admin"
CSI_ACCOUNT = "hostpath-provisioner-admin-csi"
DRIVER_ACCOUNTS = (LEGACY_ACCOUNT, CSI_ACCOUNT)
"""Service accounts of the driver's pods."""
DRIVER = "kubevirt.io.hostpath-provisioner"
LEGACY_POOL = "legacy"
FINALIZER = "finalizer.delete.hostpath-provisioner"
SNAPSHOTTING = "Snapshotting"
PROMETHEUS = "prometheus.hostpathprovisioner.kubevirt.io"

_GROUP = api.HOSTPATH_PROVISIONERS.group
LAST_APPLIED = f"{_GROUP}/lastAppliedConfiguration"

HOSTPATH = Product(
    operator=OPERATOR,
    component="storage",
    label="k8s-app",
    digest_annotation=f"{_GROUP}/digest",
    customizer_annotation=f"{_GROUP}/customizer",
    certificate_annotation=f"{_GROUP}/certificate-secret",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the operator's process."""

    namespace: str
    image: str
    layout: str
    version: str
    kubelet_root: str = KUBELET_ROOT
    monitoring_namespace: str = "monitoring"
    runbook_url: str = "https://kubevirt.io/monitoring/runbooks/%s"
    part_of: str = ""
    version_label: str = ""
    verbosity: int = 3

    def labels(self) -> dict[str, str]:
        """The labels of every object."""
        labels = {"k8s-app": NAME, MANAGED_BY: OPERATOR, COMPONENT: "storage"}
        if self.part_of:
            labels[PART_OF] = self.part_of
        if self.version_label:
            labels[VERSION] = self.version_label
        return labels


def made(
    settings: Settings, api_version: str, kind: str, name: str, *, namespaced: bool = False, **content: object
) -> JsonObject:
    """An object of the operator's."""
    metadata: JsonObject = {"name": name, "labels": settings.labels()}
    if namespaced:
        metadata["namespace"] = settings.namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def owned(document: JsonObject, owner: JsonObject) -> JsonObject:
    """Make the HostPathProvisioner the controller of an object."""
    document["metadata"]["ownerReferences"] = [meta.new_controller_ref(owner, api.HOSTPATH_PROVISIONERS)]
    return document


def with_last_applied(document: JsonObject) -> JsonObject:
    """Write what is applied into the object's annotation, as upstream does."""
    text = orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()
    metadata = {**document["metadata"]}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), LAST_APPLIED: text}
    return {**document, "metadata": metadata}

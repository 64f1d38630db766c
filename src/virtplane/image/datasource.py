"""The objects by which a cluster offers a disk to its users: a DataVolume, and a DataSource that leads to it.

Machines name the DataSource (``sourceRef``), and infer the instance type and the preference from its labels.
"""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api import cdi_labels, labels

NAME = "debian"
INSTANCETYPE, PREFERENCE = "u1.small", "debian"
"""Of the common instance types, for machines that name none."""

UPLOAD: JsonObject = {"upload": {}}
"""The source of a DataVolume to which a client uploads the disk."""

_LABELS = {labels.DEFAULT_INSTANCETYPE: INSTANCETYPE, labels.DEFAULT_PREFERENCE: PREFERENCE}


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

"""The objects that a pod refers to in its namespace, which its node may read (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta

_SECRET_REFERENCES = ("cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos")
"""Volumes whose field ``secretRef`` names a secret of the pod's namespace."""

_CLAIMED_SECRET_FIELDS = (
    "controllerExpandSecretRef", "controllerPublishSecretRef", "nodeExpandSecretRef", "nodePublishSecretRef",
    "nodeStageSecretRef",
)  # fmt: skip
"""Secrets of a persistent volume's driver. They name their namespace."""


def secrets(pod: JsonObject) -> Iterator[str]:
    """Names of the secrets that the pod's containers, volumes and image pulls refer to."""
    for reference in get_list(pod, "spec", "imagePullSecrets"):
        yield get_str(reference, "name")
    yield from _environment(pod, "secretKeyRef", "secretRef")
    for volume in get_list(pod, "spec", "volumes"):
        yield get_str(volume, "secret", "secretName")
        yield get_str(volume, "azureFile", "secretName")
        yield get_str(volume, "csi", "nodePublishSecretRef", "name")
        for kind in _SECRET_REFERENCES:
            yield get_str(volume, kind, "secretRef", "name")
        for source in get_list(volume, "projected", "sources"):
            yield get_str(source, "secret", "name")


def config_maps(pod: JsonObject) -> Iterator[str]:
    """Names of the config maps that the pod's containers and volumes refer to."""
    yield from _environment(pod, "configMapKeyRef", "configMapRef")
    for volume in get_list(pod, "spec", "volumes"):
        yield get_str(volume, "configMap", "name")
        for source in get_list(volume, "projected", "sources"):
            yield get_str(source, "configMap", "name")


def claims(pod: JsonObject) -> Iterator[str]:
    """The names of the pod's claims, including those of its ephemeral volumes."""
    for volume in get_list(pod, "spec", "volumes"):
        yield get_str(volume, "persistentVolumeClaim", "claimName")
        if get_object(volume, "ephemeral"):
            yield f"{meta.name(pod)}-{get_str(volume, 'name')}"


def volume_secrets(volume: JsonObject) -> Iterator[tuple[str, str]]:
    """(namespace, name) of the secrets that a persistent volume's driver is given."""
    for field in _CLAIMED_SECRET_FIELDS:
        reference = get_object(volume, "spec", "csi", field)
        yield get_str(reference, "namespace"), get_str(reference, "name")
    for kind in _SECRET_REFERENCES:
        reference = get_object(volume, "spec", kind, "secretRef")
        namespace = get_str(reference, "namespace") or get_str(volume, "spec", "claimRef", "namespace")
        yield namespace, get_str(reference, "name")


def _environment(pod: JsonObject, one_field: str, all_field: str) -> Iterator[str]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in get_list(pod, "spec", kind):
            for variable in get_list(container, "env"):
                yield get_str(variable, "valueFrom", one_field, "name")
            for source in get_list(container, "envFrom"):
                yield get_str(source, all_field, "name")

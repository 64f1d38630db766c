"""DataVolumes that a VM brings along."""

from __future__ import annotations

from collections.abc import Mapping

from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import labels as wellknown
from virtplane.api import resources as kinds
from virtplane.compute.controller.vmi.storage import READY_PHASES

IMMEDIATE_ANNOTATION = wellknown.IMMEDIATE_DATA_VOLUMES
CREATED_BY_LABEL = wellknown.CREATED_BY
_ADOPTION_ANNOTATION = "cdi.kubevirt.io/allowClaimAdoption"


def creates_immediately(vm: JsonObject) -> bool:
    """Whether DataVolumes are made at once, not only when the VM starts."""
    return meta.annotations(vm).get(IMMEDIATE_ANNOTATION) != "false"


def data_volume(vm: JsonObject, template: JsonObject) -> JsonObject:
    """The DataVolume to create for a template."""
    metadata = get_object(template, "metadata")
    annotations = {_ADOPTION_ANNOTATION: "true", **get_object(metadata, "annotations")}
    labels = {**get_object(metadata, "labels"), CREATED_BY_LABEL: meta.uid(vm)}
    return {
        "apiVersion": kinds.DATA_VOLUMES.api_version,
        "kind": "DataVolume",
        "metadata": {
            "name": get_str(metadata, "name"),
            "namespace": meta.namespace(vm),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [meta.new_controller_ref(vm, kinds.VIRTUAL_MACHINES)],
        },
        "spec": deep_copy(get_object(template, "spec")),
    }


def missing_templates(
    vm: JsonObject, data_volumes: Mapping[str, JsonObject], claims: Mapping[str, JsonObject]
) -> list[JsonObject]:
    """Templates for which there is no DataVolume, and no claim that was populated by one before."""
    result = []
    for template in get_list(vm, "spec", "dataVolumeTemplates"):
        name = get_str(template, "metadata", "name")
        populated = meta.annotations(claims.get(name, {})).get("cdi.kubevirt.io/storage.populatedFor")
        if name not in data_volumes and populated != name:
            result.append(template)
    return result


def are_ready(
    vm: JsonObject, data_volumes: Mapping[str, JsonObject], claims: Mapping[str, JsonObject]
) -> bool:
    """Whether all DataVolumes of the templates are filled, or wait for the guest's pod to be."""
    for template in get_list(vm, "spec", "dataVolumeTemplates"):
        name = get_str(template, "metadata", "name")
        found = data_volumes.get(name)
        if found is None:
            if name not in claims:
                return False
        elif get_str(found, "status", "phase") not in READY_PHASES:
            return False
    return True


def clone_source(
    template: JsonObject, data_sources: Mapping[tuple[str, str], JsonObject], own: str
) -> JsonObject:
    """What a DataVolume copies, as {kind, namespace, name}; empty when it copies nothing."""
    spec = get_object(template, "spec")
    source = get_object(spec, "source")
    reference = get_object(spec, "sourceRef")
    if reference:
        key = (get_str(reference, "namespace") or own, get_str(reference, "name"))
        source = get_object(data_sources.get(key), "spec", "source")
    for kind in ("pvc", "snapshot"):
        if kind in source:
            found = get_object(source, kind)
            return {
                "kind": kind,
                "namespace": get_str(found, "namespace") or own,
                "name": get_str(found, "name"),
            }
    return {}


def service_account(vm: JsonObject, template: JsonObject) -> str:
    """The account on whose behalf a DataVolume copies: the VM's own where a volume names one."""
    named = get_str(template, "spec", "serviceAccountName")
    if named:
        return named
    for volume in get_list(vm, "spec", "template", "spec", "volumes"):
        if "serviceAccount" in volume:
            return get_str(volume, "serviceAccount", "serviceAccountName")
    return "default"

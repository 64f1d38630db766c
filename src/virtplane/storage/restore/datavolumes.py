"""The DataVolumes of a restored machine: those that stand for restored claims, and those that they replace.

A volume that a template of the machine provides is a DataVolume again, of the name of the restored claim: the
claim says that it is filled for it, so that CDI hands it over. The DataVolume that it replaces goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubecore.errors import StatusError, is_already_exists, is_conflict, is_not_found
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import cdi_labels
from virtplane.api import labels as wellknown
from virtplane.api import resources as kinds
from virtplane.cluster.caches import Cluster
from virtplane.storage.restore.decisions import RestoredVolume

_READY_PHASES = ("Succeeded", "WaitForFirstConsumer", "PendingPopulation")


def replaced(before: JsonObject, after: JsonObject) -> list[str]:
    """The DataVolumes of templates in the spec `before` that the one `after` has none for."""
    kept = set(_names(after))
    return [name for name in _names(before) if name not in kept]


def _names(spec: JsonObject) -> list[str]:
    return [meta.name(template) for template in get_list(spec, "dataVolumeTemplates") if template]


def wanted(vm: JsonObject, restore: str, items: Iterable[RestoredVolume]) -> list[JsonObject]:
    """The DataVolumes of the restored claims, from the templates of the machine; it controls them."""
    names = {item.data_volume for item in items if item.data_volume}
    found = (each for each in get_list(vm, "spec", "dataVolumeTemplates") if each)
    return [_data_volume(vm, restore, template) for template in found if meta.name(template) in names]


def _data_volume(vm: JsonObject, restore: str, template: JsonObject) -> JsonObject:
    annotations = {cdi_labels.ALLOW_CLAIM_ADOPTION: "true", **meta.annotations(template)}
    marks = {wellknown.RESTORE_NAME: restore, cdi_labels.PRE_POPULATED: "true"}
    return {
        "apiVersion": kinds.DATA_VOLUMES.api_version,
        "kind": kinds.DATA_VOLUMES.kind,
        "metadata": {
            "name": meta.name(template),
            "namespace": meta.namespace(vm),
            "labels": {**meta.labels(template), wellknown.CREATED_BY: meta.uid(vm)},
            "annotations": {**annotations, **marks},
            "ownerReferences": [meta.new_controller_ref(vm, kinds.VIRTUAL_MACHINES)],
        },
        "spec": get_object(template, "spec"),
    }


async def provide(cluster: Cluster, needed: Iterable[JsonObject]) -> bool:
    """Make the DataVolumes that are missing. Returns whether all are filled. Raises StatusError."""
    if cluster.data_volumes is None:
        return True  # CDI has gone, and the claims do without
    is_ready = True
    for volume in needed:
        known: Mapping[str, JsonObject] = cluster.data_volumes_of(meta.namespace(volume))
        found = known.get(meta.name(volume))
        is_ready = is_ready and get_str(found, "status", "phase") in _READY_PHASES
        if found is not None:
            continue
        try:
            await cluster.client.create(kinds.DATA_VOLUMES, volume)
        except StatusError as error:
            if not is_already_exists(error):  # made before, but not in the cache yet
                raise
    return is_ready


async def drop(cluster: Cluster, vm: JsonObject, names: Iterable[str]) -> None:
    """Delete the DataVolumes of these names that the machine controls. Raises StatusError."""
    known = cluster.data_volumes_of(meta.namespace(vm))
    for name in names:
        found = known.get(name)
        owner = meta.controller_of(found) if found is not None else None
        if found is None or owner is None or owner.get("uid") != meta.uid(vm):
            continue
        try:
            await cluster.client.delete(kinds.DATA_VOLUMES, name, meta.namespace(vm), uid=meta.uid(found))
        except StatusError as error:
            if not is_not_found(error) and not is_conflict(error):
                raise

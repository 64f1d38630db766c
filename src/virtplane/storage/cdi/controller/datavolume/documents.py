"""What is made for a DataVolume: its claim and the source that the claim names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kubecore.json import JsonObject
from kubecore.objects.structs import decode, encode
from virtplane.api import cdi_labels as names
from virtplane.api import resources
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim
from virtplane.cluster.objects import controller_reference
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.datavolume.flows import Flow, preallocation
from virtplane.storage.cdi.controller.populators.decisions import GROUP
from virtplane.storage.cdi.controller.workers import checkpoints
from virtplane.storage.cdi.controller.workers.checkpoints import Stages
from virtplane.storage.cdi.rendering import BLOCK, content_type


@dataclass(frozen=True, slots=True)
class Plan:
    """How the claim of a DataVolume is made."""

    flow: Flow
    spec: JsonObject
    """The spec of the claim, rendered."""
    uses_populator: bool
    preallocates: bool
    binds_at_once: bool
    """No first consumer is waited for, in the whole installation."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    """What else the claim is marked with."""
    static_volumes: Sequence[str] = ()
    """Volumes that were made for the claim before: it is bound to one of them, not filled."""


def stages(volume: DataVolume) -> Stages:
    """The checkpoints of a multi-stage import."""
    return Stages(volume.spec.checkpoints, bool(volume.spec.final_checkpoint))


def source_document(
    volume: DataVolume, flow: Flow, preallocates: bool, labels: Mapping[str, str]
) -> JsonObject:
    """The object that the claim of `volume` names; it goes with the DataVolume."""
    assert flow.source is not None
    return {
        "apiVersion": flow.source.api_version,
        "kind": flow.source.kind,
        "metadata": {
            "name": flow.source_name(volume.metadata.uid),
            "namespace": volume.metadata.namespace,
            "labels": {"app": names.APP, **labels},
            "ownerReferences": [encode(controller_reference(volume, resources.DATA_VOLUMES))],
        },
        "spec": flow.source_spec(volume, preallocates),
    }


def claim_document(volume: DataVolume, plan: Plan) -> JsonObject:
    """The claim of `volume`."""
    spec = dict(plan.spec)
    is_filled_here = not plan.static_volumes and plan.flow.source is not None
    if plan.uses_populator and is_filled_here:
        reference = {
            "apiGroup": GROUP,
            "kind": plan.flow.source.kind if plan.flow.source is not None else "",
            "name": plan.flow.source_name(volume.metadata.uid),
        }
        spec |= {"dataSourceRef": reference}
    metadata: JsonObject = {
        "name": volume.metadata.name,
        "namespace": volume.metadata.namespace,
        "labels": _labels(volume, plan),
        "annotations": _annotations(volume, plan),
        "ownerReferences": [encode(controller_reference(volume, resources.DATA_VOLUMES))],
    }
    document = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
    if not plan.uses_populator and is_filled_here:
        first = checkpoints.next_stage(decode(PersistentVolumeClaim, document), stages(volume))
        metadata["annotations"] |= first
    return document


def _labels(volume: DataVolume, plan: Plan) -> JsonObject:
    alert = {} if plan.spec.get("volumeMode") == BLOCK else {names.FILLING_UP_ALERT: "disabled"}
    return {"app": names.APP, **alert, **volume.metadata.labels, **plan.labels}


def _annotations(volume: DataVolume, plan: Plan) -> JsonObject:
    given = dict(volume.metadata.annotations)
    given.pop(names.POPULATED_FOR, None)  # only once it is true
    for token in (names.CLONE_TOKEN, names.EXTENDED_CLONE_TOKEN):
        given.pop(token, None)  # those are for the DataVolume
    wanted = preallocation(volume, plan.preallocates)
    found = {
        **given,
        names.POD_RESTARTS: "0",
        names.CONTENT_TYPE: content_type(volume.spec.content_type),
        names.PREALLOCATION_REQUESTED: claims.TRUE if wanted else claims.FALSE,
        names.CREATED_FOR_DATA_VOLUME: volume.metadata.uid,
        names.USE_POPULATOR: claims.TRUE if plan.uses_populator else claims.FALSE,
    }
    if volume.spec.priority_class_name:
        found[names.POD_PRIORITY_CLASS] = volume.spec.priority_class_name
    if volume.spec.service_account_name:
        found[names.POD_SERVICE_ACCOUNT] = volume.spec.service_account_name
    if plan.static_volumes:
        return found | {names.PERSISTENT_VOLUME_LIST: json.dumps(sorted(plan.static_volumes))}
    if plan.uses_populator and plan.binds_at_once and plan.flow.source is not None:
        found[names.IMMEDIATE_BINDING] = ""
    if not plan.uses_populator or plan.flow.source is None:
        found |= plan.flow.annotations(volume)
    return {**found, **plan.annotations}


def static_volumes(volume: DataVolume, found: Sequence[PersistentVolume]) -> list[str]:
    """The volumes that were made for the claim of `volume` and wait for it."""
    wanted = (volume.metadata.namespace, volume.metadata.name)
    return sorted(
        each.metadata.name
        for each in found
        if each.status.phase == "Available"
        and not each.metadata.is_being_deleted
        and each.spec.claim_ref is not None
        and (each.spec.claim_ref.namespace, each.spec.claim_ref.name) == wanted
    )


def expected_volumes(claim: PersistentVolumeClaim) -> list[str] | None:
    """The volumes one of which a claim is to be bound to; None where any will do."""
    text = claims.value(claim, names.PERSISTENT_VOLUME_LIST)
    if not text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []

"""ObjectTransfers: claims and DataVolumes that move to another name or namespace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.markers import REQUIRED, ApiStruct, describe
from virtplane.api.meta_v1 import ObjectMeta


class TransferSource(ApiStruct, kw_only=True):
    """The object to move: a DataVolume or a PersistentVolumeClaim."""

    api_version: Annotated[str | None, describe("API version of the object.")] = None
    kind: Annotated[str, REQUIRED, describe("DataVolume or PersistentVolumeClaim.")] = ""
    name: Annotated[str, REQUIRED, describe("Name of the object.")] = ""
    namespace: Annotated[str, REQUIRED, describe("Namespace of the object.")] = ""
    required_annotations: Annotated[
        Mapping[str, str], describe("Annotations that the object must have before it moves.")
    ] = field(default_factory=dict)


class TransferTarget(ApiStruct, kw_only=True):
    """Where it goes; at least one of the two is set, and what is not stays as it is."""

    name: Annotated[str | None, describe("New name.")] = None
    namespace: Annotated[str | None, describe("New namespace.")] = None


class ObjectTransferSpec(ApiStruct, kw_only=True):
    """What moves, and where. Cannot be changed."""

    parent_name: Annotated[str | None, describe("Transfer that this one is a part of.")] = None
    source: Annotated[TransferSource, REQUIRED] = TransferSource()
    target: Annotated[TransferTarget, REQUIRED] = TransferTarget()


class ObjectTransferStatus(ApiStruct, kw_only=True):
    """How far the transfer is, written by cdi-deployment."""

    conditions: Annotated[tuple[HeartbeatCondition, ...], describe("Complete.")] = ()
    data: Annotated[
        Mapping[str, str], describe("What the controller remembers of the object once that is gone.")
    ] = field(default_factory=dict)
    phase: Annotated[str, describe("Empty, Pending, Running, Complete or Error.")] = ""


class ObjectTransfer(ApiStruct, kw_only=True):
    """A claim or DataVolume that moves to another name or namespace, with its volume."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[ObjectTransferSpec, REQUIRED] = ObjectTransferSpec()
    status: ObjectTransferStatus = ObjectTransferStatus()

"""ObjectTransfers: claims and DataVolumes that move to another name or namespace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.markers import REQUIRED, ApiStruct
from virtplane.api.meta_v1 import ObjectMeta


class TransferSource(ApiStruct, kw_only=True):
    """The object to move: a DataVolume or a PersistentVolumeClaim."""

    api_version: str | None = None
    kind: Annotated[str, REQUIRED] = ""
    name: Annotated[str, REQUIRED] = ""
    namespace: Annotated[str, REQUIRED] = ""
    required_annotations: Mapping[str, str] = field(default_factory=dict)


class TransferTarget(ApiStruct, kw_only=True):
    """Where it goes; what is not given stays as it is."""

    name: str | None = None
    namespace: str | None = None


class ObjectTransferSpec(ApiStruct, kw_only=True):
    """What moves, and where."""

    parent_name: str | None = None
    """The transfer that this one is a part of."""
    source: Annotated[TransferSource, REQUIRED] = TransferSource()
    target: Annotated[TransferTarget, REQUIRED] = TransferTarget()


class ObjectTransferStatus(ApiStruct, kw_only=True):
    """How far the transfer is."""

    conditions: tuple[HeartbeatCondition, ...] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    """What the controller has to remember of the object that is gone."""
    phase: str = ""


class ObjectTransfer(ApiStruct, kw_only=True):
    """A claim or DataVolume that moves to another name or namespace, with its volume."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[ObjectTransferSpec, REQUIRED] = ObjectTransferSpec()
    status: ObjectTransferStatus = ObjectTransferStatus()

"""Reading and writing of the objects that transfers move."""

from __future__ import annotations

import json
from typing import TypeVar

import msgspec

from kubecore.client import Client
from kubecore.errors import StatusError, conflict, is_already_exists, is_not_found
from kubecore.json import JsonObject, get_list
from kubecore.objects import meta
from kubecore.objects.structs import decode, readable
from kubecore.resources import PODS, ResourceType
from virtplane.api import cdi_labels as names
from virtplane.api.cdi_v1beta1.object_transfer import ObjectTransfer
from virtplane.cluster.objects import AnyObject, Object
from virtplane.storage.cdi.controller.transfers import decisions
from virtplane.storage.csi.claim_users import PodWithClaims
from virtplane.storage.csi.parts import annotations_patch, patch

Struct = TypeVar("Struct", bound=msgspec.Struct)
_ENDED = ("Succeeded", "Failed")


class Objects:
    """The server's objects, as they are now. All methods raise StatusError, ConnectionFailed."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def document(self, kind: ResourceType, name: str, namespace: str = "") -> JsonObject | None:
        """The object as it is written, or None."""
        try:
            return await self.client.get(kind, name, namespace or None)
        except StatusError as error:
            if is_not_found(error):
                return None
            raise

    async def read(
        self, struct: type[Struct], kind: ResourceType, name: str, namespace: str = ""
    ) -> Struct | None:
        """The object, or None. Raises UnfitDocument."""
        found = await self.document(kind, name, namespace)
        return decode(struct, found) if found is not None else None

    async def is_used(self, claim: str, namespace: str) -> bool:
        """Whether a pod that has not ended uses the claim."""
        pods = get_list(await self.client.list(PODS, namespace), "items")
        return any(
            volume.persistent_volume_claim is not None and volume.persistent_volume_claim.claim_name == claim
            for pod in readable(PodWithClaims, pods)
            if pod.status.phase not in _ENDED
            for volume in pod.spec.volumes
        )

    async def create(self, kind: ResourceType, document: JsonObject) -> None:
        """Create an object, unless it is there."""
        try:
            await self.client.create(kind, document)
        except StatusError as error:
            if not is_already_exists(error):
                raise

    async def take(self, transfer: ObjectTransfer, kind: ResourceType, source: Object) -> JsonObject:
        """Mark the source as the transfer's own; the document then. Raises StatusError for a lost race."""
        marked = {names.OBJECT_TRANSFER_NAME: transfer.metadata.name}
        await patch(self.client, kind, source, annotations_patch(source, marked))
        found = await self.client.get(kind, source.metadata.name, source.metadata.namespace)
        if meta.uid(found) != source.metadata.uid:
            raise conflict(kind, source.metadata.name)
        return found

    async def release(self, transfer: ObjectTransfer, kind: ResourceType) -> None:
        """Take the mark off a source that stays."""
        source = transfer.spec.source
        found = await self.read(AnyObject, kind, source.name, source.namespace)
        mark = found.metadata.annotations.get(names.OBJECT_TRANSFER_NAME) if found is not None else None
        if found is not None and mark == transfer.metadata.name:
            changes = [
                {"op": "test", "path": "/metadata/uid", "value": found.metadata.uid},
                {"op": "test", "path": _MARK, "value": mark},
                {"op": "remove", "path": _MARK},
            ]
            await patch(self.client, kind, found, changes)


_MARK = "/metadata/annotations/" + names.OBJECT_TRANSFER_NAME.replace("/", "~1")


def remembered_source(transfer: ObjectTransfer) -> JsonObject | None:
    """The source that the transfer remembers; None for one that remembers none."""
    text = transfer.status.data.get(decisions.SOURCE)
    if text is None:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None

"""Which claims may be copied into which others by pods, and what that takes: mostly pure functions."""

from __future__ import annotations

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from kubecore.runtime import Key
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names, resources
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi import rendering
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.clones.sources import CloneError
from virtplane.storage.cdi.controller.clones.tokens import Permission
from virtplane.storage.cdi.sizes import usable_space


def pod_name(target: PersistentVolumeClaim) -> str:
    """The pod that sends the source of `target`."""
    return pod_name_of(target.metadata.uid)


def pod_name_of(uid: str) -> str:
    """The same by the uid of the target; empty for none."""
    return cdi_names.clone_source_pod(uid) if uid else ""


def permission(
    wanted: tuple[str, str], source: PersistentVolumeClaim | None, target: PersistentVolumeClaim
) -> Permission:
    """What a token must allow to clone `wanted` (namespace and name), which is `source` where it is there.

    A claim that was made of a snapshot stands for that.
    """
    kind, (namespace, name) = PERSISTENT_VOLUME_CLAIMS, wanted
    reference = source.spec.data_source_ref if source is not None else None
    is_stand_in = (
        source is not None and source.metadata.labels.get(names.COMPONENT) == names.SNAPSHOT_FALLBACK_CLAIM
    )
    if is_stand_in and reference is not None:
        kind, name = resources.VOLUME_SNAPSHOTS, reference.name
    metadata = target.metadata
    return Permission(namespace, name, metadata.namespace, metadata.name, kind)


def expect_fit(
    source: PersistentVolumeClaim, target: PersistentVolumeClaim, storage: rendering.Storage
) -> None:
    """Raise CloneError where what is in `source` cannot be in `target`."""
    given, wanted = _content(source), _content(target)
    if given != wanted:
        raise CloneError(f"source contentType ({given}) and target contentType ({wanted}) do not match")
    modes = rendering.volume_mode(source.spec), rendering.volume_mode(target.spec)
    if modes[0] != modes[1] and given != rendering.KUBEVIRT:
        text = f"source volumeMode ({modes[0]}) and target volumeMode ({modes[1]}) do not match"
        raise CloneError(f"{text}, contentType ({given})")
    if claims.has(target, names.PERMISSIVE_CLONE):
        return
    if _usable(source, storage) > _usable(target, storage):
        raise CloneError("target resources requests storage size is smaller than the source")


def _content(claim: PersistentVolumeClaim) -> str:
    return rendering.content_type(claims.value(claim, names.CONTENT_TYPE))


def _usable(claim: PersistentVolumeClaim, storage: rendering.Storage) -> int:
    size = Quantity.parse(claims.requested(claim) or "0").value
    if rendering.volume_mode(claim.spec) == rendering.BLOCK:
        return size
    return usable_space(rendering.overhead(storage, claim.spec.storage_class_name), size)


async def current_uid(client: Client, key: Key) -> str:
    """The uid of a claim as it is now; empty if there is none. Raises StatusError."""
    try:
        return meta.uid(await client.get(PERSISTENT_VOLUME_CLAIMS, key[1], key[0]))
    except StatusError as error:
        if is_not_found(error):
            return ""
        raise

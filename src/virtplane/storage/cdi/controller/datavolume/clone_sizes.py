"""How large clones must be, and whether their source is right for them: pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.json import JsonObject, get_str
from kubecore.objects.quantity import Quantity
from kubecore.objects.structs import decode
from virtplane.api import cdi_labels as names
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.core_v1 import PersistentVolumeClaimSpec
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotContent
from virtplane.storage.cdi import rendering
from virtplane.storage.cdi.controller import claims, snapshots
from virtplane.storage.cdi.controller.clones import strategy

_MOST_DIGITS = 18
_NO_SIZE = "size not specified by user/provisioner, can't tell how much needed for restore"


@dataclass(frozen=True, slots=True)
class Sized:
    """The spec of a claim with its size; a permissive clone is not compared with its source again."""

    spec: JsonObject
    is_permissive: bool = False


def claim_problem(volume: DataVolume, source: PersistentVolumeClaim, storage: rendering.Storage) -> str:
    """Why the claim `source` cannot be cloned by `volume`; empty where it can."""
    given = rendering.content_type(claims.value(source, names.CONTENT_TYPE))
    wanted = rendering.content_type(volume.spec.content_type)
    if given != wanted:
        return f"Source contentType ({given}) and target contentType ({wanted}) do not match"
    asked = _asked_size(volume, storage)
    is_compared = volume.spec.pvc is not None or (asked and _is_block(source.spec))
    return strategy.size_problem(claims.requested(source), asked) if is_compared else ""


def snapshot_problem(volume: DataVolume, source: VolumeSnapshot, storage: rendering.Storage) -> str:
    """The same for a snapshot."""
    problem = snapshots.problem(source)
    if problem:
        return problem
    size, asked = source.status.restore_size or 0, _asked_size(volume, storage)
    is_known = not Quantity.parse(size).is_zero
    if volume.spec.pvc is None and not asked:
        return "" if is_known else _NO_SIZE
    return strategy.size_problem(str(size), asked) if is_known else ""


def _asked_size(volume: DataVolume, storage: rendering.Storage) -> str:
    """The size that the user asks for, without room for a file system; empty for none."""
    spec = volume.spec
    asked = spec.pvc if spec.pvc is not None else spec.storage
    size = asked.resources.requests.get("storage") if asked is not None and asked.resources else None
    if size is None:
        return ""
    if spec.storage is None:
        return str(size)
    kind = rendering.content_type(spec.content_type)
    found = rendering.storage_class(storage, spec.storage.storage_class_name, kind)
    profile = storage.profiles.get(found.metadata.name) if found is not None else None
    return strategy.at_least(str(size), profile)


def needs_size(spec: JsonObject, source: PersistentVolumeClaim) -> bool:
    """Whether the size of what is in `source` must be known for a claim with `spec`.

    It must where no size is asked for; and where a file system's image goes to a device, whose size then
    has no room for a file system.
    """
    wanted = decode(PersistentVolumeClaimSpec, spec)
    return is_unsized(spec) or (_is_block(wanted) and holds_image(source))


def is_unsized(spec: JsonObject) -> bool:
    """Whether the claim has no size yet."""
    return Quantity.parse(get_str(spec, "resources", "requests", "storage", default="0")).is_zero


def holds_image(source: PersistentVolumeClaim) -> bool:
    """Whether a disk image is in a file system, and CDI says so: then its size is not that of the claim."""
    is_image = claims.value(source, names.CONTENT_TYPE) == rendering.KUBEVIRT
    return is_image and not _is_block(source.spec)


def remembered_size(source: PersistentVolumeClaim) -> int | None:
    """The bytes of the image, as they were found before; None once the claim has another capacity."""
    text, capacity = claims.value(source, names.VIRTUAL_SIZE), source.status.capacity.get("storage")
    known = claims.value(source, names.SOURCE_CAPACITY)
    if capacity is None or not known:
        return None
    try:
        is_same = Quantity.parse(known) == Quantity.parse(capacity)
    except ValueError:
        return None
    return image_size(text) if is_same else None


def image_size(text: str) -> int | None:
    """The bytes that a size-detection pod says; None for what is no size."""
    text = text.strip()
    if not text.isascii() or not text.isdecimal() or len(text) > _MOST_DIGITS:
        return None
    return int(text) or None


def sized(
    spec: JsonObject, source: PersistentVolumeClaim, content_bytes: int, storage: rendering.Storage
) -> Sized:
    """`spec` for a clone of `content_bytes` in `source`."""
    capacity = Quantity.parse(source.status.capacity.get("storage", 0)).value
    if not is_unsized(spec):
        asked = Quantity.parse(get_str(spec, "resources", "requests", "storage")).value
        return Sized(spec, is_permissive=asked >= content_bytes)
    wanted = decode(PersistentVolumeClaimSpec, spec)
    size = rendering.inflated_size(content_bytes, wanted, storage)
    return Sized(rendering.with_size(spec, Quantity.of(size)), is_permissive=capacity > content_bytes)


def restored_size(
    spec: JsonObject,
    source: VolumeSnapshot,
    content: VolumeSnapshotContent | None,
    storage: rendering.Storage,
) -> JsonObject:
    """`spec` with the size of a snapshot, where it has none."""
    if not is_unsized(spec):
        return spec
    wanted = decode(PersistentVolumeClaimSpec, spec)
    size = Quantity.parse(source.status.restore_size or 0)
    is_image = snapshots.source_mode(source, content) == rendering.BLOCK
    if is_image and not _is_block(wanted):
        size = Quantity.of(rendering.inflated_size(size.value, wanted, storage))
    return rendering.with_size(spec, size)


def _is_block(spec: PersistentVolumeClaimSpec) -> bool:
    return rendering.volume_mode(spec) == rendering.BLOCK


def capacity(source: PersistentVolumeClaim) -> int | None:
    """The bytes of a claim's volume; None while it has none."""
    found = source.status.capacity.get("storage")
    return Quantity.parse(found).value if found is not None else None

"""From what a DataVolume asks for to the spec of its claim: pure, since a webhook and a controller share it.

Specs are documents, so that members that nobody knows survive. CDI leaves blanks in a spec to be filled: by
the storage class (named, or the default one), by the storage profile of that class, and by the room that
file systems take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kubecore.json import JsonObject, deep_copy, get_object
from kubecore.objects.quantity import Quantity
from kubecore.objects.structs import decode
from virtplane.api import cdi_labels, storage_labels
from virtplane.api.cdi_v1beta1.cdi_config import CDIConfig
from virtplane.api.cdi_v1beta1.data_volume import DataVolumeSpec
from virtplane.api.cdi_v1beta1.storage_profile import StorageProfile
from virtplane.api.core_v1 import PersistentVolumeClaimSpec
from virtplane.api.storage_kinds import PersistentVolume, StorageClass
from virtplane.storage.cdi.sizes import MIB, required_space

KUBEVIRT = "kubevirt"
ARCHIVE = "archive"
BLOCK = "Block"
FILESYSTEM = "Filesystem"
FROM_PROFILE = "FromStorageProfile"
"""A volume mode that says: choose one."""


@dataclass(frozen=True, slots=True)
class Storage:
    """What rendering reads of the cluster. `volumes` matter only where a class does not exist."""

    classes: Sequence[StorageClass] = ()
    profiles: Mapping[str, StorageProfile] = field(default_factory=dict)
    config: CDIConfig | None = None
    volumes: Sequence[PersistentVolume] = ()


class RenderingError(Exception):
    """A spec cannot be rendered. `event` is the text of the warning about it; empty if there is none."""

    def __init__(self, message: str, event: str = "") -> None:
        super().__init__(message)
        self.event = event


class NoStorageClass(RenderingError):
    """There is no class, no profile and no volume to fill the blanks from: one of them must appear first."""


_NO_CLASS = "PVC spec is missing accessMode and no storageClass to choose profile"
_NO_BLOCK_ARCHIVE = "ContentType Archive cannot have block volumeMode"


def content_type(text: str | None) -> str:
    """The content type that `text` means: all that is unknown means a disk image."""
    return ARCHIVE if text == ARCHIVE else KUBEVIRT


def volume_mode(spec: PersistentVolumeClaimSpec) -> str:
    """The volume mode that a claim has in the end."""
    return spec.volume_mode or FILESYSTEM


def default_class(classes: Sequence[StorageClass], content: str) -> StorageClass | None:
    """The default class: for disk images that of virtual machines, else the cluster's. The newest counts."""
    keys = [storage_labels.DEFAULT_VIRT_CLASS] if content == KUBEVIRT else []
    for key in [*keys, storage_labels.DEFAULT_CLASS]:
        found = [item for item in classes if item.metadata.annotations.get(key) == "true"]
        if found:
            newest = max(item.metadata.created for item in found)
            return min(
                (item for item in found if item.metadata.created == newest),
                key=lambda item: item.metadata.name,
            )
    return None


def storage_class(storage: Storage, name: str | None, content: str) -> StorageClass | None:
    """The class `name`, or the default one where no name is given. None if there is none."""
    if name is None:
        return default_class(storage.classes, content)
    return next((item for item in storage.classes if item.metadata.name == name), None)


def is_left_to_webhook(labels: Mapping[str, str], config: CDIConfig | None) -> bool:
    """Whether the claim of a DataVolume with `labels` is made as asked for, and completed by the webhook."""
    enabled = config is not None and config.spec.webhook_pvc_rendering != "Disabled"
    return enabled and labels.get(cdi_labels.APPLY_STORAGE_PROFILE) == "true"


def render_data_volume(spec: JsonObject, storage: Storage) -> JsonObject:
    """The spec of the claim of a DataVolume with `spec`. Raises RenderingError, UnfitDocument.

    What is asked for in ``pvc`` is taken as it is. A ``sourceRef`` must have been replaced by the source that
    it leads to: only claims of clones may have no size.
    """
    if "pvc" in spec:
        return deep_copy(get_object(spec, "pvc"))
    if "storage" not in spec:
        raise RenderingError("datavolume one of {pvc, storage} field is required")
    wanted = decode(DataVolumeSpec, spec)
    claim = render_modes(get_object(spec, "storage"), wanted.content_type, storage)
    source = wanted.source
    is_clone = source is not None and (source.pvc is not None or source.snapshot is not None)
    return render_size(claim, storage, may_be_missing=is_clone)


def render_modes(spec: JsonObject, content: str | None, storage: Storage) -> JsonObject:
    """`spec` with class, volume mode and access modes filled in. Raises RenderingError, UnfitDocument."""
    spec, kind = deep_copy(spec), content_type(content)
    asked = decode(PersistentVolumeClaimSpec, spec)
    if kind == ARCHIVE:
        if asked.volume_mode == BLOCK:
            raise RenderingError(_NO_BLOCK_ARCHIVE, _NO_BLOCK_ARCHIVE)
        spec["volumeMode"] = FILESYSTEM
        asked = decode(PersistentVolumeClaimSpec, spec)
    found = storage_class(storage, asked.storage_class_name, kind)
    if found is None:
        return _from_volume(spec, asked, storage.volumes)
    name = found.metadata.name
    spec["storageClassName"] = name
    if asked.access_modes and asked.volume_mode:
        return spec
    profile = storage.profiles.get(name)
    if asked.access_modes:
        mode = _mode_for(_existing(profile, name), asked.access_modes)
        if mode:
            spec["volumeMode"] = mode
    elif asked.volume_mode:
        spec["accessModes"] = list(_access_modes_for(profile, name, asked.volume_mode))
    else:
        modes, mode = _first_set(profile, name)
        spec |= {"accessModes": list(modes), "volumeMode": mode}
    return spec


def _existing(profile: StorageProfile | None, name: str, event: str = "", prefix: str = "") -> StorageProfile:
    if profile is None:
        missing = f'storageprofiles.cdi.kubevirt.io "{name}" not found'
        raise RenderingError(f"{prefix or 'cannot get StorageProfile'}: {missing}", event)
    return profile


def _first_set(profile: StorageProfile | None, name: str) -> tuple[tuple[str, ...], str]:
    event = f"Spec is missing accessMode and volumeMode, cannot get access mode from StorageProfile {name}"
    sets = _existing(profile, name, event).status.claim_property_sets
    if not sets or not sets[0].access_modes:
        raise RenderingError(f"no accessMode specified in StorageProfile {name}", event)
    return sets[0].access_modes, sets[0].volume_mode


def _access_modes_for(profile: StorageProfile | None, name: str, mode: str) -> tuple[str, ...]:
    event = f"Spec is missing accessMode and cannot get access mode from StorageProfile {name}"
    prefix = f"no accessMode specified and cannot get StorageProfile {name}"
    for each in _existing(profile, name, event, prefix).status.claim_property_sets:
        if each.volume_mode == mode and each.access_modes:
            return each.access_modes
    raise RenderingError(f"no matching accessMode specified in StorageProfile {name}", event)


def _mode_for(profile: StorageProfile, access_modes: Sequence[str]) -> str:
    wanted = set(access_modes)
    sets = profile.status.claim_property_sets
    return next((each.volume_mode for each in sets if wanted.intersection(each.access_modes)), "")


def _from_volume(
    spec: JsonObject, asked: PersistentVolumeClaimSpec, volumes: Sequence[PersistentVolume]
) -> JsonObject:
    """The modes of a volume that satisfies the claim, where no class says any."""
    if asked.storage_class_name is not None:
        of_class = (v for v in volumes if v.spec.storage_class_name == asked.storage_class_name)
        fit = next((volume for volume in of_class if _satisfies(volume, asked)), None)
        if fit is not None:
            spec["volumeMode"] = fit.spec.volume_mode or FILESYSTEM
            spec.setdefault("accessModes", list(fit.spec.access_modes))
    if not spec.get("accessModes"):
        raise NoStorageClass(_NO_CLASS, _NO_CLASS)
    return spec


def _satisfies(volume: PersistentVolume, asked: PersistentVolumeClaimSpec) -> bool:
    if volume.metadata.deletion_timestamp is not None or volume.status.phase != "Available":
        return False
    wanted = _requested(asked) or Quantity.of(0)
    return (
        Quantity.parse(volume.spec.capacity.get("storage", 0)).value >= wanted.value
        and (volume.spec.volume_mode or FILESYSTEM) == volume_mode(asked)
        and set(asked.access_modes) <= set(volume.spec.access_modes)
    )


def _requested(spec: PersistentVolumeClaimSpec) -> Quantity | None:
    amount = spec.resources.requests.get("storage") if spec.resources is not None else None
    return Quantity.parse(amount) if amount is not None else None


def render_size(spec: JsonObject, storage: Storage, *, may_be_missing: bool) -> JsonObject:
    """`spec` with a size that leaves room for the file system. Raises RenderingError, UnfitDocument.

    `may_be_missing`: the size will be that of the source; it is 0 until then.
    """
    asked = decode(PersistentVolumeClaimSpec, spec)
    size = _requested(asked)
    if size is None:
        if not may_be_missing:
            raise RenderingError("PVC Spec is not valid - missing storage size")
        return with_size(spec, Quantity.of(0))
    if size.value < MIB:
        raise RenderingError("PVC Spec is not valid - storage size should be at least 1MiB")
    inflated = Quantity.of(inflated_size(size.value, asked, storage))
    return with_size(spec, at_least_minimum(inflated, storage.profiles.get(asked.storage_class_name or "")))


def inflated_size(image_bytes: int, spec: PersistentVolumeClaimSpec, storage: Storage) -> int:
    """The size that a claim asks for so that an image of `image_bytes` fits."""
    if volume_mode(spec) != FILESYSTEM:
        return image_bytes
    return required_space(overhead(storage, spec.storage_class_name), image_bytes)


def overhead(storage: Storage, class_name: str | None) -> float:
    """The share of volumes of a class that their file system takes."""
    if class_name == "" or storage.config is None:
        return 0.0
    known = storage.config.status.filesystem_overhead
    found = storage_class(storage, class_name, ARCHIVE) or storage_class(storage, None, ARCHIVE)
    text = known.storage_class.get(found.metadata.name) if found is not None else None
    try:
        return float(text or known.global_ or "0")
    except ValueError:
        return 0.0


def at_least_minimum(size: Quantity, profile: StorageProfile | None) -> Quantity:
    """`size`, or the smallest one that the class provides where that is more."""
    text = profile.metadata.annotations.get(cdi_labels.MINIMUM_CLAIM_SIZE) if profile is not None else None
    if text is None:
        return size
    try:
        return max(size, Quantity.parse(text))
    except ValueError:
        return size


def with_size(spec: JsonObject, size: Quantity) -> JsonObject:
    """`spec` asking for `size`."""
    resources = get_object(spec, "resources")
    requests = {**get_object(resources, "requests"), "storage": str(size)}
    return {**spec, "resources": {**resources, "requests": requests}}

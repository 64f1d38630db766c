"""/pvc-mutate: the blanks in claims with the label of the storage profile."""

from __future__ import annotations

from kubecore import resources as core
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from kubecore.objects.structs import decode, readable
from kubecore.patch.diff import create_json_patch
from kubecore.resources import ResourceType
from virtplane.api import cdi_labels, cdi_names, resources
from virtplane.api.cdi_v1beta1.cdi_config import CDIConfig
from virtplane.api.cdi_v1beta1.storage_profile import StorageProfile
from virtplane.api.cdi_v1beta1.volume_sources import VolumeCloneSource
from virtplane.api.core_v1 import PersistentVolumeClaimSpec
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim, StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot
from virtplane.serving.lookups import Lookups
from virtplane.serving.responses import Response
from virtplane.storage.cdi import rendering
from virtplane.storage.cdi.apiserver.requests import CREATE, Request, Services
from virtplane.storage.cdi.rendering import RenderingError, Storage

_SNAPSHOT = "VolumeSnapshot"
_CLAIM = "PersistentVolumeClaim"


async def mutate(request: Request, services: Services) -> Response:
    """Completes a new claim. Raises Refused, StatusError, UnfitDocument."""
    if request.operation != CREATE:
        return Response.allow()
    request.expect("", core.PERSISTENT_VOLUME_CLAIMS.plural)
    if meta.labels(request.new).get(cdi_labels.APPLY_STORAGE_PROFILE) != "true":
        return Response.allow()
    try:
        spec = await _completed(request, services.lookups)
    except RenderingError as error:
        return Response.plain(str(error))
    return Response.allow(patches=create_json_patch(request.new, {**request.new, "spec": spec}))


async def _completed(request: Request, lookups: Lookups) -> JsonObject:
    spec = deep_copy(get_object(request.new, "spec"))
    if spec.get("volumeMode") == rendering.FROM_PROFILE:
        del spec["volumeMode"]
    named = get_str(spec, "storageClassName") if "storageClassName" in spec else None
    storage = await _storage(named, lookups)
    content = meta.annotations(request.new).get(cdi_labels.CONTENT_TYPE)
    spec = rendering.render_modes(spec, content, storage)
    wanted = decode(PersistentVolumeClaimSpec, spec)
    clone = _clone_source(wanted)
    if clone:
        size = await _size_of_source(request, wanted, clone, storage, lookups)
        return spec if size is None else rendering.with_size(spec, size)
    if _is_restore(wanted):
        return spec  # Drivers refuse a size that the snapshot does not have.
    return rendering.render_size(spec, storage, may_be_missing=False)


async def _storage(class_name: str | None, lookups: Lookups) -> Storage:
    """What rendering reads. An empty name is that of no class: of volumes that were made by hand."""
    classes = tuple(readable(StorageClass, await lookups.list(core.STORAGE_CLASSES)))
    config = await lookups.get(resources.CDI_CONFIGS, cdi_names.CONFIG)
    profiles = readable(StorageProfile, await lookups.list(resources.STORAGE_PROFILES))
    is_known = class_name is None or any(item.metadata.name == class_name for item in classes)
    volumes = () if is_known else await lookups.list(core.PERSISTENT_VOLUMES)
    return Storage(
        classes=classes,
        profiles={profile.metadata.name: profile for profile in profiles},
        config=decode(CDIConfig, config) if config is not None else None,
        volumes=tuple(readable(PersistentVolume, volumes)),
    )


def _clone_source(spec: PersistentVolumeClaimSpec) -> str:
    """The VolumeCloneSource that a claim names; empty if none."""
    reference = spec.data_source_ref
    if reference is None or reference.kind != resources.VOLUME_CLONE_SOURCES.kind:
        return ""
    return reference.name if reference.api_group == resources.VOLUME_CLONE_SOURCES.group else ""


def _is_restore(spec: PersistentVolumeClaimSpec) -> bool:
    return any(
        each is not None
        and (each.api_group, each.kind) == (resources.VOLUME_SNAPSHOTS.group, resources.VOLUME_SNAPSHOTS.kind)
        for each in (spec.data_source, spec.data_source_ref)
    )


async def _size_of_source(
    request: Request, wanted: PersistentVolumeClaimSpec, clone: str, storage: Storage, lookups: Lookups
) -> Quantity | None:
    """The size for a clone that asks for none; None where it asks for one, or nothing is known yet."""
    asked = wanted.resources.requests.get("storage") if wanted.resources is not None else None
    if asked is not None and not Quantity.parse(asked).is_zero:
        return None
    marks = meta.annotations(request.new)
    namespace = marks.get(cdi_labels.DATA_SOURCE_NAMESPACE) or request.namespace
    found = await _existing(resources.VOLUME_CLONE_SOURCES, clone, namespace, lookups)
    source = decode(VolumeCloneSource, found).spec.source
    if source.kind == _SNAPSHOT and source.name:
        snapshot = await _existing(resources.VOLUME_SNAPSHOTS, source.name, namespace, lookups)
        size = decode(VolumeSnapshot, snapshot).status.restore_size
        return Quantity.parse(size) if size is not None else None
    if source.kind != _CLAIM or not source.name:
        raise RenderingError("unsupported volumeCloneSource source")
    document = await _existing(core.PERSISTENT_VOLUME_CLAIMS, source.name, namespace, lookups)
    claim = decode(PersistentVolumeClaim, document)
    return _size_of_claim(claim, wanted, storage, is_copied=marks.get(cdi_labels.CLONE_TYPE) == "copy")


def _size_of_claim(
    source: PersistentVolumeClaim, wanted: PersistentVolumeClaimSpec, storage: Storage, *, is_copied: bool
) -> Quantity | None:
    modes = rendering.volume_mode(source.spec), rendering.volume_mode(wanted)
    content = rendering.content_type(source.metadata.annotations.get(cdi_labels.CONTENT_TYPE))
    is_file_to_device = modes == (rendering.FILESYSTEM, rendering.BLOCK)
    if is_file_to_device and content == rendering.KUBEVIRT and is_copied:
        raise RenderingError("cannot detect the required pvc size")
    old = rendering.storage_class(storage, source.spec.storage_class_name, rendering.ARCHIVE)
    new = rendering.storage_class(storage, wanted.storage_class_name, rendering.ARCHIVE)
    if old is None:
        raise RenderingError("cannot get source pvc storage class")
    if new is None:
        return None
    requests = source.spec.resources.requests if source.spec.resources is not None else {}
    size = requests.get("storage", 0)
    if modes[0] != modes[1] or new.metadata.name != old.metadata.name:
        size = source.status.capacity.get("storage", size)
    return Quantity.parse(size)


async def _existing(resource: ResourceType, name: str, namespace: str, lookups: Lookups) -> JsonObject:
    found = await lookups.get(resource, name, namespace)
    if found is None:
        raise RenderingError(f'{resource.group_resource} "{name}" not found')
    return found

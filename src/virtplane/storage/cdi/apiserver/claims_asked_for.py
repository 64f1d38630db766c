"""The claim that a DataVolume asks for: in ``pvc`` as it is to be, or in ``storage`` with blanks."""

from __future__ import annotations

from kubecore.objects.names import SUBDOMAIN_MAX
from kubecore.objects.quantity import Quantity
from virtplane.api.cdi_v1beta1.data_volume import DataVolumeSpec
from virtplane.api.core_v1 import TypedLocalObjectReference, TypedObjectReference
from virtplane.serving.responses import Cause
from virtplane.storage.cdi.apiserver.answers import long_name
from virtplane.storage.cdi.sizes import MIB

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_KNOWN = ", ".join(f'"{mode}"' for mode in _ACCESS_MODES)


def claim_causes(spec: DataVolumeSpec, path: str) -> list[Cause]:
    """What is wrong with the claim that a spec at `path` asks for: the first thing only."""
    if spec.pvc is None and spec.storage is None:
        return [Cause("Missing Data volume PVC", f"{path}.PVC")]
    if spec.pvc is not None and spec.storage is not None:
        text = "Duplicate storage definition, both target storage and target pvc defined"
        return [Cause(text, f"{path}.PVC.Storage")]
    return _size(spec, path) or _class_name(spec) or _access_modes(spec, path)


def _size(spec: DataVolumeSpec, path: str) -> list[Cause]:
    what, asked = ("PVC", spec.pvc) if spec.pvc is not None else ("Storage", spec.storage)
    assert asked is not None
    field = f"{path}.{what}.resources.requests.size"
    amount = asked.resources.requests.get("storage") if asked.resources is not None else None
    if amount is None:
        # CDI can find the size of a source out, where it may fill blanks.
        allowed = spec.storage is not None and is_clone(spec)
        return [] if allowed else [Cause(f"{what} size is missing", field)]
    size = Quantity.parse(amount).value
    if size <= 0:
        return [Cause(f"{what} size can't be equal or less than zero", field)]
    if size < MIB:
        return [Cause(f"{what} size should be at least 1MiB", field)]
    return []


def is_clone(spec: DataVolumeSpec) -> bool:
    """Whether the content is a clone of a claim or of a snapshot."""
    source = spec.source
    return spec.source_ref is not None or (
        source is not None and (source.pvc is not None or source.snapshot is not None)
    )


def _class_name(spec: DataVolumeSpec) -> list[Cause]:
    asked = spec.pvc or spec.storage
    return long_name((asked.storage_class_name if asked else "") or "", SUBDOMAIN_MAX)


def _access_modes(spec: DataVolumeSpec, path: str) -> list[Cause]:
    field = f"{path}.PVC.accessModes"
    modes: tuple[str, ...] = spec.storage.access_modes if spec.storage is not None else ()
    if spec.pvc is not None:
        modes = spec.pvc.access_modes
        if not modes:
            return [Cause("Required value: at least 1 access mode is required", field)]
        if len(modes) > 1:
            return [Cause("PVC multiple accessModes", field)]
    if all(mode in _ACCESS_MODES for mode in modes):
        return []
    # The first mode is named, whichever is wrong, as in CDI.
    return [Cause(f'Unsupported value: "{modes[0]}": supported values: {_KNOWN}', field)]


def references(
    spec: DataVolumeSpec,
) -> tuple[TypedLocalObjectReference | None, TypedObjectReference | None]:
    """Who fills the claim, if not CDI: ``dataSource`` and ``dataSourceRef``."""
    asked = spec.pvc or spec.storage
    return (asked.data_source, asked.data_source_ref) if asked is not None else (None, None)


def external_causes(spec: DataVolumeSpec, path: str) -> list[Cause]:
    """What is wrong with a claim that somebody else fills."""
    local, reference = references(spec)
    causes: list[Cause] = []
    if spec.source is not None or spec.source_ref is not None:
        text = "External population is incompatible with Source and SourceRef"
        causes.append(Cause(text, f"{path}.source"))
    if local is not None and reference is not None:
        # CDI compares values of two types, which are never equal.
        causes.append(Cause("DataSourceRef and DataSource must match"))
    if local is not None:
        causes += _reference_causes(local, "DataSource", f"{path}.dataSource")
    if reference is not None:
        field = f"{path}.dataSourceRef"
        if reference.namespace:
            text = "Invalid value: DataSourceRef namespace not supported"
            causes.append(Cause(text, f"{field}.namespace[]"))
        causes += _reference_causes(reference, "DataSourceRef", field)
    return causes


def _reference_causes(
    reference: TypedLocalObjectReference | TypedObjectReference, what: str, field: str
) -> list[Cause]:
    causes = []
    if not reference.name:
        causes.append(Cause(f"Required value: {what} name", f"{field}.name[]"))
    if not reference.kind:
        causes.append(Cause(f"Required value: {what} kind", f"{field}.kind"))
    if not reference.api_group and reference.kind != "PersistentVolumeClaim":
        text = f"Required value: {what} apiGroup when kind is not 'PersistentVolumeClaim'"
        causes.append(Cause(text, f"{field}.apiGroup[]"))
    return causes

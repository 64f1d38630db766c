"""Instance type and preference inferred from the volume that the guest boots from."""

from __future__ import annotations

from collections.abc import Mapping

from kubecore import resources as core
from kubecore.json import JsonObject, get_object
from kubecore.objects import meta
from kubecore.objects.structs import decode
from virtplane.api import labels, resources
from virtplane.api.cdi_v1beta1.data_source import DataSource
from virtplane.api.cdi_v1beta1.data_volume_template import DataVolumeSourceSnapshot, TemplateSpec
from virtplane.api.kubevirt_v1.vm import VirtualMachineSpec
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.serving.lookups import Lookups

_Labels = Mapping[str, str]
_ARCHITECTURES = ("amd64", "arm64", "s390x")


class InferenceError(Exception):
    """A value cannot be inferred. `is_ignorable`: inferFromVolumeFailurePolicy may allow that."""

    def __init__(self, message: str, *, is_ignorable: bool = False) -> None:
        super().__init__(message)
        self.is_ignorable = is_ignorable


async def infer(machine: JsonObject, wanted: VirtualMachineSpec, namespace: str, lookups: Lookups) -> None:
    """Replace references to volumes by references to what their labels name. `wanted` is the machine's spec.

    Raises InferenceError, unless the reference says that failures are to be ignored.
    """
    spec = machine["spec"]
    for field, matcher, label, kind_label in (
        ("instancetype", wanted.instancetype, labels.DEFAULT_INSTANCETYPE, labels.DEFAULT_INSTANCETYPE_KIND),
        ("preference", wanted.preference, labels.DEFAULT_PREFERENCE, labels.DEFAULT_PREFERENCE_KIND),
    ):
        if matcher is None or not matcher.infer_from_volume:
            continue
        volume, ignores = matcher.infer_from_volume, matcher.infer_from_volume_failure_policy == "Ignore"
        try:
            name, kind = await _from_volume(wanted, volume, label, kind_label, namespace, lookups)
        except InferenceError as error:
            if not (ignores and error.is_ignorable):
                raise
            del spec[field]
            continue
        spec[field] = {"name": name, "kind": kind} if kind else {"name": name}
        if field == "instancetype" and ignores:
            get_object(spec, "template", "spec", "domain").pop("memory", None)


async def _from_volume(
    machine: VirtualMachineSpec,
    volume_name: str,
    label: str,
    kind_label: str,
    namespace: str,
    lookups: Lookups,
) -> tuple[str, str]:
    found = await _labels_of_volume(machine, volume_name, label, namespace, lookups)
    if not found.get(label):
        raise InferenceError(f"unable to find required {label} label on the volume", is_ignorable=True)
    return found[label], found.get(kind_label, "")


async def _labels_of_volume(
    machine: VirtualMachineSpec, volume_name: str, label: str, namespace: str, lookups: Lookups
) -> _Labels:
    volume = next((entry for entry in machine.instance.volumes if entry.name == volume_name), None)
    if volume is None:
        raise InferenceError(f"unable to find volume {volume_name} to infer defaults")
    claim, data_volume = volume.persistent_volume_claim, volume.data_volume
    if claim is not None and claim.claim_name:
        return await _claim_labels(claim.claim_name, namespace, lookups)
    if data_volume is not None and data_volume.name:
        return await _data_volume_labels(machine, data_volume.name, label, namespace, lookups)
    raise InferenceError(
        f"unable to infer defaults from volume {volume_name} as type is not supported", is_ignorable=True
    )


async def _claim_labels(name: str, namespace: str, lookups: Lookups) -> _Labels:
    claim = await lookups.get(core.PERSISTENT_VOLUME_CLAIMS, name, namespace)
    if claim is None:
        raise InferenceError(f'persistentvolumeclaims "{name}" not found')
    return meta.labels(claim)


async def _data_volume_labels(
    machine: VirtualMachineSpec, name: str, label: str, namespace: str, lookups: Lookups
) -> _Labels:
    for template in filter(None, machine.data_volume_templates):
        own = decode(ObjectMeta, template.metadata or {})
        if own.name == name:
            if own.labels.get(label):
                return own.labels
            return await _data_volume_spec_labels(template.spec, label, namespace, lookups)
    data_volume = await lookups.get(resources.DATA_VOLUMES, name, namespace)
    if data_volume is None:
        return await _claim_labels(name, namespace, lookups)
    if meta.labels(data_volume).get(label):
        return meta.labels(data_volume)
    spec = decode(TemplateSpec, get_object(data_volume, "spec"))
    return await _data_volume_spec_labels(spec, label, namespace, lookups)


async def _data_volume_spec_labels(
    spec: TemplateSpec, label: str, namespace: str, lookups: Lookups
) -> _Labels:
    reference, source = spec.source_ref, spec.source
    if reference is not None:
        if reference.kind.lower() != "datasource":
            raise InferenceError(
                "unable to infer defaults from DataVolumeSourceRef as Kind"
                f" {reference.kind} is not supported",
                is_ignorable=True,
            )
        return await _data_source_labels(reference.name, reference.namespace or namespace, label, lookups)
    if source is not None and source.pvc is not None:
        return await _claim_labels(source.pvc.name, source.pvc.namespace or namespace, lookups)
    if source is not None and source.snapshot is not None:
        return await _snapshot_labels(source.snapshot, namespace, lookups)
    raise InferenceError(
        "unable to infer defaults from DataVolumeSpec as DataVolumeSource is not supported", is_ignorable=True
    )


async def _snapshot_labels(source: DataVolumeSourceSnapshot, namespace: str, lookups: Lookups) -> _Labels:
    snapshot = await lookups.get(resources.VOLUME_SNAPSHOTS, source.name, source.namespace or namespace)
    if snapshot is None:
        raise InferenceError(f'volumesnapshots.snapshot.storage.k8s.io "{source.name}" not found')
    return meta.labels(snapshot)


async def _data_source(name: str, namespace: str, lookups: Lookups) -> DataSource | None:
    found = await lookups.get(resources.DATA_SOURCES, name, namespace)
    return decode(DataSource, found) if found is not None else None


async def _data_source_labels(
    name: str, namespace: str, label: str, lookups: Lookups, *, is_referred: bool = False
) -> _Labels:
    found = await _data_source(name, namespace, lookups)
    if found is None:
        raise InferenceError(f'datasources.cdi.kubevirt.io "{name}" not found')
    if found.metadata.labels.get(label):
        return found.metadata.labels
    source = found.spec.source
    if source.pvc is not None:
        return await _claim_labels(source.pvc.name, source.pvc.namespace or namespace, lookups)
    if source.snapshot is not None:
        return await _snapshot_labels(source.snapshot, namespace, lookups)
    other = source.data_source
    if other is not None and is_referred:
        # As far as CDI goes: two of them could lead to each other.
        raise InferenceError("DataSource reference chain exceeds maximum depth of 1")
    if other is not None:
        where = other.namespace or namespace
        return await _data_source_labels(other.name, where, label, lookups, is_referred=True)
    raise InferenceError(
        "unable to infer defaults from DataSource that doesn't provide"
        " DataVolumeSourcePVC or DataVolumeSourceSnapshot",
        is_ignorable=True,
    )


async def architecture_of_sources(machine: VirtualMachineSpec, namespace: str, lookups: Lookups) -> str:
    """The architecture that the first DataSource of the machine's templates is labelled with; or empty."""
    for template in filter(None, machine.data_volume_templates):
        reference = template.spec.source_ref
        if reference is None or reference.kind.lower() != "datasource":
            continue
        where = reference.namespace or namespace
        source = await _data_source(reference.name, where, lookups)
        pointed = source.spec.source.data_source if source is not None else None
        if pointed is not None:
            source = await _data_source(pointed.name, pointed.namespace or where, lookups)
        found = source.metadata.labels.get(labels.TEMPLATE_ARCHITECTURE, "") if source is not None else ""
        return found if found in _ARCHITECTURES else ""
    return ""

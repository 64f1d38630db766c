"""Instance type and preference inferred from the volume that the guest boots from."""

from __future__ import annotations

from kubecore import resources as core
from kubecore.json import JsonObject, get_list, get_object, get_str
from virtplane.api import labels, resources
from virtplane.compute.apiserver.admission.lookups import Lookups

_MATCHERS = (
    ("instancetype", labels.DEFAULT_INSTANCETYPE, labels.DEFAULT_INSTANCETYPE_KIND),
    ("preference", labels.DEFAULT_PREFERENCE, labels.DEFAULT_PREFERENCE_KIND),
)
_ARCHITECTURES = ("amd64", "arm64", "s390x")


class InferenceError(Exception):
    """A value cannot be inferred. `is_ignorable`: inferFromVolumeFailurePolicy may allow that."""

    def __init__(self, message: str, *, is_ignorable: bool = False) -> None:
        super().__init__(message)
        self.is_ignorable = is_ignorable


async def infer(machine: JsonObject, namespace: str, lookups: Lookups) -> None:
    """Replace references to volumes by references to what their labels name.

    Raises InferenceError, unless the reference says that failures are to be ignored.
    """
    spec = machine["spec"]
    for field, label, kind_label in _MATCHERS:
        matcher = get_object(spec, field)
        volume = get_str(matcher, "inferFromVolume")
        if not volume:
            continue
        ignores = get_str(matcher, "inferFromVolumeFailurePolicy") == "Ignore"
        try:
            name, kind = await _from_volume(machine, volume, label, kind_label, namespace, lookups)
        except InferenceError as error:
            if not (ignores and error.is_ignorable):
                raise
            del spec[field]
            continue
        spec[field] = {"name": name, "kind": kind} if kind else {"name": name}
        if field == "instancetype" and ignores:
            get_object(spec, "template", "spec", "domain").pop("memory", None)


async def _from_volume(
    machine: JsonObject, volume_name: str, label: str, kind_label: str, namespace: str, lookups: Lookups
) -> tuple[str, str]:
    found = await _labels_of_volume(machine, volume_name, label, namespace, lookups)
    if not found.get(label):
        raise InferenceError(f"unable to find required {label} label on the volume", is_ignorable=True)
    return found[label], found.get(kind_label, "")


async def _labels_of_volume(
    machine: JsonObject, volume_name: str, label: str, namespace: str, lookups: Lookups
) -> JsonObject:
    volumes = get_list(machine, "spec", "template", "spec", "volumes")
    volume = next((entry for entry in volumes if get_str(entry, "name") == volume_name), None)
    if volume is None:
        raise InferenceError(f"unable to find volume {volume_name} to infer defaults")
    claim = get_str(volume, "persistentVolumeClaim", "claimName")
    if claim:
        return await _claim_labels(claim, namespace, lookups)
    data_volume = get_str(volume, "dataVolume", "name")
    if data_volume:
        return await _data_volume_labels(machine, data_volume, label, namespace, lookups)
    raise InferenceError(
        f"unable to infer defaults from volume {volume_name} as type is not supported", is_ignorable=True
    )


async def _claim_labels(name: str, namespace: str, lookups: Lookups) -> JsonObject:
    claim = await lookups.get(core.PERSISTENT_VOLUME_CLAIMS, name, namespace)
    if claim is None:
        raise InferenceError(f'persistentvolumeclaims "{name}" not found')
    return get_object(claim, "metadata", "labels")


async def _data_volume_labels(
    machine: JsonObject, name: str, label: str, namespace: str, lookups: Lookups
) -> JsonObject:
    for template in get_list(machine, "spec", "dataVolumeTemplates"):
        if get_str(template, "metadata", "name") == name:
            own = get_object(template, "metadata", "labels")
            if own.get(label):
                return own
            return await _data_volume_spec_labels(get_object(template, "spec"), label, namespace, lookups)
    data_volume = await lookups.get(resources.DATA_VOLUMES, name, namespace)
    if data_volume is None:
        return await _claim_labels(name, namespace, lookups)
    own = get_object(data_volume, "metadata", "labels")
    if own.get(label):
        return own
    return await _data_volume_spec_labels(get_object(data_volume, "spec"), label, namespace, lookups)


async def _data_volume_spec_labels(
    spec: JsonObject, label: str, namespace: str, lookups: Lookups
) -> JsonObject:
    reference = spec.get("sourceRef")
    if isinstance(reference, dict):
        if get_str(reference, "kind").lower() != "datasource":
            raise InferenceError(
                "unable to infer defaults from DataVolumeSourceRef as Kind"
                f" {get_str(reference, 'kind')} is not supported",
                is_ignorable=True,
            )
        where = get_str(reference, "namespace") or namespace
        return await _data_source_labels(get_str(reference, "name"), where, label, lookups)
    source = get_object(spec, "source")
    if isinstance(source.get("pvc"), dict):
        where = get_str(source, "pvc", "namespace") or namespace
        return await _claim_labels(get_str(source, "pvc", "name"), where, lookups)
    if isinstance(source.get("snapshot"), dict):
        return await _snapshot_labels(source["snapshot"], namespace, lookups)
    raise InferenceError(
        "unable to infer defaults from DataVolumeSpec as DataVolumeSource is not supported",
        is_ignorable=True,
    )


async def _snapshot_labels(source: JsonObject, namespace: str, lookups: Lookups) -> JsonObject:
    name, where = get_str(source, "name"), get_str(source, "namespace") or namespace
    snapshot = await lookups.get(resources.VOLUME_SNAPSHOTS, name, where)
    if snapshot is None:
        raise InferenceError(f'volumesnapshots.snapshot.storage.k8s.io "{name}" not found')
    return get_object(snapshot, "metadata", "labels")


async def _data_source_labels(name: str, namespace: str, label: str, lookups: Lookups) -> JsonObject:
    source = await lookups.get(resources.DATA_SOURCES, name, namespace)
    if source is None:
        raise InferenceError(f'datasources.cdi.kubevirt.io "{name}" not found')
    own = get_object(source, "metadata", "labels")
    if own.get(label):
        return own
    spec = get_object(source, "spec", "source")
    if isinstance(spec.get("pvc"), dict):
        where = get_str(spec, "pvc", "namespace") or namespace
        return await _claim_labels(get_str(spec, "pvc", "name"), where, lookups)
    if isinstance(spec.get("snapshot"), dict):
        return await _snapshot_labels(spec["snapshot"], namespace, lookups)
    if isinstance(spec.get("dataSource"), dict):
        other = spec["dataSource"]
        where = get_str(other, "namespace") or namespace
        return await _data_source_labels(get_str(other, "name"), where, label, lookups)
    raise InferenceError(
        "unable to infer defaults from DataSource that doesn't provide"
        " DataVolumeSourcePVC or DataVolumeSourceSnapshot",
        is_ignorable=True,
    )


async def architecture_of_sources(machine: JsonObject, namespace: str, lookups: Lookups) -> str:
    """The architecture that the first DataSource of the machine's templates is labelled with; or empty."""
    for template in get_list(machine, "spec", "dataVolumeTemplates"):
        reference = get_object(template, "spec", "sourceRef")
        if get_str(reference, "kind").lower() != "datasource":
            continue
        where = get_str(reference, "namespace") or namespace
        source = await lookups.get(resources.DATA_SOURCES, get_str(reference, "name"), where)
        pointed = get_object(source, "spec", "source", "dataSource")
        if pointed:
            where = get_str(pointed, "namespace") or where
            source = await lookups.get(resources.DATA_SOURCES, get_str(pointed, "name"), where)
        found = get_str(source, "metadata", "labels", labels.TEMPLATE_ARCHITECTURE)
        return found if found in _ARCHITECTURES else ""
    return ""

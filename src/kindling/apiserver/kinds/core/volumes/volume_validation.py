"""PersistentVolumes: sources, capacity, placement; what may change."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.kinds.core.pods.placement import validate_node_selector
from kindling.apiserver.kinds.machinery.checks import amount
from kindling.apiserver.kinds.machinery.differences import difference
from kindling.apiserver.kinds.machinery.fields import check_fields, choice, given, may, named, needed
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    Verbatim,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kubecore.objects.quantity import Quantity

from .claim_validation import VOLUME_MODES, validate_access_modes
from .sources import SOURCES, csi_driver_name, validate_sources

RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
_SPEC = FieldPath("spec")
_POD_ONLY = frozenset(
    {
        "emptyDir",
        "gitRepo",
        "secret",
        "configMap",
        "downwardAPI",
        "projected",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
    }
)
_ORDER = tuple(name for name in SOURCES if name not in _POD_ONLY and name != "csi")
_ALL = (*_ORDER, "csi")


def validate_volume(volume: JsonObject) -> list[FieldError]:
    """A new volume."""
    spec = get_object(volume, "spec")
    found: list[FieldError] = []
    modes = get_list(spec, "accessModes")
    if not modes:
        found.append(required(_SPEC.child("accessModes")))
    found += validate_access_modes(modes, _SPEC.child("accessModes"))
    found += _validate_capacity(spec.get("capacity") or {})
    policy = spec.get("persistentVolumeReclaimPolicy")
    found += check_fields(spec, _SPEC, may("persistentVolumeReclaimPolicy", choice(*RECLAIM_POLICIES)))
    affinity = get_object(spec, "nodeAffinity").get("required")
    if isinstance(affinity, dict):
        found += validate_node_selector(affinity, _SPEC.child("nodeAffinity", "required"))
    count, problems = validate_sources(spec, _SPEC, _ORDER)
    found += problems
    if isinstance(spec.get("local"), dict) and not isinstance(affinity, dict):
        found.append(required(_SPEC.child("nodeAffinity"), "Local volume requires node affinity"))
    if isinstance(spec.get("csi"), dict):
        if count:
            found.append(forbidden(_SPEC.child("csi"), "may not specify more than 1 volume type"))
        else:
            count = 1
            found += _validate_csi(spec["csi"], _SPEC.child("csi"))
    if not count:
        found.append(required(_SPEC, "must specify a volume type"))
    if get_object(spec, "hostPath").get("path") == "/" and policy == "Recycle":
        text = "may not be 'recycle' for a hostPath mount of '/'"
        found.append(forbidden(_SPEC.child("persistentVolumeReclaimPolicy"), text))
    found += check_fields(spec, _SPEC, may("storageClassName", named(names.is_dns1123_subdomain)))
    return found + check_fields(spec, _SPEC, given("volumeMode", choice(*VOLUME_MODES)))


def _validate_capacity(capacity: JsonObject) -> list[FieldError]:
    at = _SPEC.child("capacity")
    found: list[FieldError] = []
    if not capacity:
        found.append(required(at))
    if set(capacity) != {"storage"}:
        shown: Any = dict(sorted(capacity.items())) if capacity else Verbatim("null")
        found.append(not_supported(at, shown, ["storage"]))
    for name, value in capacity.items():
        if amount(value) <= Quantity.parse("0"):
            found.append(invalid(at.key(name), str(value), "must be greater than zero"))
    return found


def _validate_csi(source: JsonObject, path: FieldPath) -> list[FieldError]:
    found = csi_driver_name(path.child("driver"), source.get("driver", ""))
    found += check_fields(source, path, *needed("volumeHandle"))
    for field in (
        "controllerPublishSecretRef",
        "nodeStageSecretRef",
        "nodePublishSecretRef",
        "controllerExpandSecretRef",
        "nodeExpandSecretRef",
    ):
        reference = source.get(field)
        if isinstance(reference, dict):
            for part in ("name", "namespace"):
                if not reference.get(part):
                    found.append(required(path.child(field, part)))
    return found


def validate_volume_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """A change: the source and the mode stay."""
    found = validate_volume(new)
    spec, before = get_object(new, "spec"), get_object(old, "spec")
    changed = [name for name in _ALL if _source(spec, name) != _source(before, name)]
    if changed:
        detail = difference(
            {name: spec.get(name) for name in _ALL}, {name: before.get(name) for name in _ALL}
        )
        text = f"spec.persistentvolumesource is immutable after creation\n{detail}"
        found.append(forbidden(_SPEC, text))
    if spec.get("volumeMode") != before.get("volumeMode"):
        found.append(invalid(_SPEC.child("volumeMode"), spec.get("volumeMode"), "field is immutable"))
    known = before.get("nodeAffinity")
    if known is not None and spec.get("nodeAffinity") != known:
        found.append(invalid(_SPEC.child("nodeAffinity"), spec.get("nodeAffinity"), "field is immutable"))
    return found


def _source(spec: JsonObject, name: str) -> Any:
    source = spec.get(name)
    if name == "csi" and isinstance(source, dict):
        # Secrets for growing a volume may be changed later.
        return {
            key: value
            for key, value in source.items()
            if key not in ("controllerExpandSecretRef", "nodeExpandSecretRef")
        }
    return source

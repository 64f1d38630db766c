"""PersistentVolumes and PersistentVolumeClaims."""

from __future__ import annotations

from kindling.apiserver.kinds.core.pods.defaults import default_claim_spec, default_sources
from kindling.apiserver.kinds.core.pods.warnings import volume_warnings
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStatusStrategy, BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.storage_class import class_of
from kubecore.objects.times import now_rfc3339
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES

from .claim_validation import claim_warnings, validate_claim, validate_claim_status, validate_claim_update
from .volume_validation import validate_volume, validate_volume_update


class ClaimStrategy(BuiltinStrategy):
    """Claims are Pending until a volume is bound to them."""

    tracks_generation = False
    returns_deleted_object = True
    metadata_checks = (1, 1)
    rules = Rules(
        validate_claim,
        update=validate_claim_update,
        status=validate_claim_status,
        warnings=claim_warnings,
    )

    def complete(self, obj: JsonObject) -> None:
        """Volume mode and phase."""
        default_claim_spec(obj["spec"])
        obj["status"].setdefault("phase", "Pending")

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """Set phase Pending, and make dataSource and dataSourceRef agree."""
        obj["status"] = {"phase": "Pending"}
        spec = obj["spec"]
        # dataSource drops kinds that have no populator, without an error.
        source = spec.get("dataSource")
        if isinstance(source, dict) and not _is_data_source(source):
            del spec["dataSource"]
        if get_object(spec, "dataSourceRef").get("namespace"):
            del spec["dataSourceRef"]  # the feature of sources in other namespaces is off
        _sync_data_sources(spec)

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Keep the status."""
        super().prepare_for_update(ctx, new, old)
        if "dataSource" in old.get("spec", {}) and "dataSourceRef" not in new["spec"]:
            _sync_data_sources(new["spec"])


def _is_data_source(source: JsonObject) -> bool:
    group, kind = source.get("apiGroup") or "", source.get("kind")
    return (group, kind) in (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def _sync_data_sources(spec: JsonObject) -> None:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = {"apiGroup": None, **source}
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = {"apiGroup": None, **reference}


class VolumeStrategy(BuiltinStrategy):
    """Volumes start Pending; the controller finds them Available."""

    tracks_generation = False
    returns_deleted_object = True
    metadata_checks = (0, 2)
    rules = Rules(validate_volume, update=validate_volume_update, warnings=volume_warnings)

    def complete(self, obj: JsonObject) -> None:
        """Default the phase, the reclaim policy, the mode and the sources."""
        obj["status"].setdefault("phase", "Pending")
        spec = obj["spec"]
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        spec.setdefault("volumeMode", "Filesystem")
        default_sources(spec)

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """Set phase Pending with its time."""
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now_rfc3339()}


class VolumeStatusStrategy(BuiltinStatusStrategy):
    """The volume controller's writes: a new phase is stamped with its time."""

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Only metadata and status change."""
        super().prepare_for_update(ctx, new, old)
        status = new.setdefault("status", {})
        before = get_object(old, "status")
        unstamped = status.get("lastPhaseTransitionTime") in (None, before.get("lastPhaseTransitionTime"))
        if unstamped and status.get("phase") != before.get("phase"):
            status["lastPhaseTransitionTime"] = now_rfc3339()


def _phase(obj: JsonObject) -> str:
    if get_str(obj, "metadata", "deletionTimestamp"):
        return "Terminating"
    return get_str(obj, "status", "phase")


def _is_bound(obj: JsonObject) -> bool:
    return bool(get_str(obj, "spec", "volumeName"))


def _claim(obj: JsonObject) -> str:
    claim = get_object(obj, "spec", "claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


_CLAIM_TABLE = p.Table(
    p.NAME,
    p.plain("Status", _phase),
    p.plain("Volume", "spec.volumeName"),
    p.plain(
        "Capacity",
        lambda obj: get_object(obj, "status", "capacity").get("storage", "") if _is_bound(obj) else "",
    ),
    p.plain(
        "Access Modes",
        lambda obj: p.access_modes(get_list(obj, "status", "accessModes")) if _is_bound(obj) else "",
    ),
    p.plain("StorageClass", class_of),
    p.plain("VolumeAttributesClass", "spec.volumeAttributesClassName", empty=p.UNSET),
    p.AGE,
    p.wide("VolumeMode", "spec.volumeMode", empty=p.UNSET),
)
_VOLUME_TABLE = p.Table(
    p.NAME,
    p.plain("Capacity", "spec.capacity.storage"),
    p.plain("Access Modes", lambda obj: p.access_modes(get_list(obj, "spec", "accessModes"))),
    p.plain("Reclaim Policy", "spec.persistentVolumeReclaimPolicy"),
    p.plain("Status", _phase),
    p.plain("Claim", _claim),
    p.plain("StorageClass", class_of),
    p.plain("VolumeAttributesClass", "spec.volumeAttributesClassName", empty=p.UNSET),
    p.plain("Reason", "status.reason"),
    p.AGE,
    p.wide("VolumeMode", "spec.volumeMode", empty=p.UNSET),
)


def definitions() -> list[ResourceDefinition]:
    """Claims and volumes."""
    volumes = VolumeStrategy()
    return [
        builtin(PERSISTENT_VOLUME_CLAIMS, ClaimStrategy(), short=("pvc",), table=_CLAIM_TABLE),
        builtin(
            PERSISTENT_VOLUMES,
            volumes,
            short=("pv",),
            table=_VOLUME_TABLE,
            status=VolumeStatusStrategy(volumes),
        ),
    ]

"""Device classes, claims, templates and slices as the server keeps them. No controller here acts on them."""

from __future__ import annotations

from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.times import now_rfc3339
from kubecore.resources import ResourceType

from . import slices, validation

_GROUP = "resource.k8s.io"
DEVICE_CLASSES = ResourceType(_GROUP, "v1", "deviceclasses", "DeviceClass", False)
CLAIMS = ResourceType(_GROUP, "v1", "resourceclaims", "ResourceClaim")
TEMPLATES = ResourceType(_GROUP, "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
SLICES = ResourceType(_GROUP, "v1", "resourceslices", "ResourceSlice", False)
NOT_ALLOCATED = "this object has no effect: nothing allocates devices on this cluster"


def _not_allocated(obj: JsonObject, old: JsonObject | None) -> list[str]:
    return [NOT_ALLOCATED] if old is None else []


def _default_requests(spec: JsonObject) -> None:
    """One device for each request that does not say how many, and tolerations of equal values."""
    for request in get_list(spec, "devices", "requests"):
        for wanted in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if wanted is None:
                continue
            if not wanted.get("allocationMode"):
                wanted["allocationMode"] = "ExactCount"
            if wanted["allocationMode"] == "ExactCount" and not wanted.get("count"):
                wanted["count"] = 1
            _default_tolerations(wanted)


def _default_tolerations(obj: JsonObject) -> None:
    for toleration in get_list(obj, "tolerations"):
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"


class DeviceClassStrategy(BuiltinStrategy):
    """What devices can be asked for by the class's name."""

    metadata_checks = (1, 1)
    has_status = False
    rules = Rules(validation.validate_class)


class ClaimStrategy(BuiltinStrategy):
    """A claim of devices; its spec cannot be changed."""

    metadata_checks = (1, 1)
    tracks_generation = False
    rules = Rules(
        validation.validate_claim,
        update=validation.validate_claim_update,
        status=validation.validate_claim_status,
        warnings=_not_allocated,
    )

    def complete(self, obj: JsonObject) -> None:
        """Set the number of devices, and how tolerations compare."""
        _default_requests(get_object(obj, "spec"))
        for result in get_list(obj, "status", "allocation", "devices", "results"):
            _default_tolerations(result)


class TemplateStrategy(BuiltinStrategy):
    """A template of claims; its spec cannot be changed."""

    metadata_checks = (1, 1)
    has_status = False
    tracks_generation = False
    rules = Rules(
        validation.validate_template, update=validation.validate_template_update, warnings=_not_allocated
    )

    def complete(self, obj: JsonObject) -> None:
        """Set the number of devices, and how tolerations compare."""
        _default_requests(get_object(obj, "spec", "spec"))


class SliceStrategy(BuiltinStrategy):
    """Some devices of a pool, as their driver tells of them."""

    has_status = False
    rules = Rules(slices.validate_slice, update=slices.validate_slice_update)

    def complete(self, obj: JsonObject) -> None:
        """Set since when taints have been there, and what one unit of a mapped capacity is."""
        for device in get_list(obj, "spec", "devices"):
            for taint in get_list(device, "taints"):
                if not taint.get("timeAdded"):
                    taint["timeAdded"] = now_rfc3339()
            for mapping in get_object(device, "nodeAllocatableResourceMappings").values():
                mapping.setdefault("allocationMultiplier", "1")


def _state(claim: JsonObject) -> str:
    deleted = bool(get_object(claim, "metadata").get("deletionTimestamp"))
    allocated = get_object(claim, "status").get("allocation") is not None
    words = ["deleted"] if deleted else []
    if allocated:
        words.append("allocated")
    elif not deleted:
        words.append("pending")
    if get_list(claim, "status", "reservedFor"):
        words.append("reserved")
    return ",".join(words)


def definitions() -> list[ResourceDefinition]:
    """Classes, claims, templates and slices."""
    plain = p.Table(p.NAME, p.AGE)
    slice_columns = (
        p.NAME,
        p.plain("Node", "spec.nodeName"),
        p.plain("Driver", "spec.driver"),
        p.plain("Pool", "spec.pool.name"),
        p.AGE,
    )
    return [
        builtin(DEVICE_CLASSES, DeviceClassStrategy(), table=plain),
        builtin(CLAIMS, ClaimStrategy(), table=p.Table(p.NAME, p.plain("State", _state), p.AGE)),
        builtin(TEMPLATES, TemplateStrategy(), table=plain),
        builtin(
            SLICES,
            SliceStrategy(),
            table=p.Table(*slice_columns),
            fields=("spec.driver", "spec.nodeName", "spec.pool.name"),
        ),
    ]

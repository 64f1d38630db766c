"""Storage classes, CSI objects and volume attachments."""

from __future__ import annotations

from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_object
from kubecore.resources import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    VOLUME_ATTRIBUTES_CLASSES,
)

from . import validation

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
BETA_DEFAULT_CLASS = "storageclass.beta.kubernetes.io/is-default-class"
DEFAULT_ATTRIBUTES_CLASS = "volumeattributesclass.alpha.kubernetes.io/is-default-class"


class _StorageStrategy(BuiltinStrategy):
    has_status = False
    tracks_generation = False


class StorageClassStrategy(_StorageStrategy):
    """What volumes can be had; fixed once made."""

    metadata_checks = (1, 2)
    returns_deleted_object = True
    rules = Rules(
        validation.validate_class,
        warnings=validation.class_warnings,
        immutable=("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
    )

    def complete(self, obj: JsonObject) -> None:
        """Set the defaults: reclaimPolicy Delete, volumeBindingMode Immediate."""
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")


class CsiDriverStrategy(_StorageStrategy):
    """What a CSI driver needs from Kubernetes."""

    allow_unconditional_update = False
    returns_deleted_object = True
    rules = Rules(
        validation.validate_driver,
        immutable=("spec.attachRequired", "spec.volumeLifecycleModes"),
        warnings=validation.driver_warnings,
    )

    def complete(self, obj: JsonObject) -> None:
        """Set Kubernetes' defaults: attach is required, the pod's details are not passed, and so on."""
        spec = obj["spec"]
        spec.setdefault("attachRequired", True)
        spec.setdefault("podInfoOnMount", False)
        spec.setdefault("storageCapacity", False)
        spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
        spec.setdefault("volumeLifecycleModes", ["Persistent"])
        spec.setdefault("requiresRepublish", False)
        spec.setdefault("seLinuxMount", False)

    def generation_changed(self, new: JsonObject, old: JsonObject) -> bool:
        """A driver has a generation from the first change of its spec on."""
        return new.get("spec") != old.get("spec")


class CsiNodeStrategy(_StorageStrategy):
    """The drivers of a node."""

    metadata_checks = (0, 1)
    allow_unconditional_update = False
    returns_deleted_object = True
    rules = Rules(validation.validate_csi_node, update=validation.validate_csi_node_update)


class CapacityStrategy(_StorageStrategy):
    """The storage that a driver has left for a class in a topology."""

    allow_unconditional_update = False
    rules = Rules(
        validation.validate_capacity, immutable=("nodeTopology",), immutable_texts=("storageClassName",)
    )


class AttributesClassStrategy(_StorageStrategy):
    """Parameters of volumes that can change; the class itself is fixed."""

    returns_deleted_object = True
    rules = Rules(validation.validate_attributes_class, update=validation.validate_attributes_class_update)


class AttachmentStrategy(BuiltinStrategy):
    """A volume wanted on a node; fixed once made."""

    allow_unconditional_update = False
    returns_deleted_object = True
    tracks_generation = False
    rules = Rules(
        validation.validate_new_attachment, update=validation.validate_attachment_update, immutable=("spec",)
    )


def _default_mark(obj: JsonObject, *annotations: str) -> str:
    found = get_object(obj, "metadata", "annotations")
    return " (default)" if any(found.get(name) == "true" for name in annotations) else ""


def _audiences(obj: JsonObject) -> str:
    requests = get_list(obj, "spec", "tokenRequests")
    return ",".join(request.get("audience", "") for request in requests) or p.UNSET


_CLASS_TABLE = p.Table(
    p.name_as(lambda obj: p.name_of(obj) + _default_mark(obj, DEFAULT_CLASS, BETA_DEFAULT_CLASS)),
    p.plain("Provisioner", "provisioner"),
    p.plain("ReclaimPolicy", "reclaimPolicy", absent="Delete"),
    p.plain("VolumeBindingMode", "volumeBindingMode", absent="Immediate"),
    p.plain("AllowVolumeExpansion", lambda obj: bool(obj.get("allowVolumeExpansion"))),
    p.AGE,
)
_DRIVER_TABLE = p.Table(
    p.NAME,
    p.plain("AttachRequired", "spec.attachRequired", absent=True, kind="boolean"),
    p.plain("PodInfoOnMount", "spec.podInfoOnMount", absent=False, kind="boolean"),
    p.plain("StorageCapacity", "spec.storageCapacity", absent=False, kind="boolean"),
    p.plain("TokenRequests", _audiences),
    p.plain("RequiresRepublish", "spec.requiresRepublish", absent=False, kind="boolean"),
    p.plain("Modes", lambda obj: ",".join(get_list(obj, "spec", "volumeLifecycleModes")) or p.NONE),
    p.AGE,
)
_ATTACHMENT_TABLE = p.Table(
    p.NAME,
    p.Column("Attacher", format="name", read=lambda obj: get_object(obj, "spec").get("attacher") or ""),
    p.plain("PV", "spec.source.persistentVolumeName", empty=""),
    p.plain("Node", "spec.nodeName"),
    p.plain("Attached", "status.attached", absent=False, kind="boolean"),
    p.AGE,
)


_DRIVERS = p.plain("Drivers", lambda obj: len(get_list(obj, "spec", "drivers")), kind="integer")
_CAPACITY_TABLE = p.Table(
    p.NAME, p.plain("StorageClassName", "storageClassName"), p.plain("Capacity", "capacity", empty=p.UNSET)
)
_ATTRIBUTES_TABLE = p.Table(
    p.name_as(lambda obj: p.name_of(obj) + _default_mark(obj, DEFAULT_ATTRIBUTES_CLASS)),
    p.plain("DriverName", "driverName"),
    p.AGE,
)


def definitions() -> list[ResourceDefinition]:
    """Everything of storage.k8s.io."""
    return [
        builtin(STORAGE_CLASSES, StorageClassStrategy(), short=("sc",), table=_CLASS_TABLE),
        builtin(CSI_DRIVERS, CsiDriverStrategy(), table=_DRIVER_TABLE),
        builtin(CSI_NODES, CsiNodeStrategy(), table=p.Table(p.NAME, _DRIVERS, p.AGE)),
        builtin(
            CSI_STORAGE_CAPACITIES, CapacityStrategy(), singular="csistoragecapacity", table=_CAPACITY_TABLE
        ),
        builtin(VOLUME_ATTACHMENTS, AttachmentStrategy(), table=_ATTACHMENT_TABLE),
        builtin(
            VOLUME_ATTRIBUTES_CLASSES, AttributesClassStrategy(), short=("vac",), table=_ATTRIBUTES_TABLE
        ),
    ]

"""Storage classes, CSI objects and volume attachments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, UNSET, Table, age, plain
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_object, get_str
from kubecore.resources import CSI_DRIVERS, CSI_NODES, STORAGE_CLASSES, VOLUME_ATTACHMENTS, ResourceType

from . import validation

CAPACITIES = ResourceType("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity")
ATTRIBUTES_CLASSES = ResourceType(
    "storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", False
)
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
BETA_DEFAULT_CLASS = "storageclass.beta.kubernetes.io/is-default-class"
DEFAULT_ATTRIBUTES_CLASS = "volumeattributesclass.alpha.kubernetes.io/is-default-class"


class _StorageStrategy(BuiltinStrategy):
    has_status = False
    tracks_generation = False


class StorageClassStrategy(_StorageStrategy):
    """What volumes can be had; fixed once made."""

    returns_deleted_object = True
    rules = Rules(
        validation.validate_class,
        immutable=("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
    )

    def complete(self, obj: JsonObject) -> None:
        """Volumes are deleted with their claim and made at once."""
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")

    def warnings(self, ctx: RequestContext, obj: JsonObject, old: JsonObject | None) -> list[str]:
        """Deprecated annotations and topology labels."""
        return validation.class_warnings(obj)


class CsiDriverStrategy(_StorageStrategy):
    """How the cluster treats a CSI driver."""

    allow_unconditional_update = False
    returns_deleted_object = True
    rules = Rules(validation.validate_driver, immutable=("spec.attachRequired", "spec.volumeLifecycleModes"))

    def complete(self, obj: JsonObject) -> None:
        """Attached, without pod information; groups by file system."""
        spec = obj["spec"]
        spec.setdefault("attachRequired", True)
        spec.setdefault("podInfoOnMount", False)
        spec.setdefault("storageCapacity", False)
        spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
        spec.setdefault("volumeLifecycleModes", ["Persistent"])
        spec.setdefault("requiresRepublish", False)
        spec.setdefault("seLinuxMount", False)

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """Nothing to drop."""


class CsiNodeStrategy(_StorageStrategy):
    """The drivers of a node."""

    allow_unconditional_update = False
    returns_deleted_object = True
    rules = Rules(validation.validate_csi_node, update=validation.validate_csi_node_update)


class CapacityStrategy(_StorageStrategy):
    """How much a driver has left for a class in a topology."""

    allow_unconditional_update = False
    rules = Rules(validation.validate_capacity, immutable=("nodeTopology", "storageClassName"))


class AttributesClassStrategy(_StorageStrategy):
    """Parameters of volumes that can change; the class itself is fixed."""

    returns_deleted_object = True
    rules = Rules(validation.validate_attributes_class, update=validation.validate_attributes_class_update)


class AttachmentStrategy(BuiltinStrategy):
    """A volume wanted on a node; fixed once made."""

    allow_unconditional_update = False
    returns_deleted_object = True
    tracks_generation = False
    rules = Rules(validation.validate_attachment, immutable=("spec",))


def _name(obj: JsonObject) -> str:
    return get_str(obj, "metadata", "name")


def _default_mark(obj: JsonObject, *annotations: str) -> str:
    found = get_object(obj, "metadata", "annotations")
    return " (default)" if any(found.get(name) == "true" for name in annotations) else ""


def _class_cells(obj: JsonObject) -> list[Any]:
    expansion = obj.get("allowVolumeExpansion")
    return [
        _name(obj) + _default_mark(obj, DEFAULT_CLASS, BETA_DEFAULT_CLASS),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        bool(expansion),
        age(obj),
    ]


def _driver_cells(obj: JsonObject) -> list[Any]:
    spec = get_object(obj, "spec")
    requests = ",".join(request.get("audience", "") for request in spec.get("tokenRequests") or ()) or UNSET
    return [
        _name(obj),
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        requests,
        spec.get("requiresRepublish", False),
        ",".join(spec.get("volumeLifecycleModes") or ()) or "<none>",
        age(obj),
    ]


def _csi_node_cells(obj: JsonObject) -> list[Any]:
    return [_name(obj), len(get_object(obj, "spec").get("drivers") or ()), age(obj)]


def _capacity_cells(obj: JsonObject) -> list[Any]:
    return [_name(obj), obj.get("storageClassName", ""), obj.get("capacity") or UNSET]


def _attachment_cells(obj: JsonObject) -> list[Any]:
    spec: Mapping[str, Any] = get_object(obj, "spec")
    volume = get_object(obj, "spec", "source").get("persistentVolumeName") or ""
    attached = get_object(obj, "status").get("attached", False)
    return [_name(obj), spec.get("attacher", ""), volume, spec.get("nodeName", ""), attached, age(obj)]


def _attributes_cells(obj: JsonObject) -> list[Any]:
    return [_name(obj) + _default_mark(obj, DEFAULT_ATTRIBUTES_CLASS), obj.get("driverName", ""), age(obj)]


_CLASS_TABLE = Table(
    (
        NAME,
        plain("Provisioner"),
        plain("ReclaimPolicy"),
        plain("VolumeBindingMode"),
        plain("AllowVolumeExpansion"),
        AGE,
    ),
    _class_cells,
)
_DRIVER_TABLE = Table(
    (
        NAME,
        plain("AttachRequired", "boolean"),
        plain("PodInfoOnMount", "boolean"),
        plain("StorageCapacity", "boolean"),
        plain("TokenRequests"),
        plain("RequiresRepublish", "boolean"),
        plain("Modes"),
        AGE,
    ),
    _driver_cells,
)
_ATTACHMENT_TABLE = Table(
    (NAME, plain("Attacher"), plain("PV"), plain("Node"), plain("Attached", "boolean"), AGE),
    _attachment_cells,
)


def definitions() -> list[ResourceDefinition]:
    """Everything of storage.k8s.io."""
    return [
        builtin(STORAGE_CLASSES, StorageClassStrategy(), short=("sc",), table=_CLASS_TABLE),
        builtin(CSI_DRIVERS, CsiDriverStrategy(), table=_DRIVER_TABLE),
        builtin(
            CSI_NODES,
            CsiNodeStrategy(),
            table=Table((NAME, plain("Drivers", "integer"), AGE), _csi_node_cells),
        ),
        builtin(
            CAPACITIES,
            CapacityStrategy(),
            singular="csistoragecapacity",
            table=Table((NAME, plain("StorageClassName"), plain("Capacity")), _capacity_cells),
        ),
        builtin(VOLUME_ATTACHMENTS, AttachmentStrategy(), table=_ATTACHMENT_TABLE),
        builtin(
            ATTRIBUTES_CLASSES,
            AttributesClassStrategy(),
            short=("vac",),
            table=Table((NAME, plain("DriverName"), AGE), _attributes_cells),
        ),
    ]

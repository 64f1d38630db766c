"""Claims and volumes: the default class, protection while in use, and growing only where that is possible."""

from __future__ import annotations

from kindling.apiserver.registry.admission import Admission, AdmissionAttributes
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from kubecore.objects.storage_class import CLASS_ANNOTATION, class_of
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES

from .base import ReadingPlugin, concerns, refuse

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_BETA_DEFAULT_CLASS = "storageclass.beta.kubernetes.io/is-default-class"
_PROTECTION = {
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
    "persistentvolumes": "kubernetes.io/pv-protection",
}


def newest_default(objects: list[JsonObject], *annotations: str) -> JsonObject | None:
    """Of the objects that an annotation marks as default the newest (of equally new the first by name)."""
    marked = [
        each for each in objects if any(meta.annotations(each).get(key) == "true" for key in annotations)
    ]
    marked.sort(key=meta.name)
    marked.sort(key=meta.creation_timestamp, reverse=True)
    return marked[0] if marked else None


class DefaultStorageClass(ReadingPlugin):
    """Claims that name no class get the default one."""

    async def mutate(self, attributes: AdmissionAttributes) -> None:
        """See the class."""
        claim = attributes.object
        if claim is None or not concerns(attributes, PERSISTENT_VOLUME_CLAIMS, "CREATE"):
            return
        spec = claim.setdefault("spec", {})
        if spec.get("storageClassName") is not None or CLASS_ANNOTATION in meta.annotations(claim):
            return
        chosen = newest_default(list(self._objects.list(STORAGE_CLASSES)), DEFAULT_CLASS, _BETA_DEFAULT_CLASS)
        if chosen is not None:
            spec["storageClassName"] = meta.name(chosen)


class StorageProtection(Admission):
    """Adds to new claims and volumes the finalizer that protects them while they are in use."""

    async def mutate(self, attributes: AdmissionAttributes) -> None:
        """See the class."""
        if attributes.object is None:
            return
        for resource in (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES):
            if concerns(attributes, resource, "CREATE"):
                meta.add_finalizer(attributes.object, _PROTECTION[resource.plural])


class ClaimResize(ReadingPlugin):
    """Claims grow only when their class allows it."""

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """See the class."""
        new, old = attributes.object, attributes.old_object
        if new is None or old is None or not concerns(attributes, PERSISTENT_VOLUME_CLAIMS, "UPDATE"):
            return
        if _requested(new) is None or _requested(old) is None:
            return
        before, after = Quantity.parse(str(_requested(old))), Quantity.parse(str(_requested(new)))
        if after <= before:
            return
        if get_str(old, "status", "phase") != "Bound":
            raise refuse(attributes, "Only bound persistent volume claims can be expanded")
        name = class_of(new)
        found = self._objects.get(STORAGE_CLASSES, None, name) if name else None
        if found is None or found.get("allowVolumeExpansion") is not True:
            raise refuse(
                attributes,
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the "
                "pvc must support resize",
            )


def _requested(claim: JsonObject) -> str | None:
    value = get_object(claim, "spec", "resources", "requests").get("storage")
    return None if value is None else str(value)

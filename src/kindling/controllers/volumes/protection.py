"""The finalizers that keep objects from being deleted: claims in use by pods, volumes bound to claims, and
VolumeAttributesClasses that claims or volumes have.
"""

from __future__ import annotations

from kindling.controllers import pods as pod_facts
from kindling.controllers.environment import Environment
from kindling.scheduler import volume_rules
from kubecore.errors import ignoring
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    VOLUME_ATTRIBUTES_CLASSES,
    ResourceType,
)
from kubecore.runtime import DONE, Key, Result

CLAIM_FINALIZER = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER = "kubernetes.io/pv-protection"
CLASS_FINALIZER = "kubernetes.io/vac-protection"
CLAIM_INDEX = "claim"


def attributes_classes(obj: JsonObject) -> set[str]:
    """The VolumeAttributesClasses that a claim or volume has, or has until a change is done."""
    status = get_object(obj, "status")
    found = {
        volume_rules.attributes_class(obj),
        get_str(status, "currentVolumeAttributesClassName"),
        get_str(status, "modifyVolumeStatus", "targetVolumeAttributesClassName"),
    }
    return found - {""}


def is_used(claim: JsonObject, pods: list[JsonObject]) -> bool:
    """Whether a pod that may still touch the claim's data uses it.

    Pods that are not scheduled yet or have ended do not use it.
    """
    return any(get_str(pod, "spec", "nodeName") and not pod_facts.is_finished(pod) for pod in pods)


class VolumeProtection:
    """Adds the finalizers, and removes them from deleted objects that are no longer in use."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        manager = environment.manager
        self._claims = manager.informer(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = manager.informer(PERSISTENT_VOLUMES)
        self._pods = manager.informer(PODS, indexers={CLAIM_INDEX: volume_rules.claim_keys})
        claims = environment.controller("persistentvolumeclaim-protection-controller", self.protect_claim)
        claims.watch(self._claims)
        claims.watch(
            self._pods,
            lambda pod: [(meta.namespace(pod), name) for name in volume_rules.claim_names(pod)],
        )
        volumes = environment.controller("persistentvolume-protection-controller", self.protect_volume)
        volumes.watch(self._volumes)
        self._classes = manager.informer(VOLUME_ATTRIBUTES_CLASSES)
        classes = environment.controller("volumeattributesclass-protection-controller", self.protect_class)
        classes.watch(self._classes)
        for informer in (self._claims, self._volumes):
            classes.watch(informer, lambda obj: [("", name) for name in attributes_classes(obj)])

    async def protect_claim(self, key: Key) -> Result:
        """Add or remove the finalizer of one claim."""
        claim = self._claims.get(*key)
        if claim is None:
            return DONE
        if not meta.is_being_deleted(claim):
            await self._add(PERSISTENT_VOLUME_CLAIMS, claim, CLAIM_FINALIZER)
        elif CLAIM_FINALIZER in meta.finalizers(claim):
            using = self._pods.by_index(CLAIM_INDEX, f"{key[0]}/{key[1]}")
            if is_used(claim, using) or await self._is_used_live(claim):
                return DONE
            await self._remove(PERSISTENT_VOLUME_CLAIMS, claim, CLAIM_FINALIZER)
        return DONE

    async def _is_used_live(self, claim: JsonObject) -> bool:
        """Ask the API server: the cache may lack a pod that was scheduled a moment ago."""
        listing = await self._client.list(PODS, meta.namespace(claim))
        pods = [
            pod for pod in get_list(listing, "items") if meta.name(claim) in volume_rules.claim_names(pod)
        ]
        return is_used(claim, pods)

    async def protect_volume(self, key: Key) -> Result:
        """Add or remove the finalizer of one volume."""
        volume = self._volumes.get(None, key[1])
        if volume is None:
            return DONE
        if not meta.is_being_deleted(volume):
            await self._add(PERSISTENT_VOLUMES, volume, VOLUME_FINALIZER)
        elif VOLUME_FINALIZER in meta.finalizers(volume):
            if get_str(volume, "status", "phase") == "Bound" and get_object(volume, "spec").get("claimRef"):
                return DONE
            await self._remove(PERSISTENT_VOLUMES, volume, VOLUME_FINALIZER)
        return DONE

    async def protect_class(self, key: Key) -> Result:
        """Add or remove the finalizer of one VolumeAttributesClass."""
        found = self._classes.get(None, key[1])
        if found is None:
            return DONE
        if not meta.is_being_deleted(found):
            await self._add(VOLUME_ATTRIBUTES_CLASSES, found, CLASS_FINALIZER)
        elif CLASS_FINALIZER in meta.finalizers(found) and not await self._has_users(key[1]):
            await self._remove(VOLUME_ATTRIBUTES_CLASSES, found, CLASS_FINALIZER)
        return DONE

    async def _has_users(self, attributes_class: str) -> bool:
        """Whether a claim or volume has the class; the API server is asked when the caches know of none."""
        for informer in (self._claims, self._volumes):
            if any(attributes_class in attributes_classes(obj) for obj in informer.list()):
                return True
        for resource in (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES):
            listing = await self._client.list(resource)
            if any(attributes_class in attributes_classes(obj) for obj in get_list(listing, "items")):
                return True
        return False

    async def _add(self, resource: ResourceType, obj: JsonObject, finalizer: str) -> None:
        if finalizer not in meta.finalizers(obj):
            await self._write(resource, obj, [*meta.finalizers(obj), finalizer])

    async def _remove(self, resource: ResourceType, obj: JsonObject, finalizer: str) -> None:
        kept = [entry for entry in meta.finalizers(obj) if entry != finalizer]
        await self._write(resource, obj, kept)

    async def _write(self, resource: ResourceType, obj: JsonObject, finalizers: list[str]) -> None:
        patch = {
            "metadata": {
                "uid": meta.uid(obj),
                "resourceVersion": meta.resource_version(obj),
                "finalizers": finalizers or None,
            }
        }
        with ignoring(404):
            await self._client.patch(
                resource, meta.name(obj), patch, meta.namespace(obj) or None, type="merge"
            )

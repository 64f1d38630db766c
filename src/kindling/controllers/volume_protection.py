"""The finalizers that keep claims in use by pods, and volumes bound to claims, from being deleted."""

from __future__ import annotations

from kindling.controllers import pods as pod_facts
from kindling.controllers.environment import Environment
from kindling.scheduler import volume_rules
from kubecore.errors import ignoring
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, ResourceType
from kubecore.runtime import DONE, Key, Result

CLAIM_FINALIZER = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER = "kubernetes.io/pv-protection"
CLAIM_INDEX = "claim"


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

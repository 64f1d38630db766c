"""The persistent volume controller: binds claims, requests provisioning, reclaims released volumes."""

from __future__ import annotations

import logging

from kindling.controllers.environment import Environment
from kindling.controllers.volumes import binding
from kindling.controllers.volumes.claim_events import ClaimEvents
from kindling.scheduler import volume_rules
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.claim import BIND_COMPLETED, is_bound
from kubecore.objects.storage_class import CLASS_ANNOTATION, class_of
from kubecore.objects.times import now_rfc3339
from kubecore.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from kubecore.runtime import DONE, Key, RequeueAfter, Result

logger = logging.getLogger(__name__)

NAME = "persistentvolume-controller"
RETRY_SECONDS = 15.0
"""Pending claims are looked at (and told about in events) this often."""


class VolumeController:
    """Two loops, one keyed by claim and one by volume, as each may be ahead of the other."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        self._recorder = environment.recorder(NAME)
        self._events = ClaimEvents(self._recorder, RETRY_SECONDS)
        manager = environment.manager
        self._claims = manager.informer(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = manager.informer(PERSISTENT_VOLUMES)
        self._classes = manager.informer(STORAGE_CLASSES)
        self._pods = manager.informer(PODS)
        claims = environment.controller("persistentvolume-binder-claims", self.reconcile_claim)
        claims.watch(self._claims)
        claims.watch(self._volumes, self._claims_of_volume)
        claims.watch(self._classes, self._claims_of_class)
        claims.watch(self._pods, _claims_of_pod)
        volumes = environment.controller("persistentvolume-binder-volumes", self.reconcile_volume)
        volumes.watch(self._volumes)
        volumes.watch(self._claims, self._volumes_of_claim)

    def _claims_of_volume(self, volume: JsonObject) -> list[Key]:
        reference = get_object(volume, "spec").get("claimRef")
        if reference:
            return [(reference.get("namespace", ""), reference.get("name", ""))]
        name = class_of(volume)
        return self._pending(name)

    def _claims_of_class(self, found: JsonObject) -> list[Key]:
        return self._pending(meta.name(found)) + self._pending("")

    def _pending(self, class_name: str) -> list[Key]:
        return [
            meta.key(claim)
            for claim in self._claims.list()
            if class_of(claim) == class_name and not is_bound(claim)
        ]

    def _volumes_of_claim(self, claim: JsonObject) -> list[Key]:
        keys = [("", meta.name(found)) for found in self._volumes.list() if binding.refers_to(found, claim)]
        name = get_str(claim, "spec", "volumeName")
        return [*keys, ("", name)] if name else keys

    async def reconcile_claim(self, key: Key) -> Result:
        """Bring one claim further."""
        claim = self._claims.get(*key)
        if claim is None:
            self._events.forget(key)
            return DONE
        if BIND_COMPLETED in meta.annotations(claim):
            self._events.forget(key)
            await self._check_bound(claim)
            return DONE
        name = get_str(claim, "spec", "volumeName")
        if name:
            return await self._bind_chosen(claim, name)
        if meta.is_being_deleted(claim):
            return DONE
        return await self._find(claim)

    async def _check_bound(self, claim: JsonObject) -> None:
        name = get_str(claim, "spec", "volumeName")
        volume = self._volumes.get(None, name) if name else None
        if not name or volume is None or not binding.refers_to(volume, claim):
            if volume is None and name and await self._exists(name):
                return
            if get_str(claim, "status", "phase") != "Lost":
                reason = "ClaimLost" if volume is None or not name else "ClaimMisbound"
                message = (
                    "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
                    if reason == "ClaimLost"
                    else "Two claims are bound to the same volume, this one is bound incorrectly"
                )
                self._recorder.event(claim, "Warning", reason, message)
                await self._write_claim_status(claim, None, "Lost")
            return
        await self._write_claim_status(claim, volume, "Bound")

    async def _exists(self, name: str) -> bool:
        try:
            await self._client.get(PERSISTENT_VOLUMES, name)
        except StatusError as error:
            if error.code == 404:
                return False
            raise
        return True

    async def _bind_chosen(self, claim: JsonObject, name: str) -> Result:
        """The user named the volume."""
        volume = self._volumes.get(None, name)
        if volume is None:
            await self._write_claim_status(claim, None, "Pending")
            return RequeueAfter(RETRY_SECONDS)
        reference = get_object(volume, "spec").get("claimRef")
        if reference and not binding.refers_to(volume, claim):
            message = (
                f'volume "{name}" already bound to a different claim.'
                if binding.BOUND_BY_CONTROLLER not in meta.annotations(claim)
                else f'claim is bound to volume "{name}" that belongs to another claim'
            )
            self._recorder.event(claim, "Warning", "FailedBinding", message)
            await self._write_claim_status(claim, None, "Pending")
            return RequeueAfter(RETRY_SECONDS)
        if not reference:
            problem = _mismatch(volume, claim)
            if problem:
                message = f'Cannot bind to requested volume "{name}": {problem}'
                self._recorder.event(claim, "Warning", "VolumeMismatch", message)
                await self._write_claim_status(claim, None, "Pending")
                return RequeueAfter(RETRY_SECONDS)
        await self._bind(claim, volume)
        return DONE

    async def _give_default_class(self, claim: JsonObject) -> bool:
        """Put the default class into a claim that was made before there was one."""
        if "storageClassName" in get_object(claim, "spec") or CLASS_ANNOTATION in meta.annotations(claim):
            return False
        chosen = binding.default_class(self._classes.list())
        if chosen is None:
            return False
        updated = deep_copy(claim)
        updated["spec"]["storageClassName"] = meta.name(chosen)
        await self._client.update(PERSISTENT_VOLUME_CLAIMS, updated)
        return True

    async def _find(self, claim: JsonObject) -> Result:
        if await self._give_default_class(claim):
            return DONE
        class_name = class_of(claim)
        found = self._classes.get(None, class_name) if class_name else None
        delayed = binding.waits_for_consumer(claim, found)
        reserved = [volume for volume in self._volumes.list() if self._is_reserved(volume, claim)]
        candidates = reserved if delayed else self._volumes.list()
        volume = binding.match(claim, candidates)
        if volume is not None:
            await self._bind(claim, volume)
            return DONE
        await self._write_claim_status(claim, None, "Pending")
        if delayed and not self._consumers(claim):
            message = "waiting for first consumer to be created before binding"
            self._events.waits(claim, "Normal", "WaitForFirstConsumer", message)
        elif delayed:
            names = ",".join(meta.name(pod) for pod in self._consumers(claim))
            self._events.waits(
                claim, "Normal", "WaitForPodScheduled", f"waiting for pod {names} to be scheduled"
            )
        elif found is not None and found.get("provisioner") not in (None, volume_rules.NO_PROVISIONER):
            await self._ask_driver(claim, str(found["provisioner"]))
        elif class_name and found is None:
            message = f'storageclass.storage.k8s.io "{class_name}" not found'
            self._events.waits(claim, "Warning", "ProvisioningFailed", message)
        elif found is not None and found.get("provisioner"):
            # as where Kubernetes looks for a plugin of that name among its own
            message = f"no volume plugin matched name: {volume_rules.NO_PROVISIONER}"
            self._events.waits(claim, "Warning", "ProvisioningFailed", message)
        else:
            message = "no persistent volumes available for this claim and no storage class is set"
            self._events.waits(claim, "Normal", "FailedBinding", message)
        return RequeueAfter(RETRY_SECONDS)

    def _is_reserved(self, volume: JsonObject, claim: JsonObject) -> bool:
        return bool(get_object(volume, "spec").get("claimRef")) and binding.refers_to(volume, claim)

    def _consumers(self, claim: JsonObject) -> list[JsonObject]:
        return [
            pod
            for pod in self._pods.list(meta.namespace(claim))
            if meta.name(claim) in volume_rules.claim_names(pod) and not get_str(pod, "spec", "nodeName")
        ]

    async def _ask_driver(self, claim: JsonObject, provisioner: str) -> None:
        """Set the annotation that makes an external provisioner create a volume."""
        wanted = {
            binding.STORAGE_PROVISIONER: provisioner,
            binding.BETA_STORAGE_PROVISIONER: provisioner,
        }
        if not wanted.items() <= meta.annotations(claim).items():
            updated = deep_copy(claim)
            updated["metadata"]["annotations"] = {**meta.annotations(claim), **wanted}
            await self._client.update(PERSISTENT_VOLUME_CLAIMS, updated)
        message = (
            "Waiting for a volume to be created either by the external provisioner "
            f"'{provisioner}' or manually by the system administrator. If volume creation is delayed, "
            "please verify that the provisioner is running and correctly registered."
        )
        self._events.waits(claim, "Normal", "ExternalProvisioning", message)

    async def _bind(self, claim: JsonObject, volume: JsonObject) -> None:
        """All four steps; each is skipped when done before, and done again after an interruption."""
        updated_volume = binding.bound_volume(volume, claim)
        if updated_volume is not volume:
            volume = await self._client.update(PERSISTENT_VOLUMES, updated_volume)
        await self._write_volume_phase(volume, "Bound")
        updated_claim = binding.bound_claim(claim, volume)
        if updated_claim is not claim:
            claim = await self._client.update(PERSISTENT_VOLUME_CLAIMS, updated_claim)
        await self._write_claim_status(claim, volume, "Bound")
        logger.info("claim %s/%s has volume %s", *meta.key(claim), meta.name(volume))

    async def reconcile_volume(self, key: Key) -> Result:
        """Sync the phase of one volume; reclaim it when its claim is deleted."""
        volume = self._volumes.get(None, key[1])
        if volume is None:
            return DONE
        reference = get_object(volume, "spec").get("claimRef")
        claim = await self._claim_of(reference) if reference else None
        phase = binding.volume_phase(volume, claim)
        await self._write_volume_phase(volume, phase)
        policy = get_str(volume, "spec", "persistentVolumeReclaimPolicy")
        if phase == "Released" and policy == "Delete" and not meta.is_being_deleted(volume):
            await self._reclaim(volume)
        return DONE

    async def _claim_of(self, reference: JsonObject) -> JsonObject | None:
        """A claim that the cache does not have may be very new: the server knows."""
        namespace, name = reference.get("namespace", ""), reference.get("name", "")
        found = self._claims.get(namespace, name)
        if found is not None:
            return found
        try:
            return await self._client.get(PERSISTENT_VOLUME_CLAIMS, name, namespace)
        except StatusError as error:
            if error.code == 404:
                return None
            raise

    async def _reclaim(self, volume: JsonObject) -> None:
        """External provisioners delete their own volumes; there is no deleter for any other."""
        if binding.PROVISIONED_BY in meta.annotations(volume) or "csi" in get_object(volume, "spec"):
            return
        message = "error getting deleter volume plugin for volume " + f'"{meta.name(volume)}"'
        self._recorder.event(volume, "Warning", "VolumeFailedDelete", message)
        await self._write_volume_phase(volume, "Failed", message)

    async def _write_volume_phase(self, volume: JsonObject, phase: str, message: str = "") -> None:
        status = get_object(volume, "status")
        if status.get("phase") == phase and status.get("message", "") == message:
            return
        updated = {**status, "phase": phase}
        updated.pop("message", None)
        if message:
            updated["message"] = message
        if status.get("phase") != phase:
            updated["lastPhaseTransitionTime"] = now_rfc3339()
        await self._client.update(PERSISTENT_VOLUMES, {**volume, "status": updated}, "status")

    async def _write_claim_status(self, claim: JsonObject, volume: JsonObject | None, phase: str) -> None:
        wanted = binding.claim_status(claim, volume, phase)
        if wanted != get_object(claim, "status"):
            await self._client.update(PERSISTENT_VOLUME_CLAIMS, {**claim, "status": wanted}, "status")


def _mismatch(volume: JsonObject, claim: JsonObject) -> str:
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if volume_rules.capacity(volume) < volume_rules.request(claim):
        return "requested PV is too small"
    if get_str(volume, "spec", "volumeMode") != get_str(claim, "spec", "volumeMode"):
        return "incompatible volumeMode"
    modes = set(get_object(volume, "spec").get("accessModes") or [])
    if not set(get_object(claim, "spec").get("accessModes") or []) <= modes:
        return "incompatible accessMode"
    return ""


def _claims_of_pod(pod: JsonObject) -> list[Key]:
    return [(meta.namespace(pod), name) for name in volume_rules.claim_names(pod)]

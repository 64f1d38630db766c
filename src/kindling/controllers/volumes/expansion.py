"""The expand controller: tells who makes a claim's volume larger, and forgets finished expansions.

External resizers expand CSI volumes; nothing expands volumes of other kinds.
"""

from __future__ import annotations

from kindling.controllers.environment import Environment
from kindling.controllers.volumes import binding
from kindling.scheduler import volume_rules
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kubecore.runtime import DONE, Key, Result
from kubecore.runtime.informer import EventType

NAME = "volume_expand"
WAITING = "waiting for an external controller to expand this PVC"


class VolumeExpansion:
    """Keyed by claim."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        self._recorder = environment.recorder(NAME)
        self._claims = environment.manager.informer(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = environment.manager.informer(PERSISTENT_VOLUMES)
        controller = environment.controller(NAME, self.reconcile)
        controller.watch(self._claims, predicate=_sizes_changed)
        controller.watch(self._volumes, _claim_of_expanded)

    async def reconcile(self, key: Key) -> Result:
        """Look at one claim."""
        claim = self._claims.get(*key)
        if claim is None or get_str(claim, "status", "phase") != "Bound":
            return DONE
        volume = self._volumes.get(None, get_str(claim, "spec", "volumeName"))
        if volume is None or not binding.refers_to(volume, claim):
            return DONE
        wanted, present = volume_rules.request(claim), volume_rules.size_of(claim)
        if wanted > present:
            is_csi = "csi" in get_object(volume, "spec")
            self._recorder.event(claim, "Normal" if is_csi else "Warning", "ExternalExpanding", WAITING)
        elif binding.PRE_RESIZE in meta.annotations(volume) and present >= volume_rules.capacity(volume):
            patch = {
                "metadata": {
                    "resourceVersion": meta.resource_version(volume),
                    "annotations": {binding.PRE_RESIZE: None},
                }
            }
            await self._client.patch(PERSISTENT_VOLUMES, meta.name(volume), patch, type="merge")
        return DONE


def _sizes_changed(event: EventType, old: JsonObject | None, claim: JsonObject) -> bool:
    return old is None or event != "MODIFIED" or _sizes(old) != _sizes(claim)


def _sizes(claim: JsonObject) -> tuple[object, ...]:
    status = get_object(claim, "status")
    return volume_rules.request(claim), status.get("capacity"), status.get("phase")


def _claim_of_expanded(volume: JsonObject) -> list[Key]:
    if binding.PRE_RESIZE not in meta.annotations(volume):
        return []
    claim = get_object(volume, "spec", "claimRef")
    return [(get_str(claim, "namespace"), get_str(claim, "name"))]

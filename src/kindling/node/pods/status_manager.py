"""The status manager: patches pods' statuses in the API, and deletes objects of terminated pods."""

from __future__ import annotations

import logging

from kindling.node.pods.conditions import DISRUPTION, OWNED_CONDITIONS, RESIZE_CONDITIONS
from kubecore.client import Client
from kubecore.errors import StatusError, ignoring
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.resources import PODS

_log = logging.getLogger(__name__)


class StatusManager:
    """Publishes statuses of the node's pods. Caches the last published one, by uid."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._written: dict[str, JsonObject] = {}

    async def publish(self, pod: JsonObject, status: JsonObject) -> None:
        """Patch the status in the API if it differs. Raises StatusError unless the pod is gone."""
        uid = get_str(pod, "metadata", "uid")
        known = self._written.get(uid) or get_object(pod, "status")
        change = status_patch(known, status)
        if not change:
            return
        patch = {"metadata": {"uid": uid}, "status": change}
        metadata = get_object(pod, "metadata")
        try:
            await self._client.patch(
                PODS,
                get_str(metadata, "name"),
                patch,
                get_str(metadata, "namespace"),
                type="strategic",
                subresource="status",
            )
        except StatusError as error:
            if error.code not in (404, 409):
                raise
            _log.debug("a pod status is not written, since the pod was deleted or replaced: %s", error)
        self._written[uid] = status

    async def confirm_deletion(self, pod: JsonObject) -> None:
        """Delete the API object of a pod that is being deleted and no longer runs."""
        metadata = get_object(pod, "metadata")
        with ignoring(404, 409):
            await self._client.delete(
                PODS,
                get_str(metadata, "name"),
                get_str(metadata, "namespace"),
                grace_period_seconds=0,
                uid=get_str(metadata, "uid"),
            )

    def forget(self, uid: str) -> None:
        """Forget a deleted pod."""
        self._written.pop(uid, None)


def status_patch(old: JsonObject, new: JsonObject) -> JsonObject:
    """The strategic merge patch of ``status`` from `old` to `new`; conditions of others are left alone."""
    patch: JsonObject = {}
    for field in sorted(set(old) | set(new)):
        before, after = old.get(field), new.get(field)
        if field == "conditions":
            known = {get_str(item, "type"): item for item in get_list(old, "conditions")}
            changed = [
                item
                for item in get_list(new, "conditions")
                if item["type"] in _PATCHED and not _same(known.get(item["type"]), item)
            ]
            present = {item["type"] for item in get_list(new, "conditions")}
            gone = [kind for kind in RESIZE_CONDITIONS if kind in known and kind not in present]
            if changed or gone:
                patch["conditions"] = [_complete(known.get(item["type"]), item) for item in changed]
                patch["conditions"] += [{"$patch": "delete", "type": kind} for kind in gone]
        elif field in ("podIPs", "hostIPs"):
            if before != after:
                patch[field] = [{"$patch": "replace"}, *(after or [])]
        elif field in ("phase", "reason", "message", "qosClass", "startTime") and after is None:
            continue
        elif field in _WRITTEN and before != after:
            patch[field] = after
    return patch


_PATCHED = (*OWNED_CONDITIONS, DISRUPTION, *RESIZE_CONDITIONS)
_WRITTEN = frozenset(
    (
        "observedGeneration",
        "phase",
        "reason",
        "message",
        "startTime",
        "qosClass",
        "hostIP",
        "podIP",
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
        "resources",
    )
)


def _same(old: JsonObject | None, new: JsonObject) -> bool:
    fields = ("status", "reason", "message", "observedGeneration", "lastTransitionTime")
    return old is not None and all(old.get(field) == new.get(field) for field in fields)


def _complete(old: JsonObject | None, new: JsonObject) -> JsonObject:
    """`new`, with null for each field that only `old` has: otherwise a merge patch would keep it."""
    return {field: None for field in old or {} if field not in new} | new

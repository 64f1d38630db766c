"""The attach/detach controller: VolumeAttachments for the pods of each node.

An attacher (the driver's sidecar) acts on VolumeAttachments. A node mounts only what its status lists as
attached, and lists what it mounts, or is about to, as in use. Before a detach the controller removes the
volume from the first list and looks at the second in the answer: whichever of the two wrote first, the other
sees it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from weakref import WeakValueDictionary

from kindling.controllers.environment import Environment
from kindling.controllers.volumes import attachment_rules as rules
from kindling.controllers.volumes.attachment_rules import Lookups, Wanted
from kindling.scheduler import csi, volume_rules
from kubecore.errors import StatusError, ignoring
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import (
    CSI_DRIVERS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    VOLUME_ATTACHMENTS,
)
from kubecore.runtime import DONE, Key, RequeueAfter, Result
from kubecore.runtime.informer import EventType

logger = logging.getLogger(__name__)

NAME = "attachdetach-controller"
_NODE_INDEX = "attachments-node"
_CLAIM_INDEX = "attachments-claim"


class AttachDetachController:
    """Keyed by node and name of the VolumeAttachment."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        self._recorder = environment.recorder(NAME)
        manager = environment.manager
        self._pods = manager.informer(
            PODS, indexers={_NODE_INDEX: _node_of, _CLAIM_INDEX: volume_rules.claim_keys}
        )
        self._claims = manager.informer(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = manager.informer(PERSISTENT_VOLUMES)
        self._nodes = manager.informer(NODES)
        self._drivers = manager.informer(CSI_DRIVERS)
        self._attachments = manager.informer(VOLUME_ATTACHMENTS, indexers={_NODE_INDEX: _node_of})
        self._lookups = Lookups(
            self._claims.get,
            lambda name: self._volumes.get(None, name),
            lambda name: self._drivers.get(None, name),
        )
        self._creating = asyncio.Lock()
        self._writing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By node whose status is being written."""
        self._unwanted_since: dict[Key, float] = {}
        """When an attachment was first seen that no pod wants any more, by the loop's clock."""
        self._told: set[Key] = set()
        """Attachments about whose refusal users were told."""
        controller = environment.controller(NAME, self.reconcile)
        controller.watch(self._attachments, self._keys_of_attachment)
        controller.watch(self._pods, self._keys_of_pod, _pod_matters)
        controller.watch(self._claims, self._keys_of_claim)
        controller.watch(self._volumes, self._keys_of_volume)
        controller.watch(self._nodes, self._keys_of_node, _node_matters)
        controller.watch(self._drivers, self._keys_of_driver)

    # What may need another look

    def _wanted_on(self, node: str) -> dict[str, Wanted]:
        return rules.wanted_on(node, self._pods.by_index(_NODE_INDEX, node), self._lookups)

    def _keys_on(self, node: str) -> list[Key]:
        present = [meta.name(found) for found in self._attachments.by_index(_NODE_INDEX, node)]
        return [(node, name) for name in dict.fromkeys([*self._wanted_on(node), *present])]

    def _keys_of_pods(self, pods: Iterable[JsonObject]) -> list[Key]:
        nodes = dict.fromkeys(name for pod in pods for name in _node_of(pod))
        return [key for node in nodes for key in self._keys_on(node)]

    def _keys_of_pod(self, pod: JsonObject) -> list[Key]:
        return self._keys_of_pods([pod]) if volume_rules.claims_of(pod) else []

    def _keys_of_claim(self, claim: JsonObject) -> list[Key]:
        key = f"{meta.namespace(claim)}/{meta.name(claim)}"
        return self._keys_of_pods(self._pods.by_index(_CLAIM_INDEX, key))

    def _keys_of_volume(self, volume: JsonObject) -> list[Key]:
        return self._keys_of_pods(self._users(volume))

    def _users(self, volume: JsonObject) -> list[JsonObject]:
        claim = get_object(volume, "spec", "claimRef")
        key = f"{get_str(claim, 'namespace')}/{get_str(claim, 'name')}"
        return self._pods.by_index(_CLAIM_INDEX, key)

    def _keys_of_attachment(self, attachment: JsonObject) -> list[Key]:
        """Its own, and those of the other nodes that may wait for its volume."""
        own = (get_str(attachment, "spec", "nodeName"), meta.name(attachment))
        volume = self._volumes.get(None, get_str(attachment, "spec", "source", "persistentVolumeName"))
        return [own, *(self._keys_of_volume(volume) if volume is not None else ())]

    def _keys_of_node(self, node: JsonObject) -> list[Key]:
        name = meta.name(node)
        listed = [
            csi.of_unique_name(get_str(entry, "name"))
            for entry in get_list(node, "status", "volumesAttached")
        ]
        return [*self._keys_on(name), *((name, found.attachment_name(name)) for found in listed if found)]

    def _keys_of_driver(self, driver: JsonObject) -> list[Key]:
        return [key for node in self._nodes.list() for key in self._keys_on(meta.name(node))]

    # What is done

    async def reconcile(self, key: Key) -> Result:
        """Bring one attachment further."""
        node_name, name = key
        wanted = self._wanted_on(node_name).get(name)
        attachment = self._attachments.get(None, name)
        node = self._nodes.get(None, node_name)
        if wanted is None:
            self._told.discard(key)
            return await self._detach(key, node, attachment)
        self._unwanted_since.pop(key, None)
        if node is None or not rules.is_managed(node):
            return DONE
        if attachment is None:
            await self._report(node_name, name, None)
            await self._attach(key, wanted)
            return DONE
        if meta.is_being_deleted(attachment):
            await self._report(node_name, name, None)
            self._fail(wanted, "volume attachment is being deleted")
            return DONE
        return await self._follow(key, wanted, attachment)

    async def _follow(self, key: Key, wanted: Wanted, attachment: JsonObject) -> Result:
        """Tell the node and users how far the attacher has come."""
        if get_bool(attachment, "status", "attached"):
            self._told.discard(key)
            if await self._report(*key, wanted):
                text = f"AttachVolume.Attach succeeded for volume {_quoted(wanted)} "
                for pod in wanted.pods:
                    self._recorder.event(pod, "Normal", "SuccessfulAttachVolume", text)
            return DONE
        await self._report(*key, None)
        if problem := get_str(attachment, "status", "attachError", "message"):
            self._fail(wanted, problem)
        return DONE

    def _fail(self, wanted: Wanted, problem: str) -> None:
        text = f"AttachVolume.Attach failed for volume {_quoted(wanted)} : {problem}"
        for pod in wanted.pods:
            self._recorder.event(pod, "Warning", "FailedAttachVolume", text)

    async def _attach(self, key: Key, wanted: Wanted) -> None:
        """Create the VolumeAttachment, unless another node has the volume for itself."""
        node, name = key
        # The cache may lack what was created a moment ago: the server knows, and nobody else creates them.
        async with self._creating:
            elsewhere = await self._nodes_of(wanted, node)
            if elsewhere and not rules.is_shareable(wanted.persistent):
                self._refuse(key, wanted, elsewhere)
                return
            spec = {
                "attacher": wanted.volume.driver,
                "nodeName": node,
                "source": {"persistentVolumeName": meta.name(wanted.persistent)},
            }
            document = {
                "apiVersion": VOLUME_ATTACHMENTS.api_version,
                "kind": VOLUME_ATTACHMENTS.kind,
                "metadata": {"name": name},
                "spec": spec,
            }
            try:
                await self._client.create(VOLUME_ATTACHMENTS, document)
            except StatusError as error:
                if error.reason == "AlreadyExists":
                    return
                self._fail(wanted, error.message)
                raise
        logger.info("attaching volume %s to node %s", meta.name(wanted.persistent), node)

    async def _nodes_of(self, wanted: Wanted, node: str) -> set[str]:
        """The other nodes that the volume is attached to, or is being attached to or detached from."""
        listing = await self._client.list(VOLUME_ATTACHMENTS)
        others = {
            (get_str(found, "spec", "nodeName"), meta.name(found)) for found in get_list(listing, "items")
        }
        return {
            other for other, name in others if other != node and name == wanted.volume.attachment_name(other)
        }

    def _refuse(self, key: Key, wanted: Wanted, elsewhere: set[str]) -> None:
        """Tell users once. A change of the other attachment enqueues this one."""
        if key in self._told:
            return
        self._told.add(key)
        others = [
            pod
            for pod in self._users(wanted.persistent)
            if rules.uses_volumes(pod) and not elsewhere.isdisjoint(_node_of(pod))
        ]
        for pod in wanted.pods:
            text = rules.multi_attach_text(pod, others)
            message = f"Multi-Attach error for volume {_quoted(wanted)} {text}"
            self._recorder.event(pod, "Warning", "FailedAttachVolume", message)

    async def _detach(self, key: Key, node: JsonObject | None, attachment: JsonObject | None) -> Result:
        """Delete the attachment once the node does not use the volume."""
        name = key[1]
        if attachment is None or meta.is_being_deleted(attachment):
            self._unwanted_since.pop(key, None)
            if node is not None:
                await self._report(*key, None)
            return DONE
        now = asyncio.get_running_loop().time()
        seconds = now - self._unwanted_since.setdefault(key, now)
        forced = rules.may_force(node, seconds)
        if not forced and (node is None or rules.is_in_use(node, name)):
            # A change of the node enqueues the key; only the time limit has no event.
            return RequeueAfter(max(1.0, rules.FORCE_SECONDS - seconds))
        if node is not None:
            current = await self._written(*key, None)
            if current is not None and not forced and rules.is_in_use(current, name):
                return RequeueAfter(1.0)
        if forced:
            logger.warning(
                "volume attachment %s is deleted although node %s has not reported the volume unmounted",
                name,
                key[0],
            )
        with ignoring(404):
            await self._client.delete(VOLUME_ATTACHMENTS, name, uid=meta.uid(attachment))
        self._unwanted_since.pop(key, None)
        return DONE

    async def _report(self, node: str, attachment: str, wanted: Wanted | None) -> bool:
        """List a volume as attached in a node's status, or (None) no longer; returns whether it changed."""
        cached = self._nodes.get(None, node)
        volume = wanted.volume if wanted else None
        listed = get_list(cached or {}, "status", "volumesAttached")
        if cached is not None and rules.attached_with(cached, attachment, volume) == listed:
            return False
        return await self._written(node, attachment, wanted) is not None

    async def _written(self, node: str, attachment: str, wanted: Wanted | None) -> JsonObject | None:
        """Write a node's ``volumesAttached`` and return the node; None when it does not exist."""
        volume = wanted.volume if wanted else None
        lock = self._writing.setdefault(node, asyncio.Lock())
        async with lock:
            try:
                current = await self._client.get(NODES, node)
                attached = rules.attached_with(current, attachment, volume)
                if attached == get_list(current, "status", "volumesAttached"):
                    return current
                patch = {
                    "metadata": {"resourceVersion": meta.resource_version(current)},
                    "status": {"volumesAttached": attached or None},
                }
                return await self._client.patch(NODES, node, patch, type="merge", subresource="status")
            except StatusError as error:
                if error.code != 404:
                    raise
                return None


def _node_of(obj: JsonObject) -> list[str]:
    name = get_str(obj, "spec", "nodeName")
    return [name] if name else []


def _pod_matters(event: EventType, old: JsonObject | None, pod: JsonObject) -> bool:
    if old is None or event != "MODIFIED":
        return True
    return (_node_of(old), rules.uses_volumes(old)) != (_node_of(pod), rules.uses_volumes(pod))


def _node_matters(event: EventType, old: JsonObject | None, node: JsonObject) -> bool:
    return old is None or event != "MODIFIED" or _node_view(old) != _node_view(node)


def _node_view(node: JsonObject) -> tuple[object, ...]:
    status = get_object(node, "status")
    return (
        status.get("volumesInUse"),
        status.get("volumesAttached"),
        get_list(node, "spec", "taints"),
        meta.is_condition_true(node, "Ready"),
        rules.is_managed(node),
    )


def _quoted(wanted: Wanted) -> str:
    return f'"{meta.name(wanted.persistent)}"'

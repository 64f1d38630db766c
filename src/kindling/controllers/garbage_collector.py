"""Garbage collection: objects whose owners are all gone are deleted; deletion policies are carried out.

Watches the metadata of every kind that can be listed, watched and deleted, custom ones included, and
discovers new kinds as they come. Before an object is deleted, its owners are read from the API server, not
from a cache.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Literal

from kindling.controllers.environment import Environment
from kindling.controllers.ownership_graph import (
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    Node,
    OwnershipGraph,
    Reference,
    node_of,
    references,
)
from kubecore.client import ConnectionFailed, discover
from kubecore.errors import StatusError, ignoring
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import API_SERVICES, CUSTOM_RESOURCE_DEFINITIONS, ResourceType
from kubecore.runtime import DONE, Informer, Key, RequeueAfter, Result
from kubecore.runtime.informer import EventType

logger = logging.getLogger(__name__)

NAME = "garbage-collector-controller"
RESYNC_SECONDS = 30.0
IGNORED = frozenset({("", "events"), ("events.k8s.io", "events")})
"""Events are too many to watch and own nothing."""

PATIENCE_SECONDS = 30.0
"""A kind that cannot be listed for so long (its extension server is down) holds nobody else up any more."""

_KEPT_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "ownerReferences",
    "deletionTimestamp",
    "finalizers",
)

OwnerState = Literal["solid", "dangling", "waiting"]


class GarbageCollector:
    """Keyed by uid (in the place of the name)."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        self._deletion_listeners = environment.deletion_listeners
        self._recorder = environment.recorder(NAME)
        self._graph = OwnershipGraph()
        self._informers: dict[ResourceType, tuple[Informer, asyncio.Task[None]]] = {}
        self._started: dict[ResourceType, float] = {}
        self._known: dict[tuple[str, str], ResourceType] = {}
        self._changed = asyncio.Event()
        self._controller = environment.controller(NAME, self.reconcile, workers=10)
        for trigger in (CUSTOM_RESOURCE_DEFINITIONS, API_SERVICES):
            # Only that they change matters: the schemas of all definitions are some megabytes.
            environment.manager.informer(trigger, metadata_only=True).add_handler(self._kinds_changed)
        environment.manager.add_runnable("garbage-collector-kinds", self._follow_kinds)

    async def reconcile(self, key: Key) -> Result:
        """Sync one object: carry out its deletion policy, or delete it when its owners are gone."""
        if not self._is_synced():
            return RequeueAfter(0.5)
        node = self._graph.get(key[1])
        if node is None or (node.is_dying and not (node.waits_for_dependents or node.orphans_dependents)):
            return DONE
        live = await self._live(node.resource, node.namespace, node.name)
        if live is None or meta.uid(live) != node.uid:
            self._look(self._graph.remove(node.uid))
            return DONE
        if node.orphans_dependents and ORPHAN_FINALIZER in meta.finalizers(live):
            await self._orphan(node, live)
        elif node.waits_for_dependents and FOREGROUND_FINALIZER in meta.finalizers(live):
            return await self._finish_foreground(node, live)
        elif not meta.is_being_deleted(live):
            await self._collect(node, live)
        return DONE

    async def _collect(self, node: Node, live: JsonObject) -> None:
        owners = references(live)
        if not owners:
            return
        states: dict[OwnerState, list[Reference]] = {"solid": [], "dangling": [], "waiting": []}
        for reference in owners:
            states[await self._state_of(node, reference)].append(reference)
        if states["solid"]:
            gone = states["dangling"] + states["waiting"]
            if states["dangling"] and gone:
                await self._drop_references(node, live, {reference.uid for reference in gone})
            elif states["waiting"]:
                await self._drop_references(node, live, {reference.uid for reference in states["waiting"]})
            return
        dependents = self._graph.dependents(node.uid)
        if states["waiting"] and dependents:
            await self._unblock_circles(node, dependents)
            await self._delete(node, live, "Foreground")
            return
        policy = "Background"
        if ORPHAN_FINALIZER in meta.finalizers(live):
            policy = "Orphan"
        elif FOREGROUND_FINALIZER in meta.finalizers(live):
            policy = "Foreground"
        await self._delete(node, live, policy)

    async def _state_of(self, node: Node, reference: Reference) -> OwnerState:
        """The state of an owner on the API server. The graph is trusted only for owners that it has."""
        owner = self._graph.get(reference.uid)
        if owner is not None and owner.name == reference.name and owner.namespace in ("", node.namespace):
            return "waiting" if owner.waits_for_dependents else "solid"
        resource = self._known.get((reference.group, reference.kind))
        if resource is None:
            # An unknown kind may be served again later, so its objects do not count as deleted.
            self._changed.set()
            raise StatusError(
                404,
                "NotFound",
                f"unable to get the resource of owner {reference.api_version}/{reference.kind}",
            )
        if resource.namespaced and not node.namespace:
            self._report_invalid_namespace(node, reference)
            return "solid"
        live = await self._live(resource, node.namespace if resource.namespaced else "", reference.name)
        if live is None or meta.uid(live) != reference.uid:
            if owner is not None and owner.namespace != node.namespace:
                self._report_invalid_namespace(node, reference)
            return "dangling"
        waits = meta.is_being_deleted(live) and FOREGROUND_FINALIZER in meta.finalizers(live)
        return "waiting" if waits else "solid"

    def _report_invalid_namespace(self, node: Node, reference: Reference) -> None:
        subject = {
            "apiVersion": node.resource.api_version,
            "kind": node.resource.kind,
            "metadata": {"name": node.name, "namespace": node.namespace, "uid": node.uid},
        }
        identity = (
            f"[{reference.api_version}/{reference.kind}, namespace: {node.namespace}, "
            f"name: {reference.name}, uid: {reference.uid}]"
        )
        self._recorder.event(
            subject,
            "Warning",
            "OwnerRefInvalidNamespace",
            f'ownerRef {identity} does not exist in namespace "{node.namespace}"',
        )

    async def _unblock_circles(self, node: Node, dependents: Iterable[Node]) -> None:
        """Unblock dependents that wait for this object in a cycle of foreground deletions."""
        for dependent in dependents:
            if not dependent.waits_for_dependents:
                continue
            live = await self._live(node.resource, node.namespace, node.name)
            if live is None:
                return
            owners = [
                {**entry, "blockOwnerDeletion": False} if entry.get("blockOwnerDeletion") else entry
                for entry in meta.owner_references(live)
            ]
            await self._patch(node, {"ownerReferences": owners}, meta.resource_version(live))
            return

    async def _finish_foreground(self, node: Node, live: JsonObject) -> Result:
        blocking = [dependent for dependent in self._graph.dependents(node.uid) if dependent.blocks(node.uid)]
        if blocking:
            self._look(dependent.uid for dependent in blocking if not dependent.waits_for_dependents)
            return DONE
        await self._remove_finalizer(node, live, FOREGROUND_FINALIZER)
        return DONE

    async def _orphan(self, node: Node, live: JsonObject) -> None:
        for dependent in self._graph.dependents(node.uid):
            current = await self._live(dependent.resource, dependent.namespace, dependent.name)
            if current is not None and meta.uid(current) == dependent.uid:
                await self._drop_references(dependent, current, {node.uid})
        await self._remove_finalizer(node, live, ORPHAN_FINALIZER)

    async def _drop_references(self, node: Node, live: JsonObject, uids: set[str]) -> None:
        kept = [entry for entry in meta.owner_references(live) if entry.get("uid") not in uids]
        if len(kept) != len(meta.owner_references(live)):
            await self._patch(node, {"ownerReferences": kept or None}, meta.resource_version(live))

    async def _remove_finalizer(self, node: Node, live: JsonObject, finalizer: str) -> None:
        kept = [entry for entry in meta.finalizers(live) if entry != finalizer]
        await self._patch(node, {"finalizers": kept or None}, meta.resource_version(live))

    async def _patch(self, node: Node, metadata: JsonObject, resource_version: str) -> None:
        patch = {"metadata": {**metadata, "uid": node.uid, "resourceVersion": resource_version}}
        with ignoring(404):
            await self._client.patch(node.resource, node.name, patch, node.namespace or None, type="merge")

    async def _delete(self, node: Node, live: JsonObject, policy: str) -> None:
        logger.info("deleting %s %s/%s: its owners are gone", node.resource.kind, node.namespace, node.name)
        with ignoring(404):
            await self._client.delete(
                node.resource,
                node.name,
                node.namespace or None,
                propagation_policy=policy,
                uid=node.uid,
                resource_version=meta.resource_version(live),
            )

    async def _live(self, resource: ResourceType, namespace: str, name: str) -> JsonObject | None:
        try:
            return await self._client.get(resource, name, namespace or None)
        except StatusError as error:
            if error.code == 404:
                return None
            raise

    def _look(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._controller.enqueue(("", uid))

    def _is_synced(self) -> bool:
        now = asyncio.get_running_loop().time()
        return bool(self._informers) and all(
            informer.has_synced or now - self._started[resource] > PATIENCE_SECONDS
            for resource, (informer, _) in self._informers.items()
        )

    def _kinds_changed(self, _event: EventType, _old: JsonObject | None, _new: JsonObject) -> None:
        self._changed.set()

    async def _follow_kinds(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._changed.clear()
                    await self._sync_kinds(group)
                    try:
                        async with asyncio.timeout(RESYNC_SECONDS):
                            await self._changed.wait()
                            # Resources of a new definition are served a moment after it is written.
                            await asyncio.sleep(0.5)
                    except TimeoutError:
                        continue
        finally:
            self._informers.clear()

    async def _sync_kinds(self, group: asyncio.TaskGroup) -> None:
        try:
            discovery = await discover(self._client)
        except (StatusError, ConnectionFailed) as error:
            logger.warning("discovery failed, so new kinds are not collected until it succeeds: %s", error)
            return
        wanted: dict[ResourceType, None] = {}
        for served in discovery.resources:
            self._known.setdefault((served.resource.group, served.resource.kind), served.resource)
        for served in discovery.preferred():
            resource = served.resource
            self._known[(resource.group, resource.kind)] = resource
            if (
                served.supports("list", "watch", "delete")
                and (resource.group, resource.plural) not in IGNORED
            ):
                wanted[resource] = None
        failed = set(discovery.failures)
        for resource in list(self._informers):
            if resource not in wanted and resource.api_version not in failed:
                self._stop(resource)
        for resource in wanted:
            if resource not in self._informers:
                self._start(resource, group)

    def _start(self, resource: ResourceType, group: asyncio.TaskGroup) -> None:
        informer = Informer(self._client, resource, metadata_only=True, transform=_metadata_only)

        def handle(event: EventType, _old: JsonObject | None, new: JsonObject) -> None:
            if event == "DELETED":
                self._look(self._graph.remove(meta.uid(new)))
                for listener in self._deletion_listeners:
                    listener(resource, meta.namespace(new))
            else:
                self._look(self._graph.put(node_of(resource, new)))

        informer.add_handler(handle)
        task = group.create_task(informer.run(), name=f"garbage-collector-{resource.group_resource}")
        self._informers[resource] = (informer, task)
        self._started[resource] = asyncio.get_running_loop().time()

    def _stop(self, resource: ResourceType) -> None:
        _, task = self._informers.pop(resource)
        task.cancel()
        for uid in list(self._graph.uids_of(resource)):
            self._look(self._graph.remove(uid))


def _metadata_only(obj: JsonObject) -> JsonObject:
    metadata = obj["metadata"]
    return {"metadata": {key: metadata[key] for key in _KEPT_METADATA if key in metadata}}

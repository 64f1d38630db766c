"""VolumeAttachments: volumes come to nodes and leave them (kubernetes-csi's external-attacher)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Hashable
from typing import TypeVar

from kubecore.client import ConnectionFailed
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject
from kubecore.objects import times
from kubecore.objects.structs import UnfitDocument, decode
from kubecore.patch.guarded import same_object
from kubecore.resources import CSI_NODES, PERSISTENT_VOLUMES, VOLUME_ATTACHMENTS
from kubecore.runtime import DONE, Controller, Key, RequeueAfter, Result
from kubecore.wire.csi import volume_capability
from virtplane.api import storage_labels as names
from virtplane.api.storage_kinds import (
    CSINode,
    CSIPersistentVolumeSource,
    PersistentVolume,
    PersistentVolumeSpec,
    VolumeAttachment,
)
from virtplane.cluster.objects import described, finalizer_patch
from virtplane.storage.csi.driver import CallError
from virtplane.storage.csi.parts import (
    Environment,
    Problem,
    members_patch,
    patch,
    read_secret,
    versioned,
)

logger = logging.getLogger(__name__)

Found = TypeVar("Found")

_BY_VOLUME = "volume"
_BOTH = "both InlineCSIVolumeSource and PersistentVolumeName specified in VA source"
_NEITHER = "neither InlineCSIVolumeSource nor PersistentVolumeName specified in VA source"


def finalizer_of(driver: str) -> str:
    """The finalizer of what the driver has attached."""
    name = re.sub(r"[^a-zA-Z0-9-]", "-", driver)
    return names.ATTACHER_FINALIZER_PREFIX + (name + "X" if name.endswith("-") else name)


class TrivialAttacher:
    """For drivers whose volumes need not be attached: every VolumeAttachment is attached at once."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._attachments = env.manager.informer(VOLUME_ATTACHMENTS, struct=VolumeAttachment)
        controller = Controller("csi-attacher", self.reconcile, workers=env.workers, max_delay=300.0)
        controller.watch(self._attachments)
        env.manager.add(controller)

    async def reconcile(self, key: Key) -> Result:
        """Say that the volume is attached. Raises StatusError, ConnectionFailed."""
        attachment = _readable(self._attachments.get, key)
        if attachment is None or attachment.spec.attacher != self._env.identity.name:
            return DONE
        if not attachment.status.attached:
            await patch(
                self._env.client, VOLUME_ATTACHMENTS, attachment, attached_patch(attachment, {}), "status"
            )
        return DONE


class Attacher:
    """Reconciles VolumeAttachments, and the finalizers of the volumes that they name."""

    def __init__(
        self, env: Environment, *, default_fs_type: str, compare_seconds: float, max_entries: int = 0
    ) -> None:
        """Where the driver lists which volumes are where, that is compared every `compare_seconds`."""
        self._env = env
        self._default_fs_type = default_fs_type
        self._compare_seconds = compare_seconds
        self._max_entries = max_entries
        self._finalizer = finalizer_of(env.identity.name)
        manager = env.manager
        self._attachments = manager.informer(
            VOLUME_ATTACHMENTS, struct=VolumeAttachment, indexers={_BY_VOLUME: _volume_names}
        )
        self._volumes = manager.informer(PERSISTENT_VOLUMES, struct=PersistentVolume)
        self._nodes = manager.informer(CSI_NODES, struct=CSINode)
        self._retries = env.retries(lambda: asyncio.get_running_loop().time())
        self._doubtful: set[str] = set()
        """Attachments whose status the driver contradicts."""
        self._controller = Controller("csi-attacher", self.reconcile, workers=env.workers, max_delay=30.0)
        self._controller.watch(self._attachments)
        self._controller.depend(self._volumes)
        self._controller.depend(self._nodes)
        releases = Controller("csi-attached-volumes", self.release, max_delay=60.0)
        releases.watch(self._volumes)
        releases.watch(self._attachments, lambda each: [("", name) for name in _volume_names(each)])
        manager.add(self._controller)
        manager.add(releases)
        if env.identity.controller >= {"LIST_VOLUMES", "LIST_VOLUMES_PUBLISHED_NODES"}:
            manager.add_runnable("csi-attachments-compared", self._compare_always)

    async def reconcile(self, key: Key) -> Result:
        """Attach or detach the volume. Raises StatusError, ConnectionFailed."""
        attachment = _readable(self._attachments.get, key)
        if attachment is None:
            self._retries.forget(key)
            return DONE
        if attachment.spec.attacher != self._env.identity.name or self._is_settled(attachment):
            return DONE
        leaves = attachment.metadata.is_being_deleted
        wish: Hashable = (attachment.metadata.uid, leaves)
        if delay := self._retries.remaining(key, wish):
            return RequeueAfter(delay)
        try:
            await (self._detach(attachment) if leaves else self._attach(attachment))
        except (Problem, CallError) as problem:
            delay = self._retries.failed(key, wish)
            await self._report(attachment, "detachError" if leaves else "attachError", str(problem))
            return RequeueAfter(delay)
        self._retries.forget(key)
        self._doubtful.discard(attachment.metadata.name)
        return DONE

    def _is_settled(self, attachment: VolumeAttachment) -> bool:
        if attachment.metadata.name in self._doubtful:
            return False
        if attachment.metadata.is_being_deleted:
            return self._finalizer not in attachment.metadata.finalizers
        return attachment.status.attached

    async def _attach(self, attachment: VolumeAttachment) -> None:
        """Raises Problem, CallError, StatusError."""
        identity = self._env.identity
        volume, spec = self._volume_of(attachment)
        if volume is not None:
            if volume.metadata.is_being_deleted:
                raise Problem(f'PersistentVolume "{volume.metadata.name}" is marked for deletion')
            operations = finalizer_patch(volume.metadata, self._finalizer, present=True)
            if operations and await patch(self._env.client, PERSISTENT_VOLUMES, volume, operations) is None:
                raise Problem(f'persistentvolume "{volume.metadata.name}" not found')
        source = _csi(spec)
        try:
            capability = volume_capability(
                spec.access_modes,
                block=spec.volume_mode == "Block",
                fs_type=source.fs_type or self._default_fs_type,
                mount_flags=spec.mount_options,
                tells_pods_apart=identity.tells_pods_apart,
            )
        except ValueError as error:
            raise Problem(str(error)) from error
        secrets = await read_secret(self._env.client, source.controller_publish_secret_ref)
        node_id = self._node_id(attachment.spec.node_name, "")
        live = await self._begin(attachment, node_id)
        if live is None:
            return
        answer = await self._env.controller(
            "ControllerPublishVolume",
            {
                "volume_id": source.volume_handle,
                "node_id": node_id,
                "volume_capability": capability,
                "readonly": source.read_only and "PUBLISH_READONLY" in identity.controller,
                "secrets": secrets,
                "volume_context": source.volume_attributes,
            },
        )
        operations = attached_patch(live, dict(answer.publish_context))
        await patch(self._env.client, VOLUME_ATTACHMENTS, live, operations, "status")

    async def _begin(self, attachment: VolumeAttachment, node_id: str) -> VolumeAttachment | None:
        """Write down that the volume may be attached, and where; None where it need not be any more."""
        metadata = attachment.metadata
        finalizers = [*metadata.finalizers]
        if self._finalizer not in finalizers:
            finalizers.append(self._finalizer)
        before = {"finalizers": [*metadata.finalizers], "annotations": dict(metadata.annotations)}
        after = {"finalizers": finalizers, "annotations": {**metadata.annotations, names.NODE_ID: node_id}}
        operations = versioned(attachment, members_patch("/metadata", before, after))
        if operations:
            document = await patch(self._env.client, VOLUME_ATTACHMENTS, attachment, operations)
        else:
            document = await self._read(attachment)
        if document is None:
            return None
        live = decode(VolumeAttachment, document)
        is_wanted = live.metadata.uid == attachment.metadata.uid and not live.metadata.is_being_deleted
        return live if is_wanted else None

    async def _read(self, attachment: VolumeAttachment) -> JsonObject | None:
        try:
            return await self._env.client.get(VOLUME_ATTACHMENTS, attachment.metadata.name)
        except StatusError as error:
            if is_not_found(error):
                return None
            raise

    async def _detach(self, attachment: VolumeAttachment) -> None:
        """Raises Problem, CallError, StatusError."""
        _, spec = self._volume_of(attachment)
        source = _csi(spec)
        secrets = await read_secret(self._env.client, source.controller_publish_secret_ref)
        known = attachment.metadata.annotations.get(names.NODE_ID, "")
        node_id = self._node_id(attachment.spec.node_name, known)
        values = {"volume_id": source.volume_handle, "node_id": node_id, "secrets": secrets}
        await self._env.controller("ControllerUnpublishVolume", values)
        operations = finalizer_patch(attachment.metadata, self._finalizer, present=False)
        document = await patch(self._env.client, VOLUME_ATTACHMENTS, attachment, operations)
        if document is not None:
            # Other finalizers may keep the object: it must not go on saying that the volume is attached.
            operations = [
                *same_object(document),
                {"op": "add", "path": "/status", "value": {"attached": False}},
            ]
            await patch(self._env.client, VOLUME_ATTACHMENTS, attachment, operations, "status")

    async def _report(self, attachment: VolumeAttachment, field: str, text: str) -> None:
        error = {"message": text, "time": times.now_rfc3339()}
        # The first status of an object must say whether it is attached.
        status: JsonObject = {"attached": attachment.status.attached, field: error}
        merge = {"metadata": {"uid": attachment.metadata.uid}, "status": status}
        try:
            await self._env.client.patch(
                VOLUME_ATTACHMENTS, attachment.metadata.name, merge, type="merge", subresource="status"
            )
        except StatusError as failure:
            if not is_not_found(failure):
                raise

    def _volume_of(
        self, attachment: VolumeAttachment
    ) -> tuple[PersistentVolume | None, PersistentVolumeSpec]:
        """The volume to attach. Raises Problem."""
        source = attachment.spec.source
        name, inline = source.persistent_volume_name, source.inline_volume_spec
        if name is not None:
            if inline is not None:
                raise Problem(_BOTH)
            volume = _readable(self._volumes.get, ("", name))
            if volume is None:
                raise Problem(f'persistentvolume "{name}" not found')
            return volume, volume.spec
        if inline is None:
            raise Problem(_NEITHER)
        return None, inline

    def _node_id(self, node: str, known: str) -> str:
        """The driver's name of a node; the `known` one where its kubelet does not say any more."""
        found = _readable(self._nodes.get, ("", node))
        driver = found.driver(self._env.identity.name) if found is not None else None
        if driver is not None:
            return driver.node_id
        if known:
            return known
        if found is None:
            raise Problem(f'csinode.storage.k8s.io "{node}" not found')
        raise Problem(f"CSINode {node} does not contain driver {self._env.identity.name}")

    async def release(self, key: Key) -> Result:
        """Let go a volume that is being deleted and that nothing is attached of.

        Raises StatusError, ConnectionFailed.
        """
        volume = _readable(self._volumes.get, key)
        if volume is None or not volume.metadata.is_being_deleted:
            return DONE
        if self._finalizer not in volume.metadata.finalizers:
            return DONE
        if self._attachments.by_index(_BY_VOLUME, volume.metadata.name):
            return DONE
        if any(volume.metadata.name in _volume_names(each) for each in await self._attachments.read_live()):
            return DONE
        operations = finalizer_patch(volume.metadata, self._finalizer, present=False)
        await patch(self._env.client, PERSISTENT_VOLUMES, volume, operations)
        return DONE

    # What the driver says beside what the objects say.

    async def _compare_always(self) -> None:
        while True:
            await asyncio.sleep(self._compare_seconds)
            try:
                await self.compare()
            except (CallError, ConnectionFailed, StatusError) as error:
                logger.warning("what is attached where is not compared, trying again: %s", error)

    async def compare(self) -> None:
        """Look again at attachments that the driver contradicts. Raises CallError."""
        published = await self._published()
        for attachment in self._attachments.list():
            if attachment.spec.attacher != self._env.identity.name:
                continue
            try:
                _, spec = self._volume_of(attachment)
                known = attachment.metadata.annotations.get(names.NODE_ID, "")
                node_id, handle = self._node_id(attachment.spec.node_name, known), _csi(spec).volume_handle
            except Problem:
                continue  # its own turn says so
            name = attachment.metadata.name
            if attachment.status.attached != (node_id in published.get(handle, ())):
                logger.warning("VolumeAttachment %s and the CSI driver disagree; doing it again", name)
                self._doubtful.add(name)
                self._controller.enqueue(("", name))

    async def _published(self) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        token = ""
        while True:
            values = {"max_entries": self._max_entries, "starting_token": token}
            answer = await self._env.controller("ListVolumes", values)
            for entry in answer.entries:
                found[entry.volume.volume_id] = frozenset(entry.status.published_node_ids)
            if not answer.next_token or answer.next_token == token:
                return found
            token = answer.next_token


def attached_patch(attachment: VolumeAttachment, context: dict[str, str]) -> list[JsonObject]:
    """The operations that say that the volume is attached, with what the node needs to know."""
    status: JsonObject = {"attached": True}
    if context:
        status["attachmentMetadata"] = context
    return [*same_object(described(attachment)), {"op": "add", "path": "/status", "value": status}]


def _csi(spec: PersistentVolumeSpec) -> CSIPersistentVolumeSource:
    if spec.csi is None:
        raise Problem("pv spec contained non-csi source that was not migrated")
    return spec.csi


def _volume_names(attachment: VolumeAttachment) -> list[str]:
    name = attachment.spec.source.persistent_volume_name
    return [name] if name else []


def _readable(get: Callable[[str | None, str], Found | None], key: Key) -> Found | None:
    """The cached object; None for one that cannot be decoded, which the cache has logged."""
    try:
        return get(*key)
    except UnfitDocument:
        return None

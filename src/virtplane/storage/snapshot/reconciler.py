"""The controller of snapshots and their contents."""

from __future__ import annotations

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects import meta, times
from kubecore.patch.guarded import guarded_patch, same_object, same_version
from kubecore.resources import ResourceType
from kubecore.runtime import DONE, Controller, Key, RequeueAfter, Result
from virtplane.api import resources as kinds
from virtplane.cluster import conditions
from virtplane.cluster.caches import Cluster, owner_key
from virtplane.storage.snapshot import decisions

_SNAPSHOTS = kinds.VIRTUAL_MACHINE_SNAPSHOTS
_CONTENTS = kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS
_RETRY_SECONDS = 5.0
_BUSY = ("snapshotInProgress", "restoreInProgress")


class SnapshotController:
    """Reconciles VirtualMachineSnapshots and VirtualMachineSnapshotContents.

    Where the cluster serves no volume snapshots (any more), nothing is taken, but what is deleted is let go.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._snapshots = cluster.informer(_SNAPSHOTS)
        self._contents = cluster.informer(_CONTENTS)
        self._volumes = cluster.optional(kinds.VOLUME_SNAPSHOTS)
        self._classes = cluster.optional(kinds.VOLUME_SNAPSHOT_CLASSES)
        self.controller = Controller("virt-controller-vmsnapshot", self._reconcile, workers=2)
        self.controller.watch(self._snapshots)
        self.controller.watch(self._contents, _snapshot_keys)
        self.controller.watch(cluster.vms, self._machine_keys)
        self.content_controller = Controller("virt-controller-vmsnapshotcontent", self._reconcile_content)
        self.content_controller.watch(self._contents)
        self.content_controller.watch(self._snapshots, _content_keys)
        if self._volumes is not None:
            self.content_controller.watch(self._volumes, owner_key(_CONTENTS.kind))
        if self._classes is not None:
            self.content_controller.depend(self._classes)
        for informer in (cluster.claims, cluster.informer(resources.STORAGE_CLASSES)):
            self.content_controller.depend(informer)
            self.controller.depend(informer)
        self.controller.depend(cluster.revisions)
        self.controller.depend(cluster.vmis)

    def _machine_keys(self, vm: JsonObject) -> list[Key]:
        found = self._snapshots.list(meta.namespace(vm))
        return [meta.key(item) for item in found if get_str(item, "spec", "source", "name") == meta.name(vm)]

    async def _reconcile(self, key: Key) -> Result:
        snapshot = self._snapshots.get(*key)
        if snapshot is None:
            return DONE
        vm = self._cluster.vms.get(key[0], get_str(snapshot, "spec", "source", "name"))
        content = self._contents.get(key[0], decisions.content_name(snapshot))
        if meta.is_being_deleted(snapshot):
            return await self._finish(snapshot, vm, content)
        if self._volumes is None or self._classes is None:
            return DONE
        if not meta.has_finalizer(snapshot, decisions.SNAPSHOT_FINALIZER):
            new = deep_copy(snapshot)
            meta.add_finalizer(new, decisions.SNAPSHOT_FINALIZER)
            await self._patch_metadata(_SNAPSHOTS, snapshot, new)
            return DONE
        if get_str(snapshot, "status", "phase") in ("Succeeded", "Failed"):
            await self._update(snapshot, vm, content)
            await self._unlock(snapshot, vm)
            return DONE
        is_locked = vm is not None and await self._lock(snapshot, vm)
        if vm is not None and is_locked and content is None:
            content = await self._create_content(snapshot, vm)
        await self._update(snapshot, vm, content)
        return RequeueAfter(_RETRY_SECONDS)

    async def _finish(
        self, snapshot: JsonObject, vm: JsonObject | None, content: JsonObject | None
    ) -> Result:
        await self._unlock(snapshot, vm)
        keeps = get_str(snapshot, "spec", "deletionPolicy") == "Retain"
        if content is not None and not keeps:
            if not meta.is_being_deleted(content):
                await self._delete(_CONTENTS, content)
            await self._release_content(content)
        if meta.has_finalizer(snapshot, decisions.SNAPSHOT_FINALIZER):
            new = deep_copy(snapshot)
            meta.remove_finalizer(new, decisions.SNAPSHOT_FINALIZER)
            await self._patch_metadata(_SNAPSHOTS, snapshot, new)
        return DONE

    async def _release_content(self, content: JsonObject) -> None:
        if meta.has_finalizer(content, decisions.CONTENT_FINALIZER):
            new = deep_copy(content)
            meta.remove_finalizer(new, decisions.CONTENT_FINALIZER)
            await self._patch_metadata(_CONTENTS, content, new)

    async def _lock(self, snapshot: JsonObject, vm: JsonObject) -> bool:
        """Holds the VM still; False while somebody else does, or it is on its way."""
        status = get_object(vm, "status")
        holders = [status.get(key) for key in _BUSY if status.get(key)]
        if holders == [meta.name(snapshot)] and meta.has_finalizer(vm, decisions.SOURCE_FINALIZER):
            return True
        if meta.is_being_deleted(vm) or any(holder != meta.name(snapshot) for holder in holders):
            return False
        if not holders:
            locked = deep_copy(vm)
            locked.setdefault("status", {})["snapshotInProgress"] = meta.name(snapshot)
            # At this very version: a restore may be taking hold of the machine by another field.
            operations = [*same_version(vm), *guarded_patch(vm, locked, ("status",))]
            await self._patch(kinds.VIRTUAL_MACHINES, vm, operations, "status")
        elif not meta.has_finalizer(vm, decisions.SOURCE_FINALIZER):
            new = deep_copy(vm)
            meta.add_finalizer(new, decisions.SOURCE_FINALIZER)
            await self._patch_metadata(kinds.VIRTUAL_MACHINES, vm, new)
        return False

    async def _unlock(self, snapshot: JsonObject, vm: JsonObject | None) -> None:
        if vm is None or get_object(vm, "status").get("snapshotInProgress") != meta.name(snapshot):
            return
        if meta.has_finalizer(vm, decisions.SOURCE_FINALIZER):
            new = deep_copy(vm)
            meta.remove_finalizer(new, decisions.SOURCE_FINALIZER)
            await self._patch_metadata(kinds.VIRTUAL_MACHINES, vm, new)
        path = "/status/snapshotInProgress"
        operations: list[JsonObject] = [
            *same_object(vm),
            {"op": "test", "path": path, "value": meta.name(snapshot)},
            {"op": "remove", "path": path},
        ]
        await self._patch(kinds.VIRTUAL_MACHINES, vm, operations, "status")

    async def _create_content(self, snapshot: JsonObject, vm: JsonObject) -> JsonObject:
        volumes = decisions.choose_volumes(vm, self._cluster.claims_of(meta.namespace(vm)))
        frozen = deep_copy(vm)
        frozen["status"].pop("snapshotInProgress", None)
        content = decisions.new_content(snapshot, frozen, self._running_spec(vm), volumes)
        try:
            created = await self._cluster.client.create(_CONTENTS, content)
        except StatusError as error:
            if not is_already_exists(error):
                raise
            return await self._cluster.client.get(_CONTENTS, meta.name(content), meta.namespace(vm))
        text = f"Successfully created VirtualMachineSnapshotContent {meta.name(created)}"
        reason = "SuccessfulVirtualMachineSnapshotContentCreate"
        self._cluster.recorder.event(snapshot, "Normal", reason, text)
        return created

    def _running_spec(self, vm: JsonObject) -> JsonObject:
        """The spec that the guest was started with, where one runs; its volumes are the present ones."""
        spec = deep_copy(get_object(vm, "spec"))
        vmi = self._cluster.vmis.get(*meta.key(vm))
        name = get_str(vmi, "status", "virtualMachineRevisionName") if vmi else ""
        revision = self._cluster.revisions.get(meta.namespace(vm), name) if name else None
        if revision is None:
            return spec
        started = deep_copy(get_object(revision, "data", "spec"))
        current = get_object(spec, "template", "spec")
        template = started.setdefault("template", {}).setdefault("spec", {})
        if "volumes" in current:
            template["volumes"] = current["volumes"]
            disks = get_list(current, "domain", "devices", "disks")
            template.setdefault("domain", {}).setdefault("devices", {})["disks"] = disks
        if "dataVolumeTemplates" in spec:
            started["dataVolumeTemplates"] = spec["dataVolumeTemplates"]
        return started

    async def _update(self, snapshot: JsonObject, vm: JsonObject | None, content: JsonObject | None) -> None:
        new = deep_copy(snapshot)
        status = new.setdefault("status", {})
        phase = get_str(status, "phase")
        if vm is not None and content is not None and "sourceUID" not in status:
            self._describe(status, vm, content)
        reported = get_object(content, "status")
        if reported.get("creationTime"):
            status["creationTime"] = reported["creationTime"]
        if reported.get("error"):
            status["error"] = reported["error"]
        status["readyToUse"] = reported.get("readyToUse") is True
        if phase == "Failed" or (
            not reported.get("creationTime") and decisions.is_expired(snapshot, times.now())
        ):
            status["phase"] = "Failed"
            failed = conditions.new_condition("Failure", "True", decisions.DEADLINE_REASON)
            conditions.put(status.setdefault("conditions", []), failed)
            decisions.set_progress(status, ("False", "Operation failed"), ("False", "Operation failed"))
        elif reported.get("creationTime"):
            status["phase"] = "Succeeded"
            ready = ("True", "Ready") if status["readyToUse"] else ("False", "Not ready")
            decisions.set_progress(status, ("False", "Operation complete"), ready)
        else:
            status["phase"] = "InProgress"
            progress = ("True", "Source locked and operation in progress")
            if vm is None:
                progress = ("False", "Source does not exist")
            elif content is None:
                progress = ("False", "Source not locked")
            decisions.set_progress(status, progress, ("False", "Not ready"))
        if status != get_object(snapshot, "status"):
            await self._cluster.client.update(_SNAPSHOTS, new, subresource="status")

    def _describe(self, status: JsonObject, vm: JsonObject, content: JsonObject) -> None:
        vmi = self._cluster.vmis.get(*meta.key(vm))
        included = [get_str(item, "volumeName") for item in get_list(content, "spec", "volumeBackups")]
        chosen = decisions.choose_volumes(vm, self._cluster.claims_of(meta.namespace(vm)))
        status["sourceUID"] = meta.uid(vm)
        status["virtualMachineSnapshotContentName"] = meta.name(content)
        listed: JsonObject = {}
        if included:
            listed["includedVolumes"] = included
        if chosen.excluded:
            listed["excludedVolumes"] = list(chosen.excluded)
        status["snapshotVolumes"] = listed
        indications = decisions.indications_of(vm, vmi, chosen)
        if indications:
            status["indications"] = indications
            status["sourceIndications"] = decisions.described(indications)

    async def _reconcile_content(self, key: Key) -> Result:
        content = self._contents.get(*key)
        if content is None:
            return DONE
        if meta.is_being_deleted(content):
            snapshot = self._snapshots.get(key[0], get_str(content, "spec", "virtualMachineSnapshotName"))
            if snapshot is None or meta.is_being_deleted(snapshot):
                await self._release_content(content)
            return DONE
        if self._volumes is None or self._classes is None:
            return DONE
        found = {meta.name(item): item for item in self._volumes.list(key[0])}
        problem = ""
        if not get_object(content, "status").get("creationTime"):
            problem = await self._create_volume_snapshots(content, found, self._classes.list())
        status = decisions.content_status(content, found)
        if problem:
            status["error"] = {"time": times.now_rfc3339(), "message": problem}
            status.pop("creationTime", None)
            status["readyToUse"] = False
        if _without_time(status) != _without_time(get_object(content, "status")):
            await self._cluster.client.update(_CONTENTS, {**content, "status": status}, subresource="status")
        return RequeueAfter(_RETRY_SECONDS) if problem else DONE

    async def _create_volume_snapshots(
        self, content: JsonObject, found: dict[str, JsonObject], classes: list[JsonObject]
    ) -> str:
        """Creates what is missing; a running guest with an agent is frozen meanwhile. Gives a problem."""
        missing = [
            backup
            for backup in get_list(content, "spec", "volumeBackups")
            if get_str(backup, "volumeSnapshotName") not in found
        ]
        if not missing:
            await self._thaw_when_taken(content, found)
            return ""
        storage = self._cluster.informer(resources.STORAGE_CLASSES)
        planned: list[JsonObject] = []
        for backup in missing:
            name = get_str(backup, "persistentVolumeClaim", "spec", "storageClassName")
            driver = get_str(storage.get(None, name), "provisioner")
            chosen = decisions.snapshot_class(driver, classes)
            if not chosen:
                return f"couldn't find VolumeSnapshotClass for {name}"
            planned.append(decisions.volume_snapshot(content, backup, chosen))
        await self._freeze(content, "freeze")
        for volume in planned:
            try:
                created = await self._cluster.client.create(kinds.VOLUME_SNAPSHOTS, volume)
            except StatusError as error:
                if not is_already_exists(error):  # made before, and not in the cache yet
                    raise
                continue
            found[meta.name(created)] = created
            text = f"Successfully created VolumeSnapshot {meta.name(created)}"
            self._cluster.recorder.event(content, "Normal", "SuccessfulVolumeSnapshotCreate", text)
        return ""

    async def _thaw_when_taken(self, content: JsonObject, found: dict[str, JsonObject]) -> None:
        names = [get_str(item, "volumeSnapshotName") for item in get_list(content, "spec", "volumeBackups")]
        if names and all(get_object(found.get(name), "status").get("creationTime") for name in names):
            await self._freeze(content, "unfreeze")

    async def _freeze(self, content: JsonObject, action: str) -> None:
        vm = get_object(content, "spec", "source", "virtualMachine", "metadata")
        vmi = self._cluster.vmis.get(meta.namespace(content), get_str(vm, "name"))
        if (
            vmi is None
            or not meta.is_condition_true(vmi, "AgentConnected")
            or meta.is_condition_true(vmi, "Paused")
        ):
            return
        base = f"{kinds.SUBRESOURCES_PATH}/namespaces/{meta.namespace(vmi)}/virtualmachineinstances"
        body = {"unfreezeTimeout": "5m0s"} if action == "freeze" else {}
        await self._cluster.client.request("PUT", f"{base}/{meta.name(vmi)}/{action}", body=body)

    async def _patch(
        self,
        kind: ResourceType,
        obj: JsonObject,
        operations: list[JsonObject],
        subresource: str | None = None,
    ) -> None:
        try:
            await self._cluster.client.patch(
                kind, meta.name(obj), operations, meta.namespace(obj), type="json", subresource=subresource
            )
        except StatusError as error:
            if not is_not_found(error):
                raise

    async def _patch_metadata(self, kind: ResourceType, old: JsonObject, new: JsonObject) -> None:
        await self._patch(kind, old, guarded_patch(old, new, ("metadata",)))

    async def _delete(self, kind: ResourceType, obj: JsonObject) -> None:
        try:
            await self._cluster.client.delete(kind, meta.name(obj), meta.namespace(obj))
        except StatusError as error:
            if not is_not_found(error):
                raise


def _snapshot_keys(content: JsonObject) -> list[Key]:
    return [(meta.namespace(content), get_str(content, "spec", "virtualMachineSnapshotName"))]


def _content_keys(snapshot: JsonObject) -> list[Key]:
    return [(meta.namespace(snapshot), decisions.content_name(snapshot))]


def _without_time(status: JsonObject) -> JsonObject:
    copied = deep_copy(status)
    get_object(copied, "error").pop("time", None)
    return copied

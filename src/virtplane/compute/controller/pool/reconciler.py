"""The controller of pools of virtual machines."""

from __future__ import annotations

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.selectors import from_label_selector_object
from kubecore.patch.guarded import guarded_patch
from kubecore.resources import ResourceType
from kubecore.runtime import DONE, Controller, Expectations, Key, RequeueAfter, Result
from virtplane.api import resources as kinds
from virtplane.cluster.caches import Cluster, owner_key
from virtplane.compute.controller.pool import decisions, preservation
from virtplane.compute.controller.pool.decisions import FINALIZER, Step

_KIND = kinds.VIRTUAL_MACHINE_POOLS
_RETRY_SECONDS = 5.0


class PoolController:
    """Reconciles VirtualMachinePools."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pools = cluster.informer(_KIND)
        self.controller = Controller("virt-controller-pool", self._reconcile, workers=2)
        self.controller.watch(self._pools)
        self.controller.watch(cluster.vms, owner_key(_KIND.kind))
        self.controller.watch(cluster.vmis, self._instance_keys)
        self._expected = Expectations(self.controller, cluster.vms, owner_key(_KIND.kind))

    def _instance_keys(self, vmi: JsonObject) -> list[Key]:
        vm = self._cluster.vms.get(*meta.key(vmi))
        return list(owner_key(_KIND.kind)(vm)) if vm else []

    async def _reconcile(self, key: Key) -> Result:
        pool = self._pools.get(*key)
        if pool is None:
            self._expected.forget(key)
            return DONE
        may_act = await self._expected.settled(key)  # first: what is read then is what it is about
        own = self._cluster.vms.by_index("controller", meta.uid(pool))
        if meta.is_being_deleted(pool):
            await self._finish(pool, own)
            return DONE
        if not meta.has_finalizer(pool, FINALIZER):
            new = deep_copy(pool)
            meta.add_finalizer(new, FINALIZER)
            await self._patch(_KIND, pool, new)
            return DONE
        for vm in own:
            if meta.is_being_deleted(vm):
                await self._release(vm)
        failure: tuple[str, str] | None = None
        if may_act:
            await self._store_revision(pool)
            found = self._cluster.revisions.by_index("controller", meta.uid(pool))
            revisions = {meta.name(item): item for item in found}
            failure = await self._apply(key, pool, decisions.next_step(pool, own, revisions))
        await self._update_status(pool, own, failure)
        await self._prune_revisions(pool, own)
        return RequeueAfter(_RETRY_SECONDS) if failure else DONE

    async def _finish(self, pool: JsonObject, own: list[JsonObject]) -> None:
        """The pool goes at once; its VMs are collected, and let go as they are deleted."""
        for vm in own:
            await self._release(vm)
        if meta.has_finalizer(pool, FINALIZER):
            new = deep_copy(pool)
            meta.remove_finalizer(new, FINALIZER)
            await self._patch(_KIND, pool, new)

    async def _release(self, vm: JsonObject) -> None:
        if not meta.has_finalizer(vm, FINALIZER):
            return
        new = deep_copy(vm)
        meta.remove_finalizer(new, FINALIZER)
        await self._patch(kinds.VIRTUAL_MACHINES, vm, new)

    async def _patch(self, kind: ResourceType, old: JsonObject, new: JsonObject) -> None:
        operations = guarded_patch(old, new, ("metadata",))
        try:
            await self._cluster.client.patch(
                kind, meta.name(old), operations, meta.namespace(old), type="json"
            )
        except StatusError as error:
            if not is_not_found(error):
                raise

    async def _store_revision(self, pool: JsonObject) -> None:
        revision = decisions.revision_of(pool)
        if self._cluster.revisions.get(meta.namespace(pool), meta.name(revision)) is not None:
            return
        try:
            await self._cluster.client.create(resources.CONTROLLER_REVISIONS, revision)
        except StatusError as error:
            if not is_already_exists(error):
                raise

    async def _prune_revisions(self, pool: JsonObject, own: list[JsonObject]) -> None:
        used = {meta.labels(vm).get(decisions.REVISION_LABEL) for vm in own} | {decisions.revision_name(pool)}
        for revision in self._cluster.revisions.by_index("controller", meta.uid(pool)):
            if meta.name(revision) in used:
                continue
            try:
                await self._cluster.client.delete(
                    resources.CONTROLLER_REVISIONS, meta.name(revision), meta.namespace(revision)
                )
            except StatusError as error:
                if not is_not_found(error):
                    raise

    async def _apply(self, key: Key, pool: JsonObject, step: Step) -> tuple[str, str] | None:
        recorder = self._cluster.recorder
        for number in step.create:
            try:
                with self._expected.creating(key):
                    created = await self._cluster.client.create(
                        kinds.VIRTUAL_MACHINES, decisions.new_machine(pool, number)
                    )
            except StatusError as error:
                recorder.event(pool, "Warning", "FailedCreate", f"Error creating VM: {error.message}")
                return "FailedScaleOut", f"Error creating VM: {error.message}"
            text = f"Created VM {meta.namespace(created)}/{meta.name(created)}"
            recorder.event(pool, "Normal", "SuccessfulCreate", text)
        for vm in step.delete:
            failure = await self._delete(key, pool, vm)
            if failure is not None:
                return failure
        for vm in step.update:
            try:
                await self._cluster.client.update(kinds.VIRTUAL_MACHINES, decisions.updated_machine(pool, vm))
                await self._restart(pool, vm)
            except StatusError as error:
                return "FailedUpdate", f"Error updating VM {meta.name(vm)}: {error.message}"
        return None

    async def _delete(self, key: Key, pool: JsonObject, vm: JsonObject) -> tuple[str, str] | None:
        try:
            if preservation.keeps_disks(pool):
                await preservation.keep_disks(self._cluster, vm)
            with self._expected.deleting(key, meta.uid(vm)):
                await self._cluster.client.delete(
                    kinds.VIRTUAL_MACHINES, meta.name(vm), meta.namespace(vm), uid=meta.uid(vm)
                )
        except StatusError as error:
            if is_not_found(error):
                return None
            text = f"Error deleting VM {meta.name(vm)}: {error.message}"
            self._cluster.recorder.event(pool, "Warning", "FailedDelete", text)
            return "FailedScaleIn", text
        text = f"Deleted VM {meta.namespace(vm)}/{meta.name(vm)}"
        self._cluster.recorder.event(pool, "Normal", "SuccessfulDelete", text)
        return None

    async def _restart(self, pool: JsonObject, vm: JsonObject) -> None:
        """An update that may not wait for the guest's next start deletes its instance."""
        strategy = get_object(pool, "spec").get("updateStrategy")
        if isinstance(strategy, dict) and ("unmanaged" in strategy or "opportunistic" in strategy):
            return
        vmi = self._cluster.vmis.get(*meta.key(vm))
        if vmi is None or get_str(vmi, "metadata", "deletionTimestamp"):
            return
        try:
            await self._cluster.client.delete(
                kinds.VIRTUAL_MACHINE_INSTANCES, meta.name(vmi), meta.namespace(vmi), uid=meta.uid(vmi)
            )
        except StatusError as error:
            if not is_not_found(error):
                raise

    async def _update_status(
        self, pool: JsonObject, own: list[JsonObject], failure: tuple[str, str] | None
    ) -> None:
        selector = str(from_label_selector_object(get_object(pool, "spec", "selector")))
        status = decisions.next_status(pool, own, selector, failure)
        if status == get_object(pool, "status"):
            return
        try:
            await self._cluster.client.update(_KIND, {**pool, "status": status}, subresource="status")
        except StatusError as error:
            if not is_not_found(error):
                raise

"""The controller of pools of virtual machines."""

from __future__ import annotations

from collections.abc import Sequence

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.objects import meta, times
from kubecore.objects.selectors import from_label_selector_object
from kubecore.objects.structs import UnfitDocument, encode, readable
from kubecore.runtime import DONE, Controller, Expectations, Key, RequeueAfter, Result, key_of
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.pool_v1beta1.pool import (
    VirtualMachinePool,
    VirtualMachinePoolStatus,
    VirtualMachineTemplateSpec,
)
from virtplane.cluster.caches import Cluster, HasMetadata, owner_key
from virtplane.cluster.deadlines import until_deadline
from virtplane.cluster.objects import (
    INVALID,
    any_object,
    as_written,
    described,
    finalizer_patch,
    leave_unfit,
    patch,
    status_patch,
    unfit_of,
)
from virtplane.compute.controller.pool import decisions, healing, preservation
from virtplane.compute.controller.pool.decisions import FINALIZER, Step
from virtplane.compute.controller.pool.rollout import REVISION_LABEL, revision_name
from virtplane.compute.controller.pool.selection import Around

_KIND = kinds.VIRTUAL_MACHINE_POOLS
_RETRY_SECONDS = 5.0


class PoolController:
    """Reconciles VirtualMachinePools."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.controller = Controller("virt-controller-pool", self._reconcile, workers=2)
        self.controller.watch(cluster.pools)
        self.controller.watch(cluster.vms, owner_key(_KIND.kind))
        self.controller.watch(cluster.vmis, self._instance_keys)
        self._expected = Expectations(self.controller, cluster.vms, owner_key(_KIND.kind))

    def _instance_keys(self, vmi: VirtualMachineInstance) -> list[Key]:
        vm = any_object(self._cluster.vms, *key_of(vmi))
        return list(owner_key(_KIND.kind)(vm)) if vm else []

    def _read_machines(self, pool: VirtualMachinePool) -> list[VirtualMachine]:
        """The pool's VMs. Raises UnfitDocument if one cannot be decoded, since it must not count as
        missing.
        """
        for error, _ in unfit_of(self._cluster.vms, pool.metadata):
            raise error
        return self._cluster.vms.by_index("controller", pool.metadata.uid)

    def _templates(self, pool: VirtualMachinePool) -> dict[str, VirtualMachineTemplateSpec]:
        """The templates of the pool's revisions by name; revisions that cannot be decoded count as
        outdated.
        """
        found = self._cluster.revisions_of(pool.metadata.uid)
        revisions = readable(decisions.Revision, found)
        return {item.metadata.name: item.data.virtual_machine_template for item in revisions}

    async def _reconcile(self, key: Key) -> Result:
        try:
            pool = self._cluster.pools.get(*key)
        except UnfitDocument as error:
            await leave_unfit(self._cluster, _KIND, key, error, FINALIZER)
            return DONE
        await self._release_orphans(key, pool)
        if pool is None:
            self._expected.forget(key)
            return DONE
        may_act = await self._expected.settled(key)  # observe the expectations before reading the caches
        if pool.metadata.is_being_deleted:
            await self._finish(pool)
            return DONE
        try:
            own = self._read_machines(pool)
        except UnfitDocument as error:
            self._cluster.recorder.event(described(pool), "Warning", INVALID, str(error))
            return RequeueAfter(_RETRY_SECONDS)  # no event reports the deletion of such a VM
        adding = finalizer_patch(pool.metadata, FINALIZER, present=True)
        if adding:
            await patch(self._cluster, _KIND, pool, adding)
            return DONE
        for vm in own:
            if vm.metadata.is_being_deleted:
                await self._release(vm)
        failure: tuple[str, str] | None = None
        around = self._around(own)
        if may_act:
            await self._store_revision(pool)
            templates = self._templates(pool)
            step = decisions.next_step(pool, own, templates, around)
            failure = await self._apply(key, pool, step)
        await self._update_status(pool, own, failure)
        await self._prune_revisions(pool, own, around)
        if failure:
            return RequeueAfter(_RETRY_SECONDS)
        wait = healing.remaining_seconds(pool, own, around.now)
        return RequeueAfter(wait) if wait > 0 else DONE

    def _around(self, own: Sequence[VirtualMachine]) -> Around:
        instances = {}
        for vm in own:
            try:
                vmi = self._cluster.vmis.get(vm.metadata.namespace, vm.metadata.name)
            except UnfitDocument:
                continue
            if vmi is not None and vmi.metadata.is_controlled_by(vm.metadata):
                instances[vm.metadata.name] = vmi
        return Around(times.now(), instances)

    async def _finish(self, pool: VirtualMachinePool) -> None:
        """Remove the finalizers of the pool and its VMs (decodable or not), which are garbage collected."""
        own: list[HasMetadata] = [*self._cluster.vms.by_index("controller", pool.metadata.uid)]
        own += [unread for _, unread in unfit_of(self._cluster.vms, pool.metadata)]
        for vm in own:
            # A machine that cannot be let go now is when the garbage collector has deleted it.
            with until_deadline(pool, self._cluster.recorder, f"letting its machine {vm.metadata.name} go"):
                await self._release(vm)
        await patch(self._cluster, _KIND, pool, finalizer_patch(pool.metadata, FINALIZER, present=False))

    async def _release_orphans(self, key: Key, pool: VirtualMachinePool | None) -> None:
        """Remove the finalizer of deleted VMs that belong to an earlier pool of this name.

        Such a VM was created late, by a request that took effect after its pool was gone.
        """
        for vm in self._cluster.vms.list(key[0]):
            owner = vm.metadata.controller
            if owner is None or (owner.kind, owner.name) != (_KIND.kind, key[1]):
                continue
            if vm.metadata.is_being_deleted and (pool is None or owner.uid != pool.metadata.uid):
                await self._release(vm)

    async def _release(self, vm: HasMetadata) -> None:
        removing = finalizer_patch(vm.metadata, FINALIZER, present=False)
        await patch(self._cluster, kinds.VIRTUAL_MACHINES, vm, removing)

    async def _store_revision(self, pool: VirtualMachinePool) -> None:
        name = revision_name(pool)
        if self._cluster.revisions.get(pool.metadata.namespace, name) is not None:
            return
        revision = decisions.revision_of(pool, await as_written(self._cluster, _KIND, pool))
        try:
            await self._cluster.client.create(resources.CONTROLLER_REVISIONS, revision)
        except StatusError as error:
            if not is_already_exists(error):
                raise

    async def _prune_revisions(
        self, pool: VirtualMachinePool, own: Sequence[VirtualMachine], around: Around
    ) -> None:
        """Delete revisions that neither a machine nor a guest was made of."""
        owners = [vm.metadata for vm in own] + [vmi.metadata for vmi in around.instances.values()]
        used = {each.labels.get(REVISION_LABEL) for each in owners}
        used.add(revision_name(pool))
        for revision in self._cluster.revisions.by_index("controller", pool.metadata.uid):
            if meta.name(revision) in used:
                continue
            try:
                await self._cluster.client.delete(
                    resources.CONTROLLER_REVISIONS, meta.name(revision), meta.namespace(revision)
                )
            except StatusError as error:
                if not is_not_found(error):
                    raise

    async def _apply(self, key: Key, pool: VirtualMachinePool, step: Step) -> tuple[str, str] | None:
        recorder, subject = self._cluster.recorder, described(pool)
        written = await as_written(self._cluster, _KIND, pool) if step.create or step.update else {}
        for number in step.create:
            try:
                with self._expected.creating(key):
                    created = await self._cluster.client.create(
                        kinds.VIRTUAL_MACHINES, decisions.new_machine(pool, written, number)
                    )
            except StatusError as error:
                recorder.event(subject, "Warning", "FailedCreate", f"Error creating VM: {error.message}")
                return "FailedScaleOut", f"Error creating VM: {error.message}"
            text = f"Created VM {meta.namespace(created)}/{meta.name(created)}"
            recorder.event(subject, "Normal", "SuccessfulCreate", text)
        for vm in (*step.delete, *step.replace):
            keeps = vm in step.delete and preservation.keeps_disks(pool)
            failure = await self._delete(key, pool, vm, keeps_disks=keeps)
            if failure is not None:
                return failure
        for vm in step.update:
            try:
                present = await as_written(self._cluster, kinds.VIRTUAL_MACHINES, vm)
                updated = decisions.updated_machine(pool, written, vm, present)
                await self._cluster.client.update(kinds.VIRTUAL_MACHINES, updated)
            except StatusError as error:
                return "FailedUpdate", f"Error updating VM {vm.metadata.name}: {error.message}"
        outdated = {vm.metadata.name for vm in step.update}
        for vmi in step.rollout.restart:
            # A guest that is restarted before its machine has the template would get the old one again.
            if vmi.metadata.name not in outdated:
                await self._restart(vmi)
        for vmi in step.rollout.relabel:
            await self._relabel(vmi)
        return None

    async def _relabel(self, vmi: VirtualMachineInstance) -> None:
        """Give a guest the name of the revision of its machine."""
        vm = any_object(self._cluster.vms, vmi.metadata.namespace, vmi.metadata.name)
        if vm is None:
            return
        mark = {"metadata": {"labels": {REVISION_LABEL: vm.metadata.labels.get(REVISION_LABEL)}}}
        of = vmi.metadata
        try:
            await self._cluster.client.patch(
                kinds.VIRTUAL_MACHINE_INSTANCES, of.name, mark, of.namespace, type="merge"
            )
        except StatusError as error:
            if not is_not_found(error):
                raise

    async def _delete(
        self, key: Key, pool: VirtualMachinePool, vm: VirtualMachine, *, keeps_disks: bool
    ) -> tuple[str, str] | None:
        name, namespace, uid = vm.metadata.name, vm.metadata.namespace, vm.metadata.uid
        try:
            if keeps_disks:
                await preservation.keep_disks(self._cluster, vm)
            with self._expected.deleting(key, uid):
                await self._cluster.client.delete(kinds.VIRTUAL_MACHINES, name, namespace, uid=uid)
        except StatusError as error:
            if is_not_found(error):
                return None
            text = f"Error deleting VM {name}: {error.message}"
            self._cluster.recorder.event(described(pool), "Warning", "FailedDelete", text)
            return "FailedScaleIn", text
        text = f"Deleted VM {namespace}/{name}"
        self._cluster.recorder.event(described(pool), "Normal", "SuccessfulDelete", text)
        return None

    async def _restart(self, vmi: VirtualMachineInstance) -> None:
        """Delete the instance of an updated VM, so that it is restarted."""
        of = vmi.metadata
        try:
            await self._cluster.client.delete(
                kinds.VIRTUAL_MACHINE_INSTANCES, of.name, of.namespace, uid=of.uid
            )
        except StatusError as error:
            if not is_not_found(error):
                raise

    async def _update_status(
        self, pool: VirtualMachinePool, own: Sequence[VirtualMachine], failure: tuple[str, str] | None
    ) -> None:
        selector = str(from_label_selector_object(encode(pool.spec.selector)))
        status = decisions.next_status(pool, own, selector, failure)
        operations = status_patch(pool, VirtualMachinePoolStatus, pool.status, status)
        await patch(self._cluster, _KIND, pool, operations, "status")

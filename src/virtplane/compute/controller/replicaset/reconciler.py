"""The controller of replica sets of instances."""

from __future__ import annotations

from collections.abc import Sequence

from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.selectors import LabelSelector, from_label_selector_object
from kubecore.objects.structs import UnfitDocument, encode
from kubecore.runtime import DONE, Controller, Expectations, Key, RequeueAfter, Result
from virtplane.api import resources as kinds
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.replicaset import (
    VirtualMachineInstanceReplicaSet,
    VirtualMachineInstanceReplicaSetStatus,
)
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.meta_v1 import OwnerReference
from virtplane.cluster.caches import Cluster, owner_key
from virtplane.cluster.objects import (
    INVALID,
    as_written,
    controller_reference,
    described,
    leave_unfit,
    owners_patch,
    patch,
    status_patch,
    unfit_of,
)
from virtplane.compute.controller.replicaset import decisions

_KIND = kinds.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS
_RETRY_SECONDS = 5.0
_WRITTEN_SPEC: JsonObject = {"template": {"spec": {"domain": {"resources": {}}}}}
"""What the controllers' first write adds to a set: a field that is always written, empty or not."""


class ReplicaSetController:
    """Reconciles VirtualMachineInstanceReplicaSets."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.controller = Controller("virt-controller-replicaset", self._reconcile, workers=2)
        self.controller.watch(cluster.replica_sets)
        self.controller.watch(cluster.vmis, self._instance_keys)
        self._expected = Expectations(self.controller, cluster.vmis, owner_key(_KIND.kind))

    def _instance_keys(self, vmi: VirtualMachineInstance) -> list[Key]:
        if vmi.metadata.controller is not None:
            return list(owner_key(_KIND.kind)(vmi))
        return [
            (item.metadata.namespace, item.metadata.name)
            for item in self._cluster.replica_sets.list(vmi.metadata.namespace)
            if _selector(item).matches(vmi.metadata.labels)
        ]

    def _read_instances(self, replica_set: VirtualMachineInstanceReplicaSet) -> list[VirtualMachineInstance]:
        """The instances of the namespace. Raises UnfitDocument if one of the set's own cannot be decoded."""
        for error, _ in unfit_of(self._cluster.vmis, replica_set.metadata):
            raise error
        return self._cluster.vmis.list(replica_set.metadata.namespace)

    async def _reconcile(self, key: Key) -> Result:
        try:
            replica_set = self._cluster.replica_sets.get(*key)
        except UnfitDocument as error:
            await leave_unfit(self._cluster, _KIND, key, error)
            return DONE
        if replica_set is None:
            self._expected.forget(key)
            return DONE
        if await self._cluster.mark_observed(_KIND, replica_set, {"spec": _WRITTEN_SPEC}):
            return DONE
        may_act = await self._expected.settled(key)  # observe the expectations before reading the caches
        try:
            present = self._read_instances(replica_set)
        except UnfitDocument as error:
            self._cluster.recorder.event(described(replica_set), "Warning", INVALID, str(error))
            return RequeueAfter(_RETRY_SECONDS)  # no event reports its deletion
        instances = await self._claim(replica_set, present)
        failure: tuple[str, str] | None = None
        if may_act:
            failure = await self._apply(key, replica_set, decisions.next_step(replica_set, instances))
        await self._update_status(replica_set, instances, failure)
        return RequeueAfter(_RETRY_SECONDS) if failure else DONE

    async def _claim(
        self, replica_set: VirtualMachineInstanceReplicaSet, present: Sequence[VirtualMachineInstance]
    ) -> list[VirtualMachineInstance]:
        """The set's instances, after adopting orphans that it selects and releasing those that it does
        not.
        """
        own: list[VirtualMachineInstance] = []
        selector, is_deleted = _selector(replica_set), replica_set.metadata.is_being_deleted
        for vmi in present:
            is_selected = selector.matches(vmi.metadata.labels)
            owners = vmi.metadata.owner_references
            if vmi.metadata.is_controlled_by(replica_set.metadata):
                if is_selected or is_deleted:
                    own.append(vmi)
                else:
                    kept = [owner for owner in owners if owner.uid != replica_set.metadata.uid]
                    await self._set_owners(vmi, kept)
            elif _is_stray(vmi) and is_selected and not is_deleted:
                await self._set_owners(vmi, [*owners, controller_reference(replica_set, _KIND)])
                own.append(vmi)
        return own

    async def _set_owners(self, vmi: VirtualMachineInstance, owners: Sequence[OwnerReference]) -> None:
        await self._cluster.client.patch(
            kinds.VIRTUAL_MACHINE_INSTANCES,
            vmi.metadata.name,
            owners_patch(vmi, owners),
            vmi.metadata.namespace,
            type="json",
        )

    async def _apply(
        self, key: Key, replica_set: VirtualMachineInstanceReplicaSet, step: decisions.Step
    ) -> tuple[str, str] | None:
        recorder, subject = self._cluster.recorder, described(replica_set)
        written = await as_written(self._cluster, _KIND, replica_set) if step.create else {}
        for _ in range(step.create):
            try:
                with self._expected.creating(key):
                    created = await self._cluster.client.create(
                        kinds.VIRTUAL_MACHINE_INSTANCES, decisions.new_instance(replica_set, written)
                    )
            except StatusError as error:
                text = f"Error creating virtual machine instance: {error.message}"
                recorder.event(subject, "Warning", "FailedCreate", text)
                return "FailedCreate", error.message
            name = meta.name(created)
            text = f"Started the virtual machine by creating the new virtual machine instance {name}"
            recorder.event(subject, "Normal", "SuccessfulCreate", text)
        for vmi in step.delete:
            name, namespace, uid = vmi.metadata.name, vmi.metadata.namespace, vmi.metadata.uid
            try:
                with self._expected.deleting(key, uid):
                    await self._cluster.client.delete(
                        kinds.VIRTUAL_MACHINE_INSTANCES, name, namespace, uid=uid
                    )
            except StatusError as error:
                if is_not_found(error):
                    continue
                text = f"Error deleting virtual machine instance {name}: {error.message}"
                recorder.event(subject, "Warning", "FailedDelete", text)
                return "FailedDelete", error.message
            text = f"Stopped the virtual machine by deleting the virtual machine instance {uid}"
            recorder.event(subject, "Normal", "SuccessfulDelete", text)
        return None

    async def _update_status(
        self,
        replica_set: VirtualMachineInstanceReplicaSet,
        instances: Sequence[VirtualMachineInstance],
        failure: tuple[str, str] | None,
    ) -> None:
        status = decisions.next_status(replica_set, instances, str(_selector(replica_set)), failure)
        operations = status_patch(
            replica_set, VirtualMachineInstanceReplicaSetStatus, replica_set.status, status
        )
        if operations:
            self._announce_pause(replica_set)
            await patch(self._cluster, _KIND, replica_set, operations, "status")

    def _announce_pause(self, replica_set: VirtualMachineInstanceReplicaSet) -> None:
        known = replica_set.status.conditions if replica_set.status is not None else ()
        was, now = is_true(known, "ReplicaPaused"), bool(replica_set.spec.paused)
        if now and not was:
            self._cluster.recorder.event(described(replica_set), "Normal", "SuccessfulPaused", "Paused")
        elif was and not now:
            self._cluster.recorder.event(described(replica_set), "Normal", "SuccessfulResumed", "Resumed")


def _selector(replica_set: VirtualMachineInstanceReplicaSet) -> LabelSelector:
    return from_label_selector_object(encode(replica_set.spec.selector))


def _is_stray(vmi: VirtualMachineInstance) -> bool:
    return vmi.metadata.controller is None and not vmi.metadata.is_being_deleted

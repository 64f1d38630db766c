"""The controller of replica sets of instances."""

from __future__ import annotations

from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, deep_copy, get_object
from kubecore.objects import meta
from kubecore.objects.selectors import from_label_selector_object
from kubecore.patch.guarded import guarded_patch
from kubecore.runtime import DONE, Controller, Expectations, Key, RequeueAfter, Result
from virtplane.api import resources as kinds
from virtplane.cluster.caches import Cluster, owner_key
from virtplane.compute.controller.replicaset import decisions

_KIND = kinds.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS
_RETRY_SECONDS = 5.0
_WRITTEN_SPEC: JsonObject = {"template": {"spec": {"domain": {"resources": {}}}}}
"""What the controllers' first write adds to a set: a field that is always written, empty or not."""


class ReplicaSetController:
    """Reconciles VirtualMachineInstanceReplicaSets."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sets = cluster.informer(_KIND)
        self.controller = Controller("virt-controller-vmirs", self._reconcile, workers=2)
        self.controller.watch(self._sets)
        self.controller.watch(cluster.vmis, self._instance_keys)
        self._expected = Expectations(self.controller, cluster.vmis, owner_key(_KIND.kind))

    def _instance_keys(self, vmi: JsonObject) -> list[Key]:
        owned = list(owner_key(_KIND.kind)(vmi))
        if owned or meta.controller_of(vmi) is not None:
            return owned
        found = self._sets.list(meta.namespace(vmi))
        return [meta.key(item) for item in found if _selects(item, vmi)]

    async def _reconcile(self, key: Key) -> Result:
        replica_set = self._sets.get(*key)
        if replica_set is None:
            self._expected.forget(key)
            return DONE
        if await self._cluster.mark_observed(_KIND, replica_set, {"spec": _WRITTEN_SPEC}):
            return DONE
        may_act = await self._expected.settled(key)  # first: what is read then is what it is about
        instances = await self._claim(replica_set)
        failure: tuple[str, str] | None = None
        if may_act:
            failure = await self._apply(key, replica_set, decisions.next_step(replica_set, instances))
        await self._update_status(replica_set, instances, failure)
        return RequeueAfter(_RETRY_SECONDS) if failure else DONE

    async def _claim(self, replica_set: JsonObject) -> list[JsonObject]:
        """The set's instances: strays that it selects are adopted, those that it does not are let go."""
        own: list[JsonObject] = []
        for vmi in self._cluster.vmis.list(meta.namespace(replica_set)):
            if meta.is_controlled_by(vmi, replica_set):
                if _selects(replica_set, vmi) or meta.is_being_deleted(replica_set):
                    own.append(vmi)
                else:
                    kept = [
                        ref for ref in meta.owner_references(vmi) if ref.get("uid") != meta.uid(replica_set)
                    ]
                    await self._set_owners(vmi, kept)
            elif _is_stray(vmi) and _selects(replica_set, vmi) and not meta.is_being_deleted(replica_set):
                owner = meta.new_controller_ref(replica_set, _KIND)
                await self._set_owners(vmi, [*meta.owner_references(vmi), owner])
                own.append(vmi)
        return own

    async def _set_owners(self, vmi: JsonObject, owners: list[JsonObject]) -> None:
        new = deep_copy(vmi)
        new["metadata"]["ownerReferences"] = owners
        await self._cluster.client.patch(
            kinds.VIRTUAL_MACHINE_INSTANCES,
            meta.name(vmi),
            guarded_patch(vmi, new, ("metadata",)),
            meta.namespace(vmi),
            type="json",
        )

    async def _apply(self, key: Key, replica_set: JsonObject, step: decisions.Step) -> tuple[str, str] | None:
        recorder = self._cluster.recorder
        for _ in range(step.create):
            try:
                with self._expected.creating(key):
                    created = await self._cluster.client.create(
                        kinds.VIRTUAL_MACHINE_INSTANCES, decisions.new_instance(replica_set)
                    )
            except StatusError as error:
                text = f"Error creating virtual machine instance: {error.message}"
                recorder.event(replica_set, "Warning", "FailedCreate", text)
                return "FailedCreate", error.message
            name = meta.name(created)
            text = f"Started the virtual machine by creating the new virtual machine instance {name}"
            recorder.event(replica_set, "Normal", "SuccessfulCreate", text)
        for vmi in step.delete:
            try:
                with self._expected.deleting(key, meta.uid(vmi)):
                    await self._cluster.client.delete(
                        kinds.VIRTUAL_MACHINE_INSTANCES,
                        meta.name(vmi),
                        meta.namespace(vmi),
                        uid=meta.uid(vmi),
                    )
            except StatusError as error:
                if is_not_found(error):
                    continue
                text = f"Error deleting virtual machine instance {meta.name(vmi)}: {error.message}"
                recorder.event(replica_set, "Warning", "FailedDelete", text)
                return "FailedDelete", error.message
            text = f"Stopped the virtual machine by deleting the virtual machine instance {meta.uid(vmi)}"
            recorder.event(replica_set, "Normal", "SuccessfulDelete", text)
        return None

    async def _update_status(
        self, replica_set: JsonObject, instances: list[JsonObject], failure: tuple[str, str] | None
    ) -> None:
        selector = str(from_label_selector_object(get_object(replica_set, "spec", "selector")))
        status = decisions.next_status(replica_set, instances, selector, failure)
        before = get_object(replica_set, "status")
        if status == before:
            return
        self._announce_pause(replica_set, before, status)
        updated = {**replica_set, "status": status}
        try:
            await self._cluster.client.update(_KIND, updated, subresource="status")
        except StatusError as error:
            if not is_not_found(error):
                raise

    def _announce_pause(self, replica_set: JsonObject, before: JsonObject, after: JsonObject) -> None:
        was = meta.is_condition_true({"status": before}, "ReplicaPaused")
        now = meta.is_condition_true({"status": after}, "ReplicaPaused")
        if now and not was:
            self._cluster.recorder.event(replica_set, "Normal", "SuccessfulPaused", "Paused")
        elif was and not now:
            self._cluster.recorder.event(replica_set, "Normal", "SuccessfulResumed", "Resumed")


def _selects(replica_set: JsonObject, vmi: JsonObject) -> bool:
    selector = from_label_selector_object(get_object(replica_set, "spec", "selector"))
    return selector.matches(meta.labels(vmi))


def _is_stray(vmi: JsonObject) -> bool:
    return meta.controller_of(vmi) is None and not meta.is_being_deleted(vmi)

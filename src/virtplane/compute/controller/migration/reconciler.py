"""The controller of migrations."""

from __future__ import annotations

from msgspec.structs import replace

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta, times
from kubecore.objects.structs import UnfitDocument, encode
from kubecore.resources import ResourceType
from kubecore.runtime import DONE, Controller, Expectations, Key, RequeueAfter, Result, key_of
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.migration import (
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationStatus,
)
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.cluster import persistentstate
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import described, finalizer_patch, leave_unfit, patch, status_patch
from virtplane.compute import amounts
from virtplane.compute.controller import pods
from virtplane.compute.controller.migration import instances, phases, policies, target
from virtplane.compute.controller.migration.phases import Around
from virtplane.compute.controller.vmi.storage import needs_state_claim
from virtplane.compute.launcherpod.inputs import RenderInputs

_KIND = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS
_KEPT_FINISHED = 5
_UNSCHEDULABLE_SECONDS = 300
_PENDING_SECONDS = 900
_WAIT_SECONDS = {"system-critical": 1.0, "user-triggered": 3.0}
_OTHER_WAIT_SECONDS = 5.0


class MigrationController:
    """Reconciles VirtualMachineInstanceMigrations."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._starting: set[Key] = set()
        """Migrations whose target is being made: they take room before their pods can be seen."""
        self.controller = Controller("virt-controller-migration", self._reconcile, workers=2)
        self.controller.watch(cluster.migrations)
        self.controller.watch(cluster.vmis, self._instance_keys)
        self.controller.watch(cluster.pods, self._pod_keys)
        for informer in (
            cluster.nodes,
            cluster.namespaces,
            cluster.quotas,
            cluster.claims,
            cluster.kubevirts,
        ):
            self.controller.depend(informer)
        self.controller.depend(cluster.migration_policies)
        self._expected = Expectations(self.controller, cluster.pods, self._pod_keys)

    def _instance_keys(self, vmi: VirtualMachineInstance) -> list[Key]:
        return [key_of(item) for item in self._of_instance(vmi)]

    def _pod_keys(self, pod: JsonObject) -> list[Key]:
        name = meta.annotations(pod).get(labels.MIGRATION_JOB_NAME)
        return [(meta.namespace(pod), name)] if name else []

    async def _reconcile(self, key: Key) -> Result:
        may_act = await self._expected.settled(key)  # observe the expectations before reading the caches
        try:
            migration = self._cluster.migrations.get(*key)
            name = (migration.spec.vmi_name or "") if migration is not None else ""
            vmi = self._cluster.vmis.get(key[0], name)
        except UnfitDocument as error:
            await leave_unfit(self._cluster, _KIND, key, error, phases.FINALIZER)
            return DONE
        if migration is None:
            self._expected.forget(key)
            await self._remove_leftovers(key)
            return DONE
        if not may_act:
            return DONE  # A target may be pending creation: wait, so that it is not left behind.
        if await self._mark(migration):
            return DONE
        if vmi is None and not migration.metadata.is_being_deleted:
            await self._delete(_KIND, migration.metadata)
        rejected, wait = "", 0.0
        if vmi is not None and not phases.is_finished(migration):
            rejected, wait = await self._sync(key, migration, vmi)
        await self._update(migration, self._around(migration, vmi, rejected))
        if vmi is not None and phases.is_finished(migration):
            await self._remove_target(migration, vmi)
            await self._collect(vmi)
        return RequeueAfter(wait) if wait else DONE

    async def _mark(self, migration: VirtualMachineInstanceMigration) -> bool:
        name = migration.spec.vmi_name or ""
        if migration.metadata.labels.get(labels.MIGRATION_SELECTOR) != name:
            changes = {"metadata": {"labels": {labels.MIGRATION_SELECTOR: name}}}
            await self._cluster.client.patch(
                _KIND, migration.metadata.name, changes, migration.metadata.namespace, type="merge"
            )
        return await self._cluster.mark_observed(_KIND, migration)

    def _around(
        self, migration: VirtualMachineInstanceMigration, vmi: VirtualMachineInstance | None, rejected: str
    ) -> Around:
        if vmi is None:
            return Around(None, None)
        own = self._cluster.pods_of(vmi.metadata.uid)
        state = vmi.status.migration_state
        holder = state.migration_uid if state is not None else None
        return Around(
            vmi=vmi,
            target=self._target(migration, own),
            source=pods.current_pod(vmi, own),
            is_blocked=holder != migration.metadata.uid
            and any(
                item.metadata.uid == holder and not phases.is_finished(item)
                for item in self._of_instance(vmi)
            ),
            rejected=rejected,
        )

    def _of_instance(self, vmi: VirtualMachineInstance) -> list[VirtualMachineInstanceMigration]:
        return self._cluster.migrations.by_index("vmi", f"{vmi.metadata.namespace}/{vmi.metadata.name}")

    def _target(self, migration: VirtualMachineInstanceMigration, own: list[JsonObject]) -> JsonObject | None:
        uid = migration.metadata.uid
        found = [pod for pod in own if meta.labels(pod).get(pods.MIGRATION_JOB_LABEL) == uid]
        return max(found, key=meta.creation_timestamp, default=None)

    async def _sync(
        self, key: Key, migration: VirtualMachineInstanceMigration, vmi: VirtualMachineInstance
    ) -> tuple[str, float]:
        around = self._around(migration, vmi, "")
        phase = phases.phase_of(migration)
        if migration.metadata.is_being_deleted:
            await self._cancel(migration, vmi, around)
            return "", 0.0
        if phase == "Pending" and around.target is None:
            return await self._create_target(key, migration, vmi, around)
        if phase in ("Pending", "Scheduling") and around.target is not None:
            return "", await self._watch_pending(migration, vmi, around.target)
        if phase == "Scheduled" and around.target is not None:
            await self._hand_off(migration, vmi, around)
        elif phase in ("PreparingTarget", "TargetReady") and pods.is_down(around.target):
            await self._give_up(migration, vmi)
        elif phase == "Running" and around.target is not None:
            await self._announce_ready(vmi, around.target)
        return "", 0.0

    async def _create_target(
        self,
        key: Key,
        migration: VirtualMachineInstanceMigration,
        vmi: VirtualMachineInstance,
        around: Around,
    ) -> tuple[str, float]:
        wait = _WAIT_SECONDS.get(migration.spec.priority or "", _OTHER_WAIT_SECONDS)
        if not phases.runs(vmi) or len(vmi.status.active_pods) > 1:
            # there is no guest to migrate yet, or an earlier target or source pod still exists
            return "", wait
        if not self._has_room(vmi):
            return "", wait
        self._starting.add(key)
        try:
            return await self._start_target(key, migration, vmi, around, wait)
        finally:
            self._starting.discard(key)

    async def _start_target(
        self,
        key: Key,
        migration: VirtualMachineInstanceMigration,
        vmi: VirtualMachineInstance,
        around: Around,
        wait: float,
    ) -> tuple[str, float]:
        vmi = await instances.set_runtime_user(self._cluster, vmi)
        node = self._cluster.nodes.get(None, vmi.status.node_name or "")
        pod = target.render_target(self._inputs(vmi, around.source), migration, node)
        try:
            with self._expected.creating(key):
                created = await self._cluster.client.create(resources.PODS, pod)
        except StatusError as error:
            if is_already_exists(error):
                return "", wait  # created before, but not in the cache yet
            text = f"Error creating pod: {error.message}"
            self._cluster.recorder.event(described(vmi), "Warning", "FailedCreate", text)
            return (error.message if "exceeded quota" in error.message else ""), wait
        text = f"Created migration target pod {meta.namespace(created)}/{meta.name(created)}"
        self._cluster.recorder.event(described(migration), "Normal", "SuccessfulCreate", text)
        return "", 0.0

    def _inputs(self, vmi: VirtualMachineInstance, source: JsonObject | None) -> RenderInputs:
        claim = None
        if needs_state_claim(vmi):
            claim = persistentstate.claim_of(
                self._cluster.claims.list(vmi.metadata.namespace), vmi.metadata.name
            )
        name = meta.name(claim) if claim else ""
        return self._cluster.render_inputs(vmi, name, target.image_digests(source))

    def _has_room(self, vmi: VirtualMachineInstance) -> bool:
        """Whether the limits of parallel migrations allow one more, in the cluster and from the source
        node.
        """
        settings = self._cluster.settings()
        total = outgoing = 0
        for item in self._cluster.migrations.list():
            name = item.spec.vmi_name or ""
            running = None if phases.is_finished(item) else self._instance(item.metadata.namespace, name)
            if running is None:
                continue
            if phases.phase_of(item) in ("", "Pending") and not self._has_target(item, running):
                continue
            total += 1
            outgoing += running.status.node_name == vmi.status.node_name
        return total < settings.parallel_migrations and outgoing < settings.parallel_outbound_migrations

    def _instance(self, namespace: str, name: str) -> VirtualMachineInstance | None:
        """The instance, if it exists and can be decoded."""
        try:
            return self._cluster.vmis.get(namespace, name)
        except UnfitDocument:
            return None

    def _has_target(self, migration: VirtualMachineInstanceMigration, vmi: VirtualMachineInstance) -> bool:
        """Whether a target pod exists or its creation is pending."""
        key = key_of(migration)
        if key in self._starting or not self._expected.satisfied(key):
            return True
        return self._target(migration, self._cluster.pods_of(vmi.metadata.uid)) is not None

    async def _watch_pending(
        self, migration: VirtualMachineInstanceMigration, vmi: VirtualMachineInstance, pod: JsonObject
    ) -> float:
        """Delete a target pod that stays unscheduled for too long. Returns when to check again."""
        if get_str(pod, "status", "phase") != "Pending":
            return 0.0
        age = (times.now() - times.parse_time(meta.creation_timestamp(pod))).total_seconds()
        scheduled = meta.get_condition(pod, "PodScheduled") or {}
        is_unschedulable = scheduled.get("reason") == "Unschedulable"
        limit = _limit(migration, is_unschedulable)
        if is_unschedulable:
            name = f"{vmi.metadata.namespace}/{vmi.metadata.name}"
            text = f"Migration target pod for VMI [{name}] is currently unschedulable."
            self._cluster.recorder.event(
                described(migration), "Warning", "migrationTargetPodUnschedulable", text
            )
        if age < limit:
            return limit - age
        await self._delete_pod(pod)
        return 0.0

    async def _hand_off(
        self, migration: VirtualMachineInstanceMigration, vmi: VirtualMachineInstance, around: Around
    ) -> None:
        """Hand the migration off to virt-handler by writing the instance's status."""
        present = phases.state_of(vmi, migration)
        if (present is not None and present.target_node) or around.target is None:
            return
        if not phases.runs(vmi):
            return  # the cache is stale: the target was created for a running guest
        namespace = self._cluster.namespaces.get(None, vmi.metadata.namespace) or {}
        found = self._cluster.migration_policies.list()
        policy = policies.matching_policy(found, vmi.metadata.labels, meta.labels(namespace))
        state: JsonObject = {
            "migrationUid": migration.metadata.uid,
            "targetNode": pods.node_of(around.target),
            "targetPod": meta.name(around.target),
            "sourceNode": vmi.status.node_name,
            "sourcePod": meta.name(around.source) if around.source else "",
            "migrationConfiguration": policies.configuration(self._cluster.settings(), policy),
        }
        memory = vmi.status.memory
        if memory is not None and memory.memory_overhead:
            state["targetMemoryOverhead"] = memory.memory_overhead
        if policy is not None:
            state["migrationPolicyName"] = policy.metadata.name
        await instances.set_state(self._cluster, vmi, state, target_node=state["targetNode"])
        text = "Migration target pod is ready for preparation by virt-handler."
        self._cluster.recorder.event(described(migration), "Normal", "SuccessfulHandOver", text)

    async def _give_up(self, migration: VirtualMachineInstanceMigration, vmi: VirtualMachineInstance) -> None:
        state = phases.state_of(vmi, migration)
        if state is None or state.end_timestamp:
            return
        ended = replace(
            state,
            failed=True,
            completed=True,
            end_timestamp=times.now_rfc3339(),
            failure_reason="Target pod is down",
        )
        await instances.set_state(self._cluster, vmi, encode(ended))

    async def _announce_ready(self, vmi: VirtualMachineInstance, pod: JsonObject) -> None:
        """Tell the target pod, by an annotation, when its guest has arrived."""
        state = vmi.status.migration_state
        moment = state.target_node_domain_ready_timestamp if state is not None else None
        key = "kubevirt.io/migration-target-ready-timestamp"
        if not moment or meta.annotations(pod).get(key):
            return
        changes = {"metadata": {"annotations": {key: moment}}}
        await self._cluster.client.patch(
            resources.PODS, meta.name(pod), changes, meta.namespace(pod), type="merge"
        )

    async def _cancel(
        self, migration: VirtualMachineInstanceMigration, vmi: VirtualMachineInstance, around: Around
    ) -> None:
        """Cancel: delete the target before the hand-off; afterwards ask virt-handler to abort."""
        state = phases.state_of(vmi, migration)
        if state is None:
            if around.target is not None and not meta.is_being_deleted(around.target):
                await self._delete_pod(around.target)
            return
        if state.abort_requested or state.completed:
            return
        await instances.set_state(self._cluster, vmi, encode(replace(state, abort_requested=True)))
        text = f"Migration aborted for VMI {vmi.metadata.name}"
        self._cluster.recorder.event(described(migration), "Normal", "SuccessfulAbortMigration", text)

    async def _update(self, migration: VirtualMachineInstanceMigration, around: Around) -> None:
        result = phases.next_state(migration, around)
        if result.event is not None:
            self._cluster.recorder.event(described(migration), *result.event)
        operations = status_patch(
            migration, VirtualMachineInstanceMigrationStatus, migration.status, result.status
        )
        await patch(self._cluster, _KIND, migration, operations, "status")
        if result.is_released:
            removing = finalizer_patch(migration.metadata, phases.FINALIZER, present=False)
            await patch(self._cluster, _KIND, migration, removing)

    async def _remove_target(
        self, migration: VirtualMachineInstanceMigration, vmi: VirtualMachineInstance
    ) -> None:
        """Delete the target of a failed migration: otherwise no other migration could start."""
        own = self._cluster.pods_of(vmi.metadata.uid)
        pod = self._target(migration, own)
        if pod is not None and target.is_leftover(pod, vmi, own):
            await self._delete_pod(pod)

    async def _remove_leftovers(self, key: Key) -> None:
        """Delete targets of a deleted migration, also those created after it was deleted."""
        for pod in self._cluster.pods.list(key[0], lambda pod: key in self._pod_keys(pod)):
            owner = meta.controller_of(pod) or {}
            vmi = self._instance(key[0], get_str(owner, "name"))
            if vmi is None or not target.is_leftover(pod, vmi, self._cluster.pods_of(vmi.metadata.uid)):
                continue
            if await self._live_uid(key) != meta.labels(pod).get(pods.MIGRATION_JOB_LABEL):
                await self._delete_pod(pod)

    async def _live_uid(self, key: Key) -> str:
        """The uid of the migration on the API server, which may be newer than the cache's."""
        try:
            return meta.uid(await self._cluster.client.get(_KIND, key[1], key[0]))
        except StatusError as error:
            if is_not_found(error):
                return ""
            raise

    async def _collect(self, vmi: VirtualMachineInstance) -> None:
        """Delete finished migrations of an instance except the newest ones."""
        finished = [item for item in self._of_instance(vmi) if phases.is_finished(item)]
        finished.sort(key=lambda item: item.metadata.created)
        for old in finished[:-_KEPT_FINISHED]:
            await self._delete(_KIND, old.metadata)

    async def _delete_pod(self, pod: JsonObject) -> None:
        identity = ObjectMeta(name=meta.name(pod), namespace=meta.namespace(pod), uid=meta.uid(pod))
        await self._delete(resources.PODS, identity)

    async def _delete(self, kind: ResourceType, of: ObjectMeta) -> None:
        try:
            await self._cluster.client.delete(kind, of.name, of.namespace, uid=of.uid)
        except StatusError as error:
            if not is_not_found(error) and error.code != 409:
                raise


def _limit(migration: VirtualMachineInstanceMigration, is_unschedulable: bool) -> float:
    key, default = "kubevirt.io/migrationPendingPodTimeoutSeconds", _PENDING_SECONDS
    if is_unschedulable:
        key, default = "kubevirt.io/migrationUnschedulablePodTimeoutSeconds", _UNSCHEDULABLE_SECONDS
    written = amounts.whole(migration.metadata.annotations.get(key, ""))
    return float(default if written is None else written)

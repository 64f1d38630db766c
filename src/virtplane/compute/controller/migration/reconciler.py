"""The controller of migrations."""

from __future__ import annotations

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.json import JsonObject, deep_copy, get_bool, get_int, get_object, get_str
from kubecore.objects import meta, times
from kubecore.patch.guarded import guarded_patch
from kubecore.resources import ResourceType
from kubecore.runtime import DONE, Controller, Expectations, Key, RequeueAfter, Result
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller import pods
from virtplane.compute.controller.migration import phases, policies, target
from virtplane.compute.controller.migration.phases import Around
from virtplane.compute.controller.vmi import backend
from virtplane.compute.controller.vmi.phases import TARGET_NODE_LABEL
from virtplane.compute.controller.vmi.storage import needs_state_claim
from virtplane.compute.launcherpod.inputs import RenderInputs

_KIND = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS
_NONROOT = "kubevirt.io/nonroot"
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
        self.controller.depend(cluster.informer(kinds.MIGRATION_POLICIES))
        self._expected = Expectations(self.controller, cluster.pods, self._pod_keys)

    def _instance_keys(self, vmi: JsonObject) -> list[Key]:
        return [meta.key(item) for item in self._of_instance(vmi)]

    def _of_instance(self, vmi: JsonObject) -> list[JsonObject]:
        return self._cluster.migrations.by_index("vmi", f"{meta.namespace(vmi)}/{meta.name(vmi)}")

    def _pod_keys(self, pod: JsonObject) -> list[Key]:
        name = meta.annotations(pod).get(labels.MIGRATION_JOB_NAME)
        return [(meta.namespace(pod), name)] if name else []

    async def _reconcile(self, key: Key) -> Result:
        may_act = await self._expected.settled(key)  # first: what is read then is what it is about
        migration = self._cluster.migrations.get(*key)
        if migration is None:
            self._expected.forget(key)
            await self._remove_leftovers(key)
            return DONE
        if not may_act:
            return DONE  # a target may be on its way: the migration must not end before it is known
        if await self._mark(migration):
            return DONE
        vmi = self._cluster.vmis.get(key[0], get_str(migration, "spec", "vmiName"))
        if vmi is None and not meta.is_being_deleted(migration):
            await self._delete(_KIND, migration)
        rejected, wait = "", 0.0
        if vmi is not None and not phases.is_finished(migration):
            rejected, wait = await self._sync(key, migration, vmi)
        await self._update(migration, vmi, rejected)
        if vmi is not None and phases.is_finished(migration):
            await self._remove_target(migration, vmi)
            await self._collect(vmi)
        return RequeueAfter(wait) if wait else DONE

    async def _mark(self, migration: JsonObject) -> bool:
        name = get_str(migration, "spec", "vmiName")
        if meta.labels(migration).get(labels.MIGRATION_SELECTOR) != name:
            patch = {"metadata": {"labels": {labels.MIGRATION_SELECTOR: name}}}
            await self._cluster.client.patch(
                _KIND, meta.name(migration), patch, meta.namespace(migration), type="merge"
            )
        return await self._cluster.mark_observed(_KIND, migration)

    def _around(self, migration: JsonObject, vmi: JsonObject | None, rejected: str) -> Around:
        if vmi is None:
            return Around(None, None)
        own = self._cluster.pods_of(vmi)
        others = [
            item
            for item in self._of_instance(vmi)
            if meta.uid(item) != meta.uid(migration) and not phases.is_finished(item)
        ]
        holder = get_str(vmi, "status", "migrationState", "migrationUid")
        return Around(
            vmi=vmi,
            target=self._target(migration, own),
            source=pods.current_pod(vmi, own),
            is_blocked=any(meta.uid(item) == holder for item in others),
            rejected=rejected,
        )

    def _target(self, migration: JsonObject, own: list[JsonObject]) -> JsonObject | None:
        uid = meta.uid(migration)
        found = [pod for pod in own if meta.labels(pod).get(pods.MIGRATION_JOB_LABEL) == uid]
        return max(found, key=meta.creation_timestamp, default=None)

    async def _sync(self, key: Key, migration: JsonObject, vmi: JsonObject) -> tuple[str, float]:
        around = self._around(migration, vmi, "")
        phase = phases.phase_of(migration)
        if meta.is_being_deleted(migration):
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
        self, key: Key, migration: JsonObject, vmi: JsonObject, around: Around
    ) -> tuple[str, float]:
        wait = _WAIT_SECONDS.get(get_str(migration, "spec", "priority"), _OTHER_WAIT_SECONDS)
        if not phases.runs(vmi) or len(get_object(vmi, "status", "activePods")) > 1:
            return "", wait  # nothing to move yet; or an earlier target, or source, has not gone
        if not self._has_room(vmi):
            return "", wait
        self._starting.add(key)
        try:
            return await self._start_target(key, migration, vmi, around, wait)
        finally:
            self._starting.discard(key)

    async def _start_target(
        self, key: Key, migration: JsonObject, vmi: JsonObject, around: Around, wait: float
    ) -> tuple[str, float]:
        vmi = await self._set_runtime_user(vmi)
        node = self._cluster.nodes.get(None, get_str(vmi, "status", "nodeName"))
        pod = target.render_target(self._inputs(vmi, around.source), migration, node)
        try:
            with self._expected.creating(key):
                created = await self._cluster.client.create(resources.PODS, pod)
        except StatusError as error:
            if is_already_exists(error):
                return "", wait  # it was made before, and the cache is about to show it
            text = f"Error creating pod: {error.message}"
            self._cluster.recorder.event(vmi, "Warning", "FailedCreate", text)
            return (error.message if "exceeded quota" in error.message else ""), wait
        text = f"Created migration target pod {meta.namespace(created)}/{meta.name(created)}"
        self._cluster.recorder.event(migration, "Normal", "SuccessfulCreate", text)
        return "", 0.0

    def _inputs(self, vmi: JsonObject, source: JsonObject | None) -> RenderInputs:
        claim = None
        if needs_state_claim(vmi):
            claim = backend.state_claim_of(self._cluster.claims.list(meta.namespace(vmi)), vmi)
        name = meta.name(claim) if claim else ""
        return self._cluster.render_inputs(vmi, name, target.image_digests(source))

    def _has_room(self, vmi: JsonObject) -> bool:
        """Whether the limits of the cluster and of the source node allow one more."""
        settings = self._cluster.settings().migrations
        node = get_str(vmi, "status", "nodeName")
        total = outgoing = 0
        for item in self._cluster.migrations.list():
            running = self._cluster.vmis.get(meta.namespace(item), get_str(item, "spec", "vmiName"))
            if phases.is_finished(item) or running is None:
                continue
            if phases.phase_of(item) in ("", "Pending") and not self._has_target(item, running):
                continue
            total += 1
            outgoing += get_str(running, "status", "nodeName") == node
        return total < get_int(settings, "parallelMigrationsPerCluster", default=5) and outgoing < get_int(
            settings, "parallelOutboundMigrationsPerNode", default=2
        )

    def _has_target(self, migration: JsonObject, vmi: JsonObject) -> bool:
        """Whether there is a target, or one is on its way."""
        key = meta.key(migration)
        if key in self._starting or not self._expected.satisfied(key):
            return True
        return self._target(migration, self._cluster.pods_of(vmi)) is not None

    async def _set_runtime_user(self, vmi: JsonObject) -> JsonObject:
        """The guest arrives under the user that launchers run as now."""
        is_root = self._cluster.settings().gate("Root")
        new = deep_copy(vmi)
        meta.set_annotation(new, _NONROOT, None if is_root else "true")
        new["status"]["runtimeUser"] = 0 if is_root else 107
        return await self._patch_instance(vmi, new)

    async def _patch_instance(self, old: JsonObject, new: JsonObject) -> JsonObject:
        patch = guarded_patch(old, new, ("metadata", "annotations"), ("metadata", "labels"), ("status",))
        if not patch:
            return old
        return await self._cluster.client.patch(
            kinds.VIRTUAL_MACHINE_INSTANCES, meta.name(old), patch, meta.namespace(old), type="json"
        )

    async def _watch_pending(self, migration: JsonObject, vmi: JsonObject, pod: JsonObject) -> float:
        """Deletes a target that no node takes for too long. Gives when to look again."""
        if get_str(pod, "status", "phase") != "Pending":
            return 0.0
        age = (times.now() - times.parse_time(meta.creation_timestamp(pod))).total_seconds()
        scheduled = meta.get_condition(pod, "PodScheduled") or {}
        is_unschedulable = scheduled.get("reason") == "Unschedulable"
        limit = _limit(migration, is_unschedulable)
        if is_unschedulable:
            name = f"{meta.namespace(vmi)}/{meta.name(vmi)}"
            text = f"Migration target pod for VMI [{name}] is currently unschedulable."
            self._cluster.recorder.event(migration, "Warning", "migrationTargetPodUnschedulable", text)
        if age < limit:
            return limit - age
        await self._delete(resources.PODS, pod)
        return 0.0

    async def _hand_off(self, migration: JsonObject, vmi: JsonObject, around: Around) -> None:
        """Tells the node agents what to do, by the instance's status."""
        if phases.state_of(vmi, migration).get("targetNode") or around.target is None:
            return
        if not phases.runs(vmi):
            return  # the cache is late: the target was made for a running guest
        namespace = self._cluster.namespaces.get(None, meta.namespace(vmi)) or {}
        found = self._cluster.informer(kinds.MIGRATION_POLICIES).list()
        policy = policies.matching_policy(found, meta.labels(vmi), meta.labels(namespace))
        state: JsonObject = {
            "migrationUid": meta.uid(migration),
            "targetNode": pods.node_of(around.target),
            "targetPod": meta.name(around.target),
            "sourceNode": get_str(vmi, "status", "nodeName"),
            "sourcePod": meta.name(around.source) if around.source else "",
            "migrationConfiguration": policies.configuration(self._cluster.settings(), policy),
        }
        overhead = get_object(vmi, "status", "memory").get("memoryOverhead")
        if overhead:
            state["targetMemoryOverhead"] = overhead
        if policy is not None:
            state["migrationPolicyName"] = policies.policy_name(policy)
        new = deep_copy(vmi)
        new["status"]["migrationState"] = state
        meta.set_label(new, TARGET_NODE_LABEL, state["targetNode"])
        await self._patch_instance(vmi, new)
        text = "Migration target pod is ready for preparation by virt-handler."
        self._cluster.recorder.event(migration, "Normal", "SuccessfulHandOver", text)

    async def _give_up(self, migration: JsonObject, vmi: JsonObject) -> None:
        state = phases.state_of(vmi, migration)
        if not state or state.get("endTimestamp"):
            return
        new = deep_copy(vmi)
        new["status"]["migrationState"] = {
            **state,
            "failed": True,
            "completed": True,
            "endTimestamp": times.now_rfc3339(),
            "failureReason": "Target pod is down",
        }
        await self._patch_instance(vmi, new)

    async def _announce_ready(self, vmi: JsonObject, pod: JsonObject) -> None:
        """The target's pod learns when its guest arrived."""
        moment = get_str(vmi, "status", "migrationState", "targetNodeDomainReadyTimestamp")
        key = "kubevirt.io/migration-target-ready-timestamp"
        if not moment or meta.annotations(pod).get(key):
            return
        patch = {"metadata": {"annotations": {key: moment}}}
        await self._cluster.client.patch(
            resources.PODS, meta.name(pod), patch, meta.namespace(pod), type="merge"
        )

    async def _cancel(self, migration: JsonObject, vmi: JsonObject, around: Around) -> None:
        """Before the hand-off the target goes; afterwards the node agent is asked to stop."""
        state = phases.state_of(vmi, migration)
        if not state:
            if around.target is not None and not meta.is_being_deleted(around.target):
                await self._delete(resources.PODS, around.target)
            return
        if get_bool(state, "abortRequested") or get_bool(state, "completed"):
            return
        new = deep_copy(vmi)
        new["status"]["migrationState"] = {**state, "abortRequested": True}
        await self._patch_instance(vmi, new)
        text = f"Migration aborted for VMI {meta.name(vmi)}"
        self._cluster.recorder.event(migration, "Normal", "SuccessfulAbortMigration", text)

    async def _update(self, migration: JsonObject, vmi: JsonObject | None, rejected: str) -> None:
        result = phases.next_state(migration, self._around(migration, vmi, rejected))
        new = result.migration
        if result.event is not None:
            kind, reason, text = result.event
            self._cluster.recorder.event(
                migration, "Warning" if kind == "Warning" else "Normal", reason, text
            )
        try:
            if new.get("status") != migration.get("status"):
                written = await self._cluster.client.update(_KIND, new, subresource="status")
                new["metadata"]["resourceVersion"] = meta.resource_version(written)
            if meta.finalizers(new) != meta.finalizers(migration):
                await self._cluster.client.update(_KIND, new)
        except StatusError as error:
            if not is_not_found(error):
                raise

    async def _remove_target(self, migration: JsonObject, vmi: JsonObject) -> None:
        """What a failed migration made does not stay: no other could begin beside it."""
        pod = self._target(migration, self._cluster.pods_of(vmi))
        if pod is not None and target.is_leftover(pod, vmi):
            await self._delete(resources.PODS, pod)

    async def _remove_leftovers(self, key: Key) -> None:
        """Targets of a migration that is gone, such as those whose creation took effect after its end."""
        for pod in self._cluster.pods.list(key[0], lambda pod: key in self._pod_keys(pod)):
            owner = meta.controller_of(pod) or {}
            vmi = self._cluster.vmis.get(key[0], get_str(owner, "name"))
            if vmi is None or not target.is_leftover(pod, vmi):
                continue
            if await self._live_uid(key) != meta.labels(pod).get(pods.MIGRATION_JOB_LABEL):
                await self._delete(resources.PODS, pod)

    async def _live_uid(self, key: Key) -> str:
        """The uid of the migration on the server, which may know of one that the cache has yet to show."""
        try:
            return meta.uid(await self._cluster.client.get(_KIND, key[1], key[0]))
        except StatusError as error:
            if is_not_found(error):
                return ""
            raise

    async def _collect(self, vmi: JsonObject) -> None:
        """Keeps the newest finished migrations of an instance only."""
        finished = [item for item in self._of_instance(vmi) if phases.is_finished(item)]
        finished.sort(key=meta.creation_timestamp)
        for old in finished[:-_KEPT_FINISHED]:
            await self._delete(_KIND, old)

    async def _delete(self, kind: ResourceType, obj: JsonObject) -> None:
        try:
            await self._cluster.client.delete(kind, meta.name(obj), meta.namespace(obj), uid=meta.uid(obj))
        except StatusError as error:
            if not is_not_found(error) and error.code != 409:
                raise


def _limit(migration: JsonObject, is_unschedulable: bool) -> float:
    key, default = "kubevirt.io/migrationPendingPodTimeoutSeconds", _PENDING_SECONDS
    if is_unschedulable:
        key, default = "kubevirt.io/migrationUnschedulablePodTimeoutSeconds", _UNSCHEDULABLE_SECONDS
    text = meta.annotations(migration).get(key, "")
    return float(text) if text.isdigit() else float(default)

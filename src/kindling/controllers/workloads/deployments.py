"""Deployments: ReplicaSets for templates, rolled out and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kindling.controllers import pods as pod_facts
from kindling.controllers.environment import OWNER_INDEX, Environment, controller_uid, own_selector, owned
from kindling.controllers.workloads import rollout, rollout_status
from kindling.controllers.workloads.adoption import Claimer
from kubecore.errors import StatusError, ignoring
from kubecore.json import JsonObject, deep_copy, get_int, get_object
from kubecore.objects import meta
from kubecore.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from kubecore.runtime import DONE, Key, RequeueAfter, Result

NAME = "deployment-controller"


@dataclass(slots=True)
class Family:
    """A deployment with its sets; `new` is that of the present template."""

    deployment: JsonObject
    new: JsonObject | None
    old: list[JsonObject]

    @property
    def sets(self) -> list[JsonObject]:
        """All sets."""
        return [*self.old, *([self.new] if self.new else [])]

    def replace(self, changed: JsonObject) -> None:
        """Replace one set by the API server's answer to its update."""
        if self.new is not None and meta.uid(self.new) == meta.uid(changed):
            self.new = changed
        self.old = [changed if meta.uid(found) == meta.uid(changed) else found for found in self.old]


class DeploymentController:
    """Keyed by deployment."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._client = environment.client
        self._recorder = environment.recorder(NAME)
        manager = environment.manager
        self._deployments = manager.informer(DEPLOYMENTS)
        self._pods = manager.informer(PODS, indexers={OWNER_INDEX: controller_uid})
        self._claimer = Claimer(self._client, DEPLOYMENTS, REPLICA_SETS)
        controller = environment.controller(NAME, self.reconcile, workers=5)
        controller.watch(self._deployments)
        controller.watch(self._pods, self._recreating, lambda event, _, __: event == "DELETED")
        sets = manager.informer(REPLICA_SETS)
        self._sets = owned(controller, sets, self._deployments, DEPLOYMENTS.kind)

    def _recreating(self, pod: JsonObject) -> list[Key]:
        """The deployment of a deleted pod: a Recreate deployment waits for the end of its old pods."""
        reference = meta.controller_of(pod)
        if reference is None or reference["kind"] != REPLICA_SETS.kind:
            return []
        owner = self._sets.informer.get(meta.namespace(pod), reference["name"])
        parent = meta.controller_of(owner) if owner else None
        return [(meta.namespace(pod), parent["name"])] if parent else []

    async def reconcile(self, key: Key) -> Result:
        """Sync one deployment."""
        deployment = self._deployments.get(*key)
        if deployment is None:
            return DONE
        candidates = self._sets.of(deployment) + self._sets.orphans(key[0])
        sets = await self._claimer.claim(deployment, own_selector(deployment), candidates)
        new = rollout.find_new(deployment, sets)
        old = [found for found in sets if new is None or meta.uid(found) != meta.uid(new)]
        family = Family(deployment, new, old)
        if meta.is_being_deleted(deployment):
            return await self._write_status(family, progress=False)
        await self._mark_pause(family)
        paused = get_object(deployment, "spec").get("paused") is True
        if paused or rollout.needs_scaling(deployment, sets):
            return await self._rest(family, paused=paused)
        if rollout.is_recreate(deployment):
            return await self._recreate(family)
        return await self._roll(family)

    async def _rest(self, family: Family, *, paused: bool) -> Result:
        """Sync a deployment that is paused or was scaled: only sizes change."""
        await self._sync_revision(family, create=False)
        wanted = rollout.scale_proportionally(family.deployment, family.new, family.old)
        await self._scale(family, wanted, refresh=True)
        if paused:
            await self._clean_up(family)
        return await self._write_status(family, progress=False)

    async def _roll(self, family: Family) -> Result:
        if not await self._sync_revision(family, create=True):
            return RequeueAfter(0.01)
        new = family.new
        if new is None:
            return DONE
        size = rollout.scale_new(family.deployment, new, family.sets)
        if size != rollout.replicas(new):
            await self._scale(family, {meta.name(new): size})
            return await self._write_status(family)
        shrink = rollout.scale_old(family.deployment, new, family.old)
        if shrink:
            await self._scale(family, shrink)
            return await self._write_status(family)
        return await self._finish(family)

    async def _recreate(self, family: Family) -> Result:
        await self._sync_revision(family, create=False)
        shrink = {meta.name(found): 0 for found in family.old if rollout.replicas(found) > 0}
        if shrink:
            await self._scale(family, shrink)
            return await self._write_status(family)
        if self._old_pods_run(family):
            return await self._write_status(family)
        if not await self._sync_revision(family, create=True):
            return RequeueAfter(0.01)
        wanted = rollout.replicas(family.deployment)
        if family.new is not None and rollout.replicas(family.new) != wanted:
            await self._scale(family, {meta.name(family.new): wanted})
        return await self._finish(family)

    async def _finish(self, family: Family) -> Result:
        result = rollout_status.status(family.deployment, family.new, family.old, self._environment.clock())
        if rollout_status.is_complete(family.deployment, result):
            await self._clean_up(family)
        return await self._write_status(family)

    def _old_pods_run(self, family: Family) -> bool:
        return any(
            not pod_facts.is_finished(pod)
            for found in family.old
            for pod in self._pods.by_index(OWNER_INDEX, meta.uid(found))
        )

    async def _mark_pause(self, family: Family) -> None:
        """Set the condition Progressing when the deployment was paused or resumed."""
        deployment = family.deployment
        if rollout_status.deadline_seconds(deployment) is None:
            return
        condition = meta.get_condition(deployment, "Progressing")
        reason = condition.get("reason") if condition else None
        if reason == "ProgressDeadlineExceeded":
            return
        paused = get_object(deployment, "spec").get("paused") is True
        if paused == (reason == "DeploymentPaused"):
            return
        text = (
            ("DeploymentPaused", "Deployment is paused")
            if paused
            else (
                "DeploymentResumed",
                "Deployment is resumed",
            )
        )
        updated = deep_copy(deployment)
        conditions = updated.setdefault("status", {}).setdefault("conditions", [])
        rollout_status.set_condition(conditions, "Progressing", "Unknown", *text, self._environment.clock())
        family.deployment = await self._client.update(DEPLOYMENTS, updated, "status")

    async def _sync_revision(self, family: Family, *, create: bool) -> bool:
        """Give the new set its revision and annotations, creating it if need be.

        Returns False when its name belongs to another object: the hash must be recomputed with a new
        collision count.
        """
        newest = max((rollout.revision(found) for found in family.old), default=0) + 1
        if family.new is not None:
            await self._refresh_new(family, family.new, newest)
        elif create and not await self._create_new(family, newest):
            return False
        if family.new is not None:
            await self._set_revision(family, meta.annotations(family.new).get(rollout.REVISION, ""))
        return True

    async def _refresh_new(self, family: Family, new: JsonObject, newest: int) -> None:
        annotations = rollout.set_annotations(family.deployment, meta.annotations(new), newest, is_new=False)
        min_ready = get_object(family.deployment, "spec").get("minReadySeconds")
        if annotations == meta.annotations(new) and min_ready == new["spec"].get("minReadySeconds"):
            return
        updated = deep_copy(new)
        updated["metadata"]["annotations"] = annotations
        if min_ready is None:
            updated["spec"].pop("minReadySeconds", None)
        else:
            updated["spec"]["minReadySeconds"] = min_ready
        family.new = await self._client.update(REPLICA_SETS, updated)

    async def _create_new(self, family: Family, newest: int) -> bool:
        deployment = family.deployment
        replica_set = _new_set(deployment, family.sets, newest)
        try:
            created = await self._client.create(REPLICA_SETS, replica_set)
        except StatusError as error:
            if error.code == 409 and error.reason == "AlreadyExists":
                return await self._resolve_collision(family, meta.name(replica_set))
            message = f'Failed to create new replica set "{meta.name(replica_set)}": {error.message}'
            await self._set_progressing(family, "False", "ReplicaSetCreateError", message)
            self._recorder.event(deployment, "Warning", "ReplicaSetCreateError", message)
            raise
        family.new = created
        size = rollout.replicas(created)
        if size > 0:
            message = f"Scaled up replica set {meta.name(created)} from 0 to {size}"
            self._recorder.event(deployment, "Normal", "ScalingReplicaSet", message)
        text = f'Created new replica set "{meta.name(created)}"'
        await self._set_progressing(family, "True", "NewReplicaSetCreated", text)
        return True

    async def _resolve_collision(self, family: Family, name: str) -> bool:
        deployment = family.deployment
        found = await self._client.get(REPLICA_SETS, name, meta.namespace(deployment))
        if meta.is_controlled_by(found, deployment) and rollout.same_template(deployment, found):
            family.new = found
            return True
        collisions = get_int(deployment, "status", "collisionCount") + 1
        status = {**get_object(deployment, "status"), "collisionCount": collisions}
        family.deployment = await self._client.update(DEPLOYMENTS, {**deployment, "status": status}, "status")
        return False

    async def _set_progressing(self, family: Family, status: str, reason: str, message: str) -> None:
        if rollout_status.deadline_seconds(family.deployment) is None:
            return
        updated = deep_copy(family.deployment)
        conditions = updated.setdefault("status", {}).setdefault("conditions", [])
        now = self._environment.clock()
        rollout_status.set_condition(conditions, "Progressing", status, reason, message, now)
        family.deployment = await self._client.update(DEPLOYMENTS, updated, "status")

    async def _set_revision(self, family: Family, revision: str) -> None:
        deployment = family.deployment
        if revision and meta.annotations(deployment).get(rollout.REVISION) != revision:
            family.deployment = await self._client.patch(
                DEPLOYMENTS,
                meta.name(deployment),
                {"metadata": {"annotations": {rollout.REVISION: revision}}},
                meta.namespace(deployment),
                type="merge",
                # The revision annotation is written after the status, so that the generation does not change.
                subresource="status",
            )

    async def _scale(self, family: Family, sizes: Mapping[str, int], *, refresh: bool = False) -> None:
        """Set the replicas of sets by name; with `refresh`, also the size annotations of active sets."""
        remembered = rollout.size_annotations(family.deployment)
        for found in family.sets:
            size = sizes.get(meta.name(found), rollout.replicas(found))
            resized = size != rollout.replicas(found)
            stale = size > 0 and remembered.items() - meta.annotations(found).items()
            if not resized and not (refresh and stale):
                continue
            updated = deep_copy(found)
            updated["spec"]["replicas"] = size
            updated["metadata"]["annotations"] = {**meta.annotations(found), **remembered}
            family.replace(await self._client.update(REPLICA_SETS, updated))
            if resized:
                before = rollout.replicas(found)
                direction = "up" if size > before else "down"
                message = f"Scaled {direction} replica set {meta.name(found)} from {before} to {size}"
                self._recorder.event(family.deployment, "Normal", "ScalingReplicaSet", message)

    async def _clean_up(self, family: Family) -> None:
        for found in rollout.to_clean_up(family.deployment, family.old):
            with ignoring(404):
                await self._client.delete(
                    REPLICA_SETS, meta.name(found), meta.namespace(found), propagation_policy="Background"
                )

    async def _write_status(self, family: Family, *, progress: bool = True) -> Result:
        now = self._environment.clock()
        deployment = family.deployment
        result = rollout_status.status(deployment, family.new, family.old, now)
        if progress:
            rollout_status.set_progress(deployment, family.new, result, now)
        if _comparable(result) != _comparable(get_object(deployment, "status")):
            await self._client.update(DEPLOYMENTS, {**deployment, "status": result}, "status")
        wait = rollout_status.seconds_to_deadline(deployment, result, now) if progress else None
        return DONE if wait is None else RequeueAfter(wait)


def _comparable(status: JsonObject) -> JsonObject:
    conditions = sorted(status.get("conditions") or [], key=lambda condition: str(condition["type"]))
    return {**status, "conditions": conditions}


def _new_set(deployment: JsonObject, sets: Sequence[JsonObject], newest: int) -> JsonObject:
    """The ReplicaSet of the present template."""
    spec = get_object(deployment, "spec")
    template = deep_copy(get_object(spec, "template"))
    digest = pod_facts.hash_of(template, get_int(deployment, "status", "collisionCount"))
    labels = {**get_object(template, "metadata", "labels"), rollout.HASH_LABEL: digest}
    template.setdefault("metadata", {})["labels"] = labels
    selector = deep_copy(get_object(spec, "selector"))
    selector["matchLabels"] = {**get_object(selector, "matchLabels"), rollout.HASH_LABEL: digest}
    replica_set: JsonObject = {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {
            "name": f"{meta.name(deployment)}-{digest}",
            "namespace": meta.namespace(deployment),
            "labels": labels,
            "annotations": rollout.set_annotations(deployment, {}, newest, is_new=True),
            "ownerReferences": [meta.new_controller_ref(deployment, DEPLOYMENTS)],
        },
        "spec": {
            "replicas": rollout.new_set_replicas(deployment, sets, 0),
            "selector": selector,
            "template": template,
        },
    }
    if spec.get("minReadySeconds"):
        replica_set["spec"]["minReadySeconds"] = spec["minReadySeconds"]
    return replica_set

"""StatefulSets: pods with stable ordinals and claims."""

from __future__ import annotations

from kindling.controllers import pods as pod_facts
from kindling.controllers.environment import Environment, own_selector, owned, soonest
from kindling.controllers.workloads import revisions, stateful_plan
from kindling.controllers.workloads.adoption import Claimer
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from kubecore.runtime import DONE, Key, Result

NAME = "statefulset-controller"


class StatefulSetController:
    """Keyed by stateful set."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._client = environment.client
        self._recorder = environment.recorder(NAME)
        manager = environment.manager
        self._sets = manager.informer(STATEFUL_SETS)
        self._claims = manager.informer(PERSISTENT_VOLUME_CLAIMS)
        self._known = revisions.informer(manager)
        self._revisions = revisions.History(
            self._client, STATEFUL_SETS, self._known, stateful_plan.HASH_LABEL
        )
        self._claimer = Claimer(self._client, STATEFUL_SETS, PODS)
        controller = environment.controller(NAME, self.reconcile)
        controller.watch(self._sets)
        controller.depend(self._claims)
        controller.depend(self._known)
        self._pods = owned(controller, manager.informer(PODS), self._sets, STATEFUL_SETS.kind)

    async def reconcile(self, key: Key) -> Result:
        """Sync one stateful set."""
        owner = self._sets.get(*key)
        if owner is None:
            self._pods.expectations.forget(key)
            return DONE
        if not await self._pods.expectations.settled(key):
            return DONE
        candidates = [
            pod
            for pod in self._pods.of(owner) + self._pods.orphans(key[0])
            if stateful_plan.ordinal(owner, pod) >= 0
        ]
        pods = await self._claimer.claim(owner, own_selector(owner), candidates)
        update = await self._revisions.newest(owner)
        current = self._current_revision(owner, update)
        now = self._environment.clock()
        step = stateful_plan.plan(owner, pods, meta.name(update), now)
        for number in step.create:
            revision = current if stateful_plan.uses_current(owner, number) else update
            await self._create(key, owner, number, revision)
        for pod in (*step.failed, *step.delete):
            await self._delete(key, owner, pod, condemned=pod in step.delete)
        await self._keep_claims(owner, pods)
        status = stateful_plan.status(owner, pods, meta.name(current), meta.name(update), now)
        if status != get_object(owner, "status"):
            await self._client.update(STATEFUL_SETS, {**owner, "status": status}, "status")
        await self._clean_up(owner, {meta.name(current), meta.name(update)}, pods)
        min_ready = get_int(owner, "spec", "minReadySeconds")
        waits = [pod_facts.seconds_until_available(pod, min_ready, now) for pod in pods]
        return soonest(waits)

    def _current_revision(self, owner: JsonObject, update: JsonObject) -> JsonObject:
        name = get_str(owner, "status", "currentRevision")
        found = self._known.get(meta.namespace(owner), name) if name else None
        return found or update

    async def _create(self, key: Key, owner: JsonObject, number: int, revision: JsonObject) -> None:
        pod = stateful_plan.pod(owner, number, revision)
        name = meta.name(pod)
        for claim in stateful_plan.claims(owner, name):
            await self._create_claim(owner, claim, name)
        try:
            with self._pods.expectations.creating(key):
                await self._client.create(PODS, pod)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                return
            message = f"create Pod {name} in StatefulSet {key[1]} failed error: {error.message}"
            self._recorder.event(owner, "Warning", "FailedCreate", message)
            raise
        message = f"create Pod {name} in StatefulSet {key[1]} successful"
        self._recorder.event(owner, "Normal", "SuccessfulCreate", message)

    async def _create_claim(self, owner: JsonObject, claim: JsonObject, pod: str) -> None:
        if self._claims.get(*meta.key(claim)) is not None:
            return
        what = f"create Claim {meta.name(claim)} Pod {pod} in StatefulSet {meta.name(owner)}"
        try:
            await self._client.create(PERSISTENT_VOLUME_CLAIMS, claim)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                return
            self._recorder.event(owner, "Warning", "FailedCreate", f"{what} failed error: {error.message}")
            raise
        self._recorder.event(owner, "Normal", "SuccessfulCreate", f"{what} success")

    async def _delete(self, key: Key, owner: JsonObject, pod: JsonObject, *, condemned: bool) -> None:
        name = meta.name(pod)
        try:
            with self._pods.expectations.deleting(key, meta.uid(pod)):
                await self._client.delete(PODS, name, key[0], uid=meta.uid(pod))
        except StatusError as error:
            if error.code != 404:
                raise
            return
        if condemned:
            message = f"delete Pod {name} in StatefulSet {key[1]} successful"
            self._recorder.event(owner, "Normal", "SuccessfulDelete", message)
        else:
            message = f"StatefulSet {key[0]}/{key[1]} is recreating failed Pod {name}"
            self._recorder.event(owner, "Warning", "RecreatingFailedPod", message)

    async def _keep_claims(self, owner: JsonObject, pods: list[JsonObject]) -> None:
        """Set owner references on claims as persistentVolumeClaimRetentionPolicy says."""
        policy = get_object(owner, "spec", "persistentVolumeClaimRetentionPolicy")
        when_deleted = policy.get("whenDeleted") == "Delete"
        when_scaled = policy.get("whenScaled") == "Delete"
        if not get_list(owner, "spec", "volumeClaimTemplates"):
            return
        for pod in pods:
            condemned = stateful_plan.ordinal(owner, pod) not in stateful_plan.numbers(owner)
            wanted = []
            if when_scaled and condemned:
                wanted.append(_plain_reference(pod, "v1", "Pod"))
            elif when_deleted:
                wanted.append(meta.new_controller_ref(owner, STATEFUL_SETS))
            for template in get_list(owner, "spec", "volumeClaimTemplates"):
                name = stateful_plan.claim_name(template, meta.name(pod))
                claim = self._claims.get(meta.namespace(owner), name)
                if claim is not None:
                    await self._set_owners(claim, wanted, {meta.uid(owner), meta.uid(pod)})

    async def _set_owners(self, claim: JsonObject, wanted: list[JsonObject], managed: set[str]) -> None:
        kept = [entry for entry in meta.owner_references(claim) if entry["uid"] not in managed]
        if kept + wanted == meta.owner_references(claim):
            return
        updated = deep_copy(claim)
        updated["metadata"]["ownerReferences"] = kept + wanted
        await self._client.update(PERSISTENT_VOLUME_CLAIMS, updated)

    async def _clean_up(self, owner: JsonObject, used: set[str], pods: list[JsonObject]) -> None:
        live = used | {stateful_plan.revision_of(pod) for pod in pods}
        await self._revisions.trim(owner, lambda item: meta.name(item) in live)


def _plain_reference(obj: JsonObject, api_version: str, kind: str) -> JsonObject:
    return {"apiVersion": api_version, "kind": kind, "name": meta.name(obj), "uid": meta.uid(obj)}

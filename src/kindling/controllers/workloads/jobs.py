"""Jobs: pods that run until enough of them succeeded."""

from __future__ import annotations

import asyncio

from kindling.controllers import pods as pod_facts
from kindling.controllers.environment import Environment, own_selector, owned
from kindling.controllers.workloads import job_plan
from kindling.controllers.workloads.adoption import Claimer
from kindling.controllers.workloads.pod_writes import all_of
from kubecore.errors import StatusError, ignoring
from kubecore.json import JsonObject, deep_copy, get_int, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.times import format_time, parse_time
from kubecore.patch.guarded import guarded_patch
from kubecore.resources import JOBS, PODS
from kubecore.runtime import DONE, Key, RequeueAfter, Result
from kubecore.runtime.informer import EventType

NAME = "job-controller"
OWN_MANAGER = "kubernetes.io/job-controller"


class JobController:
    """Keyed by job; a second loop, keyed by pod, frees pods whose job is gone."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._client = environment.client
        self._recorder = environment.recorder(NAME)
        manager = environment.manager
        self._jobs = manager.informer(JOBS)
        self._pod_cache = manager.informer(PODS)
        self._claimer = Claimer(self._client, JOBS, PODS)
        self._freed: set[str] = set()
        """Pods that were counted and freed a moment ago, which the cache still shows as not."""
        self._pod_cache.add_handler(self._see)
        controller = environment.controller(NAME, self.reconcile, workers=5)
        controller.watch(self._jobs)
        self._pods = owned(controller, self._pod_cache, self._jobs, JOBS.kind)
        orphans = environment.controller("job-orphan-pods", self.free)
        orphans.watch(
            self._pod_cache,
            predicate=lambda event, _, pod: job_plan.TRACKING_FINALIZER in meta.finalizers(pod),
        )
        orphans.watch(
            self._jobs,
            lambda job: [meta.key(pod) for pod in self._pods.of(job)],
            lambda event, _, __: event == "DELETED",
        )

    async def reconcile(self, key: Key) -> Result:
        """Sync one job."""
        job = self._jobs.get(*key)
        if job is None:
            self._pods.expectations.forget(key)
            return DONE
        if get_str(job, "spec", "managedBy", default=OWN_MANAGER) != OWN_MANAGER:
            return DONE
        if not await self._pods.expectations.settled(key):
            return DONE
        candidates = self._pods.of(job) + self._pods.orphans(key[0])
        pods = await self._claimer.claim(job, own_selector(job), candidates)
        if job_plan.is_over(job):
            await self._free_all(pods)
            return DONE
        return await self._step(key, deep_copy(job), pods)

    async def _step(self, key: Key, job: JsonObject, pods: list[JsonObject]) -> Result:
        now = self._environment.clock()
        status = job.setdefault("status", {})
        if not status.get("startTime") and not job_plan.is_suspended(job):
            status["startTime"] = format_time(now)
        counted = job_plan.count(job, [pod for pod in pods if meta.uid(pod) not in self._freed])
        job = await self._count_ends(job, counted)
        status = job["status"]
        succeeded, failed = get_int(status, "succeeded"), get_int(status, "failed")
        decided = job_plan.pending_verdict(job) or job_plan.policy_verdict(job, counted.failed)
        decided = decided or self._indexed_verdict(job)
        decided = decided or job_plan.verdict(job, succeeded, failed, pods, now)
        active = counted.active
        wait: float | None = None
        if decided is not None or meta.is_being_deleted(job) or job_plan.is_suspended(job):
            await self._delete(key, job, active)
            counted.terminating += len(active)
            active = []
        else:
            wait = await self._adjust(key, job, pods, counted, (succeeded, failed))
        self._describe(job, active, counted.terminating)
        self._suspension(job)
        if decided is not None:
            self._conclude(job, decided, counted.terminating)
        current = self._jobs.get(*key)
        if current is None or get_object(current, "status") != job["status"]:
            await self._client.update(JOBS, job, "status")
            self._announce(job, decided)
        return self._next(job, wait)

    async def _count_ends(self, job: JsonObject, counted: job_plan.Count) -> JsonObject:
        """Record ended pods in the status, remove their finalizers, then count them: each counts once."""
        noted = get_object(job["status"], "uncountedTerminatedPods")
        done = set(noted.get("succeeded", [])) | set(noted.get("failed", []))
        fresh_succeeded = [meta.uid(pod) for pod in counted.succeeded if meta.uid(pod) not in done]
        fresh_failed = [meta.uid(pod) for pod in counted.failed if meta.uid(pod) not in done]
        if job_plan.is_indexed(job):
            self._note_indexes(job, counted)
        if fresh_succeeded or fresh_failed:
            noted = {
                "succeeded": [*noted.get("succeeded", []), *fresh_succeeded],
                "failed": [*noted.get("failed", []), *fresh_failed],
            }
            job["status"]["uncountedTerminatedPods"] = {key: ids for key, ids in noted.items() if ids}
            job = deep_copy(await self._client.update(JOBS, job, "status"))
        await self._free_all([*counted.succeeded, *counted.failed, *counted.ignored])
        status = job["status"]
        noted = get_object(status, "uncountedTerminatedPods")
        for name in ("succeeded", "failed"):
            amount = get_int(status, name) + len(noted.get(name, []))
            if name == "succeeded" and job_plan.is_indexed(job):
                amount = len(job_plan.parse_indexes(get_str(status, "completedIndexes")))
            if amount:
                status[name] = amount
        status["uncountedTerminatedPods"] = {}
        return job

    def _note_indexes(self, job: JsonObject, counted: job_plan.Count) -> None:
        done = job_plan.parse_indexes(get_str(job, "status", "completedIndexes"))
        done |= {index for pod in counted.succeeded if (index := job_plan.index_of(pod)) is not None}
        if done:
            job["status"]["completedIndexes"] = job_plan.format_indexes(done)
        if job_plan.limits_indexes(job):
            failed = job_plan.failed_indexes(job, counted.failed)
            job["status"]["failedIndexes"] = job_plan.format_indexes(failed)

    def _indexed_verdict(self, job: JsonObject) -> job_plan.Verdict | None:
        if not job_plan.is_indexed(job):
            return None
        done = job_plan.parse_indexes(get_str(job, "status", "completedIndexes"))
        decided = job_plan.success_policy_verdict(job, done)
        if decided is None and job_plan.limits_indexes(job):
            failed = job_plan.parse_indexes(get_str(job, "status", "failedIndexes"))
            decided = job_plan.indexes_verdict(job, done, failed)
        return decided

    async def _adjust(
        self,
        key: Key,
        job: JsonObject,
        pods: list[JsonObject],
        counted: job_plan.Count,
        ends: tuple[int, int],
    ) -> float | None:
        """Start or stop pods; returns the seconds to back off after failures."""
        given_up = job_plan.parse_indexes(get_str(job, "status", "failedIndexes"))
        wanted = job_plan.wanted_active(job, ends[0] + len(given_up), len(counted.active))
        waits = get_str(job, "spec", "podReplacementPolicy") == "Failed"
        missing = wanted - len(counted.active) - (counted.terminating if waits else 0)
        now = self._environment.clock()
        if missing < 0:
            surplus = sorted(counted.active, key=lambda pod: pod_facts.deletion_rank(pod, 0, now))
            chosen = surplus[: len(counted.active) - wanted]
            await self._delete(key, job, chosen)
            counted.active = [pod for pod in counted.active if pod not in chosen]
            return None
        if missing == 0:
            return None
        pause = job_plan.backoff_seconds(job, ends[1], pods, now)
        if pause > 0:
            return pause
        fresh = [job_plan.pod(job, None) for _ in range(missing)]
        if job_plan.is_indexed(job):
            done = job_plan.parse_indexes(get_str(job, "status", "completedIndexes")) | given_up
            free = job_plan.free_indexes(job, done, counted.active, missing)
            fresh = [job_plan.pod(job, index, job_plan.failures_of(index, pods)) for index in free]
        counted.active = counted.active + await self._create(key, job, fresh)
        return None

    async def _create(self, key: Key, job: JsonObject, fresh: list[JsonObject]) -> list[JsonObject]:
        results = await asyncio.gather(*(self._create_one(key, pod) for pod in fresh), return_exceptions=True)
        created: list[JsonObject] = []
        problem: BaseException | None = None
        for result in results:
            if isinstance(result, BaseException):
                self._recorder.event(job, "Warning", "FailedCreate", f"Error creating: {result}")
                problem = result
            else:
                self._recorder.event(job, "Normal", "SuccessfulCreate", f"Created pod: {meta.name(result)}")
                created.append(result)
        if problem is not None:
            raise problem
        return created

    async def _create_one(self, key: Key, pod: JsonObject) -> JsonObject:
        with self._pods.expectations.creating(key):
            return await self._client.create(PODS, pod)

    async def _delete(self, key: Key, job: JsonObject, chosen: list[JsonObject]) -> None:
        for pod in chosen:
            try:
                await self._client.delete(PODS, meta.name(pod), key[0], uid=meta.uid(pod))
            except StatusError as error:
                if error.code != 404:
                    raise
                continue
            self._recorder.event(job, "Normal", "SuccessfulDelete", f"Deleted pod: {meta.name(pod)}")

    def _describe(self, job: JsonObject, active: list[JsonObject], terminating: int) -> None:
        status = job["status"]
        status.pop("active", None)
        if active:
            status["active"] = len(active)
        status["ready"] = sum(pod_facts.is_ready(pod) for pod in active)
        status["terminating"] = terminating

    def _suspension(self, job: JsonObject) -> None:
        conditions = job["status"].setdefault("conditions", [])
        current = meta.find_condition(conditions, "Suspended")
        suspended = job_plan.is_suspended(job)
        now = self._environment.clock()
        if suspended and (current is None or current["status"] != "True"):
            self._replace(conditions, job_plan.condition("Suspended", "JobSuspended", "Job suspended", now))
            job["status"].pop("startTime", None)
            self._recorder.event(job, "Normal", "Suspended", "Job suspended")
        elif not suspended and current is not None and current["status"] == "True":
            resumed = job_plan.condition("Suspended", "JobResumed", "Job resumed", now, "False")
            self._replace(conditions, resumed)
            job["status"]["startTime"] = format_time(now)
            self._recorder.event(job, "Normal", "Resumed", "Job resumed")
        if not conditions:
            job["status"].pop("conditions")

    def _replace(self, conditions: list[JsonObject], wanted: JsonObject) -> None:
        meta.remove_condition(conditions, wanted["type"])
        conditions.append(wanted)

    def _conclude(self, job: JsonObject, decided: job_plan.Verdict, terminating: int) -> None:
        """Record the result now; the job is finished when its last pod has ended."""
        status = job["status"]
        conditions = status.setdefault("conditions", [])
        now = self._environment.clock()
        first, last = ("SuccessCriteriaMet", "Complete") if decided.success else ("FailureTarget", "Failed")
        if meta.find_condition(conditions, first) is None:
            conditions.append(job_plan.condition(first, decided.reason, decided.message, now))
        if terminating == 0:
            conditions.append(job_plan.condition(last, decided.reason, decided.message, now))
            if decided.success:
                status["completionTime"] = format_time(now)

    def _announce(self, job: JsonObject, decided: job_plan.Verdict | None) -> None:
        if decided is None or not job_plan.is_over(job):
            return
        if decided.success:
            self._recorder.event(job, "Normal", "Completed", "Job completed")
        else:
            self._recorder.event(job, "Warning", decided.reason, decided.message)

    def _next(self, job: JsonObject, wait: float | None) -> Result:
        deadline = get_object(job, "spec").get("activeDeadlineSeconds")
        waits = [] if wait is None else [wait]
        started = get_str(job, "status", "startTime")
        if deadline is not None and started and not job_plan.is_over(job):
            elapsed = self._environment.clock() - parse_time(started)
            waits.append(max(0.5, deadline - elapsed.total_seconds()))
        return RequeueAfter(min(waits)) if waits else DONE

    async def _free_all(self, pods: list[JsonObject]) -> None:
        tracked = [pod for pod in pods if job_plan.TRACKING_FINALIZER in meta.finalizers(pod)]
        await all_of(self._free(pod) for pod in tracked)

    async def _free(self, pod: JsonObject) -> None:
        new = deep_copy(pod)
        meta.remove_finalizer(new, job_plan.TRACKING_FINALIZER)
        operations = guarded_patch(pod, new, ("metadata",))
        with ignoring(404):
            await self._client.patch(PODS, meta.name(pod), operations, meta.namespace(pod), type="json")
        cached = self._pod_cache.get(*meta.key(pod))
        if cached is not None and meta.uid(cached) == meta.uid(pod) and _is_tracked(cached):
            self._freed.add(meta.uid(pod))

    def _see(self, event: EventType, old: JsonObject | None, pod: JsonObject) -> None:
        if event == "DELETED" or not _is_tracked(pod):
            self._freed.discard(meta.uid(pod))
        if old is not None and meta.uid(old) != meta.uid(pod):
            self._freed.discard(meta.uid(old))

    async def free(self, key: Key) -> Result:
        """Remove the finalizer of a pod whose job no longer exists."""
        pod = self._pod_cache.get(*key)
        if pod is None or job_plan.TRACKING_FINALIZER not in meta.finalizers(pod):
            return DONE
        reference = meta.controller_of(pod)
        if reference is not None and reference["kind"] == JOBS.kind:
            job = self._jobs.get(key[0], reference["name"])
            if job is not None and meta.uid(job) == reference["uid"]:
                return DONE
        await self._free(pod)
        return DONE


def _is_tracked(pod: JsonObject) -> bool:
    return job_plan.TRACKING_FINALIZER in meta.finalizers(pod)

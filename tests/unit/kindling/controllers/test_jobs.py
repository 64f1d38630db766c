"""Jobs, cron jobs and the removal of ended ones."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from kindling.controllers.workloads import cron_jobs, finished_jobs, job_plan, jobs
from kindling.controllers.workloads.cron_jobs import BadSchedule, last_due, seconds_to_next
from kubecore.client import Request
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from kubecore.resources import CRON_JOBS, EVENTS, JOBS, PODS

from .conftest import Cluster

pytestmark = pytest.mark.looptime


def job(name: str = "j", **spec: Any) -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": "lab", "generation": 1},
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 6,
            "selector": {"matchLabels": {"job": name}},
            "template": {
                "metadata": {"labels": {"job": name}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]},
            },
            **spec,
        },
    }


def conditions(cluster: Cluster, name: str = "j") -> dict[str, tuple[str, str]]:
    status = cluster.get(JOBS, name, "lab")["status"]
    return {item["type"]: (item["status"], item["reason"]) for item in status.get("conditions", [])}


def active(cluster: Cluster) -> list[JsonObject]:
    return [
        pod
        for pod in cluster.pods()
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        and not pod["metadata"].get("deletionTimestamp")
    ]


async def test_a_job_ends_when_its_pod_has_succeeded(cluster: Cluster) -> None:
    cluster.api.put(JOBS, job())
    async with cluster.running(jobs.JobController):
        (pod,) = cluster.pods()
        assert pod["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
        cluster.finish(pod, "Succeeded")
        await asyncio.sleep(2)
        (pod,) = cluster.pods()
        assert "finalizers" not in pod["metadata"]
    status = cluster.get(JOBS, "j", "lab")["status"]
    kept = {key: status.get(key) for key in ("succeeded", "active", "ready", "terminating")}
    assert kept == {"succeeded": 1, "active": None, "ready": 0, "terminating": 0}
    assert status["uncountedTerminatedPods"] == {} and status["completionTime"]
    assert conditions(cluster) == {
        "SuccessCriteriaMet": ("True", "CompletionsReached"),
        "Complete": ("True", "CompletionsReached"),
    }
    assert any(event["message"] == "Job completed" for event in cluster.api.list(EVENTS))


async def test_a_step_of_a_job_looks_at_no_pods_of_others(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or whoever has thousands of pods and of jobs would have all of them compared with each other."""
    for number in range(500):
        owner = {"kind": "ReplicaSet", "name": "r", "uid": "uid-r", "controller": True}
        metadata = {"name": f"other-{number}", "namespace": "lab", "ownerReferences": [owner]}
        cluster.api.put(PODS, {"metadata": metadata, "spec": {}, "status": {}})
    cluster.api.put(JOBS, job())
    looks: list[str] = []

    def look(obj: JsonObject) -> list[str]:
        looks.append(obj["metadata"]["name"])
        return finalizers(obj)

    async with cluster.running(jobs.JobController):
        finalizers = meta.finalizers
        monkeypatch.setattr(meta, "finalizers", look)
        (pod,) = [each for each in cluster.pods() if not each["metadata"]["name"].startswith("other-")]
        cluster.finish(pod, "Succeeded")
        await asyncio.sleep(2)
    assert conditions(cluster)["Complete"] == ("True", "CompletionsReached")
    assert not [name for name in looks if name.startswith("other-")]


async def test_a_finalizer_that_comes_while_a_pod_is_freed_stays(cluster: Cluster) -> None:
    cluster.api.put(JOBS, job())
    pending = ["example.com/other"]

    def add_finalizer(request: Request) -> None:
        if request.method == "PATCH" and "/pods/" in request.path and b"finalizers" in (request.body or b""):
            for name in pending[:]:
                pending.remove(name)
                pod = deep_copy(cluster.pods()[0])
                pod["metadata"]["finalizers"].append(name)
                cluster.api.put(PODS, pod)

    async with cluster.running(jobs.JobController):
        cluster.api.reactions.append(add_finalizer)
        cluster.finish(cluster.pods()[0], "Succeeded")
        await asyncio.sleep(2)
    assert pending == []
    assert cluster.pods()[0]["metadata"]["finalizers"] == ["example.com/other"]
    assert cluster.get(JOBS, "j", "lab")["status"]["succeeded"] == 1


async def test_a_job_that_runs_out_of_tries_fails(cluster: Cluster) -> None:
    cluster.api.put(JOBS, job(backoffLimit=0))
    async with cluster.running(jobs.JobController):
        cluster.finish(cluster.pods()[0], "Failed")
        await asyncio.sleep(2)
    assert conditions(cluster) == {
        "FailureTarget": ("True", "BackoffLimitExceeded"),
        "Failed": ("True", "BackoffLimitExceeded"),
    }
    assert cluster.get(JOBS, "j", "lab")["status"]["failed"] == 1
    assert len(cluster.pods()) == 1


async def test_failed_pods_are_replaced_after_a_pause(cluster: Cluster) -> None:
    cluster.api.put(JOBS, job(backoffLimit=3))
    async with cluster.running(jobs.JobController):
        cluster.finish(cluster.pods()[0], "Failed")
        await asyncio.sleep(2)
        assert active(cluster) == []
        await asyncio.sleep(15)
        (pod,) = active(cluster)
        cluster.finish(pod, "Succeeded")
        await asyncio.sleep(2)
    status = cluster.get(JOBS, "j", "lab")["status"]
    assert (status["succeeded"], status["failed"]) == (1, 1)
    assert "Complete" in conditions(cluster)


async def test_indexed_jobs_number_their_pods_and_note_what_is_done(cluster: Cluster) -> None:
    cluster.api.put(JOBS, job(completions=3, parallelism=2, completionMode="Indexed"))
    async with cluster.running(jobs.JobController):
        for _ in range(3):
            for pod in active(cluster):
                container = pod["spec"]["containers"][0]
                assert container["env"][0]["name"] == "JOB_COMPLETION_INDEX"
                cluster.finish(pod, "Succeeded")
            await asyncio.sleep(2)
    status = cluster.get(JOBS, "j", "lab")["status"]
    assert (status["completedIndexes"], status["succeeded"]) == ("0-2", 3)


async def test_each_number_may_have_its_own_tries(cluster: Cluster) -> None:
    spec: JsonObject = {
        "completions": 2,
        "parallelism": 2,
        "completionMode": "Indexed",
        "backoffLimitPerIndex": 1,
    }
    cluster.api.put(JOBS, job(**spec, backoffLimit=2**31 - 1))
    async with cluster.running(jobs.JobController):
        for _ in range(2):
            for pod in active(cluster):
                phase = "Failed" if job_plan.index_of(pod) == 0 else "Succeeded"
                cluster.finish(pod, phase)
            await asyncio.sleep(30)
    status = cluster.get(JOBS, "j", "lab")["status"]
    assert (status["completedIndexes"], status["failedIndexes"]) == ("1", "0")
    assert conditions(cluster)["Failed"] == ("True", "FailedIndexes")


async def test_a_success_policy_may_end_the_job_early(cluster: Cluster) -> None:
    policy = {"rules": [{"succeededIndexes": "0"}]}
    spec: JsonObject = {
        "completions": 3,
        "parallelism": 3,
        "completionMode": "Indexed",
        "successPolicy": policy,
    }
    cluster.api.put(JOBS, job(**spec))
    async with cluster.running(jobs.JobController):
        leader = next(pod for pod in cluster.pods() if job_plan.index_of(pod) == 0)
        cluster.finish(leader, "Succeeded")
        await asyncio.sleep(5)
    assert conditions(cluster)["SuccessCriteriaMet"] == ("True", "SuccessPolicy")
    assert conditions(cluster)["Complete"] == ("True", "SuccessPolicy")


async def test_a_suspended_job_has_no_pods_until_it_is_resumed(cluster: Cluster) -> None:
    cluster.api.put(JOBS, job(suspend=True))
    async with cluster.running(jobs.JobController):
        assert cluster.pods() == []
        assert conditions(cluster) == {"Suspended": ("True", "JobSuspended")}
        await cluster.client.patch(JOBS, "j", {"spec": {"suspend": False}}, "lab", type="merge")
        await asyncio.sleep(2)
        assert len(cluster.pods()) == 1
        assert conditions(cluster) == {"Suspended": ("False", "JobResumed")}
        assert cluster.get(JOBS, "j", "lab")["status"]["startTime"]


async def test_a_job_has_only_so_much_time(cluster: Cluster) -> None:
    cluster.api.put(JOBS, job(activeDeadlineSeconds=30))
    async with cluster.running(jobs.JobController):
        await asyncio.sleep(20)
        assert len(active(cluster)) == 1
        await asyncio.sleep(20)
        assert active(cluster) == []
    assert conditions(cluster)["FailureTarget"] == ("True", "DeadlineExceeded")


async def test_a_failure_policy_may_end_the_job_at_once(cluster: Cluster) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    cluster.api.put(JOBS, job(podFailurePolicy={"rules": [rule]}))
    async with cluster.running(jobs.JobController):
        (pod,) = cluster.pods()
        ended = {"name": "c", "state": {"terminated": {"exitCode": 42}}}
        cluster.api.put(PODS, {**pod, "status": {"phase": "Failed", "containerStatuses": [ended]}})
        await asyncio.sleep(2)
    assert conditions(cluster)["Failed"] == ("True", "PodFailurePolicy")


async def test_pods_of_a_job_that_is_gone_are_freed(cluster: Cluster) -> None:
    cluster.api.put(JOBS, job())
    async with cluster.running(jobs.JobController):
        (pod,) = cluster.pods()
        cluster.api.remove(JOBS, "j", "lab")
        await asyncio.sleep(2)
        (pod,) = cluster.pods()
        assert "finalizers" not in pod["metadata"]


@pytest.mark.parametrize(("text", "numbers"), [("", set()), ("0", {0}), ("0,2-4,7", {0, 2, 3, 4, 7})])
def test_indexes_are_written_as_ranges(text: str, numbers: set[int]) -> None:
    assert job_plan.parse_indexes(text) == numbers
    assert job_plan.format_indexes(numbers) == text


async def test_an_ended_job_goes_after_its_time(cluster: Cluster) -> None:
    ended = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    found = {**job(ttlSecondsAfterFinished=60), "status": {"conditions": [ended]}}
    cluster.api.put(JOBS, found)
    async with cluster.running(finished_jobs.FinishedJobs):
        await asyncio.sleep(50)
        assert cluster.api.get(JOBS, "j", "lab") is not None
        await asyncio.sleep(20)
        left = cluster.api.get(JOBS, "j", "lab")
        assert left is None or left["metadata"]["finalizers"] == ["foregroundDeletion"]


def cron_job(schedule: str = "* * * * *", **spec: Any) -> JsonObject:
    return {
        "metadata": {"name": "c", "namespace": "lab", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "schedule": schedule,
            "jobTemplate": {"metadata": {"labels": {"l": "m"}}, "spec": job()["spec"]},
            **spec,
        },
    }


async def test_a_cron_job_starts_a_job_at_its_minute(cluster: Cluster) -> None:
    cluster.api.put(CRON_JOBS, cron_job())
    async with cluster.running(cron_jobs.CronJobController):
        await asyncio.sleep(50)
        assert cluster.api.list(JOBS) == []
        await asyncio.sleep(20)
        (made,) = cluster.api.list(JOBS)
        assert (
            made["metadata"]["name"] == f"c-{int(datetime(2026, 1, 1, 0, 1, tzinfo=UTC).timestamp()) // 60}"
        )
        assert made["metadata"]["annotations"] == {
            "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-01T00:01:00Z"
        }
        status = cluster.get(CRON_JOBS, "c", "lab")["status"]
        assert status["lastScheduleTime"] == "2026-01-01T00:01:00Z"
        assert [entry["name"] for entry in status["active"]] == [made["metadata"]["name"]]


@pytest.mark.parametrize(("policy", "count"), [("Allow", 3), ("Forbid", 1), ("Replace", 1)])
async def test_running_jobs_are_treated_as_the_policy_says(cluster: Cluster, policy: str, count: int) -> None:
    cluster.api.put(CRON_JOBS, cron_job(concurrencyPolicy=policy))
    async with cluster.running(cron_jobs.CronJobController):
        await asyncio.sleep(190)
        assert len(cluster.api.list(JOBS)) == count


async def test_ended_jobs_are_kept_up_to_the_limit(cluster: Cluster) -> None:
    cluster.api.put(CRON_JOBS, cron_job(successfulJobsHistoryLimit=1))
    async with cluster.running(cron_jobs.CronJobController):
        for _ in range(3):
            await asyncio.sleep(61)
            for found in cluster.api.list(JOBS):
                moment = cluster.now().strftime("%Y-%m-%dT%H:%M:%SZ")
                ended = {"type": "Complete", "status": "True", "lastTransitionTime": moment}
                status = {"conditions": [ended], "startTime": moment, "completionTime": moment}
                cluster.api.put(JOBS, {**found, "status": status})
        await asyncio.sleep(5)
        assert len(cluster.api.list(JOBS)) == 1
    assert cluster.get(CRON_JOBS, "c", "lab")["status"]["lastSuccessfulTime"]


def test_times_follow_the_zone_and_missed_ones_are_made_up_for_once() -> None:
    now = datetime(2026, 1, 1, 3, 30, tzinfo=UTC)
    due, missed = last_due(cron_job("0 * * * *"), now)
    assert (due, missed) == (datetime(2026, 1, 1, 3, tzinfo=UTC), 3)
    due, _ = last_due(cron_job("30 22 * * *", timeZone="America/New_York"), now)
    assert due == now
    assert seconds_to_next(cron_job("@hourly"), now) == pytest.approx(1800.1)
    with pytest.raises(BadSchedule):
        last_due(cron_job("not a schedule"), now)


def test_a_question_mark_in_a_schedule_says_any() -> None:
    now = datetime(2026, 1, 1, 0, 2, 30, tzinfo=UTC)

    assert last_due(cron_job("*/1 * * * ?"), now) == (datetime(2026, 1, 1, 0, 2, tzinfo=UTC), 2)


def test_a_schedule_can_be_an_interval_from_the_last_time() -> None:
    now = datetime(2026, 1, 1, 3, 30, tzinfo=UTC)

    assert last_due(cron_job("@every 1h30m"), now) == (datetime(2026, 1, 1, 3, tzinfo=UTC), 2)
    assert seconds_to_next(cron_job("@every 90s"), now) == pytest.approx(90.1)
    with pytest.raises(BadSchedule):
        last_due(cron_job("@every tuesday"), now)

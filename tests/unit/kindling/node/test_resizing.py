"""Resizing pods in place: what is granted, what changes while the pod runs, and what survives the agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kindling.node.pods.allocations import Allocations, view, wanted
from kindling.node.pods.cgroup_limits import CgroupLimits, looser
from kindling.node.pods.pod_actions import compute_pod_actions
from kindling.node.pods.resizing import Held, Resizer, ResizeServices, needs_restart, obstacle
from kindling.node.pods.runtime_status import LocalState, PodRuntimeStatus
from kindling.node.pods.status_manager import status_patch
from kindling.node.runtime.interface import Container, ContainerState, RuntimeFailure, Sandbox
from kubecore.json import JsonObject

ALLOCATABLE = {"cpu": "4", "memory": "4Gi", "pods": "110"}


def pod(cpu: str, uid: str = "u", generation: int = 1, **container: Any) -> JsonObject:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts}
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": uid, "generation": generation},
        "spec": {"containers": [{"name": "c", "resources": resources, **container}]},
        "status": {"qosClass": "Guaranteed"},
    }


def running(name: str = "c") -> PodRuntimeStatus:
    container = Container("id", "s", name, 0, ContainerState.RUNNING, 1)
    return PodRuntimeStatus((Sandbox("s", "p", "ns", "u", 0, True, 1),), {name: (container,)})


def test_what_never_fits_is_infeasible_and_what_may_fit_later_is_deferred() -> None:
    assert obstacle(pod("4"), [], ALLOCATABLE) is None
    assert obstacle(pod("5"), [], ALLOCATABLE) == Held(
        "Infeasible", "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000"
    )
    assert obstacle(pod("3"), [pod("2", uid="other")], ALLOCATABLE) == Held(
        "Deferred", "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
    )
    pinned = obstacle(pod("2"), [], ALLOCATABLE, pinned=True)
    assert pinned is not None and pinned.reason == "Infeasible"


def test_the_policy_says_whether_a_change_takes_a_restart() -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    policy.append({"resourceName": "memory", "restartPolicy": "NotRequired"})
    container = pod("2", resizePolicy=policy)["spec"]["containers"][0]
    before = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    assert needs_restart(container, before)
    assert not needs_restart(container, {**container["resources"], "limits": {"cpu": "2", "memory": "9Gi"}})
    same = {"requests": {"cpu": "2000m", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    assert not needs_restart(container, same), "the same amount in other words"


def test_a_pod_is_seen_with_what_it_was_granted() -> None:
    small, large = pod("1"), pod("3")
    assert view(large, wanted(small))["spec"] == small["spec"]
    assert view(large, wanted(large)) is large


def test_grants_survive_the_agent_and_damage(tmp_path: Path) -> None:
    path = tmp_path / "grants.json"
    first = Allocations(path)
    first.grant(pod("1"))
    first.actuate("u", "c", {"limits": {"cpu": "1"}})
    again = Allocations(path)
    assert again.granted(pod("3")) == wanted(pod("1"))
    assert again.actuated("u") == {"c": {"limits": {"cpu": "1"}}}
    again.retain({"other"})
    assert Allocations(path).granted(pod("3")) == wanted(pod("3"))
    path.write_text("{")
    assert Allocations(path).granted(pod("3")) == wanted(pod("3"))


def test_while_a_pod_changes_both_sizes_fit() -> None:
    assert looser(CgroupLimits(1024, 100, 50), CgroupLimits(512, 300, 20)) == CgroupLimits(1024, 300, 50)
    assert looser(CgroupLimits(512, None, 50), CgroupLimits(512, 300, 20)).cpu_quota is None


@dataclass
class Node:
    """A node with 4 processors that records what is done."""

    path: Path
    others: list[JsonObject] = field(default_factory=list)
    done: list[Any] = field(default_factory=list)
    failure: str = ""
    held: str = ""
    """The limit of processors that running containers were held to last."""

    async def update_resources(self, container: str, resources: JsonObject) -> None:
        if self.failure:
            raise RuntimeFailure(self.failure)
        self.done.append((container, resources["cpu_quota"]))

    async def loosen(self, _before: JsonObject, _after: JsonObject) -> None:
        self.done.append("loosen")

    async def ensure(self, _pod: JsonObject) -> None:
        self.done.append("ensure")

    async def hold_running(self, pod: JsonObject, _observed: PodRuntimeStatus) -> None:
        self.held = pod["spec"]["containers"][0]["resources"]["limits"]["cpu"]

    def resizer(self) -> Resizer:
        this: Any = self
        return Resizer(
            ResizeServices(
                runtime=this,
                allocations=Allocations(self.path / "grants.json"),
                pod_cgroups=this,
                cpu_quotas=this,
                admitted=lambda: self.others,
                allocatable=lambda: ALLOCATABLE,
                record_event=lambda _pod, _kind, reason, text, _container: self.done.append((reason, text)),
                node_memory_bytes=1 << 32,
            )
        )


async def started(node: Node, **container: Any) -> Resizer:
    """A pod of one processor runs."""
    resizer = node.resizer()
    resizer.decide(pod("1", **container))
    resizer.starting(pod("1"), "c")
    assert await resizer.actuate(pod("1"), running()) == frozenset()
    assert node.done == []
    return resizer


def kinds(resizer: Resizer) -> list[tuple[str, str]]:
    return [(each["type"], each.get("reason", "")) for each in resizer.conditions("u")]


async def test_a_running_container_is_resized_in_place(tmp_path: Path) -> None:
    node = Node(tmp_path)
    resizer = await started(node)
    larger = pod("2", generation=2)
    resizer.decide(larger)
    assert kinds(resizer) == [("PodResizeInProgress", "")]
    assert await resizer.actuate(larger, running()) == frozenset()
    reason, text = node.done.pop(0)
    assert reason == "ResizeStarted" and text.startswith('Pod resize started: {"containers":[{"name":"c"')
    assert text.endswith('"generation":2}')
    assert node.done[:3] == ["loosen", ("id", 200_000), "ensure"]
    assert node.done[3][0] == "ResizeCompleted"
    assert kinds(resizer) == [] and resizer.actuated("u")["c"]["limits"]["cpu"] == "2"
    node.done.clear()
    await resizer.actuate(larger, running())
    assert node.done == []


async def test_a_restarted_agent_finishes_what_was_granted(tmp_path: Path) -> None:
    node = Node(tmp_path)
    resizer = await started(node)
    resizer.decide(pod("2"))
    again = node.resizer()
    await again.actuate(pod("2"), running())
    assert ("id", 200_000) in node.done
    assert node.held == "1", "what it runs with, until it is resized"


async def test_a_resize_that_does_not_fit_waits_for_room(tmp_path: Path) -> None:
    node = Node(tmp_path)
    resizer = await started(node)
    node.others = [pod("2", uid="other")]
    resizer.decide(pod("3"))
    resizer.decide(pod("3"))
    assert kinds(resizer) == [("PodResizePending", "Deferred")]
    assert [each[0] for each in node.done] == ["ResizeDeferred"], "told once"
    assert resizer.view(pod("3"))["spec"] == pod("1")["spec"]
    await resizer.actuate(pod("3"), running())
    node.others = []
    resizer.decide(pod("3"))
    assert kinds(resizer) == [("PodResizeInProgress", "")]
    resizer.decide(pod("9"))
    assert kinds(resizer)[0] == ("PodResizePending", "Infeasible")
    resizer.decide(pod("3"))
    assert ("PodResizePending", "Infeasible") not in kinds(resizer)


async def test_a_failure_is_told_and_tried_again(tmp_path: Path) -> None:
    node = Node(tmp_path)
    resizer = await started(node)
    resizer.decide(pod("2"))
    node.failure = "memory is in use"
    await resizer.actuate(pod("2"), running())
    assert resizer.conditions("u")[0]["message"] == "memory is in use"
    assert kinds(resizer) == [("PodResizeInProgress", "Error")]
    node.failure = ""
    await resizer.actuate(pod("2"), running())
    assert kinds(resizer) == []


async def test_a_container_that_wants_it_is_restarted(tmp_path: Path) -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    node = Node(tmp_path)
    resizer = await started(node, resizePolicy=policy)
    larger = pod("2", resizePolicy=policy)
    resizer.decide(larger)
    assert await resizer.actuate(larger, running()) == {"c"}
    actions = compute_pod_actions(larger, running(), LocalState(resized=frozenset({"c"})))
    assert [each.message for each in actions.kill] == ["Container c resize requires restart"]
    assert actions.start == ("c",)
    resizer.starting(larger, "c")
    assert await resizer.actuate(larger, running()) == frozenset()
    assert kinds(resizer) == [] and ("id", 200_000) not in node.done


def test_conditions_of_resizes_go_when_they_are_over() -> None:
    pending = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    assert status_patch({}, {"conditions": [pending]})["conditions"] == [pending]
    patch = status_patch({"conditions": [pending]}, {"conditions": []})
    assert patch["conditions"] == [{"$patch": "delete", "type": "PodResizePending"}]

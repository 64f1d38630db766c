"""What a pod's worker decides to do next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kindling.node.pods import identity
from kindling.node.pods.pod_actions import PodActions, SandboxAction, compute_pod_actions
from kindling.node.pods.runtime_status import LocalState, PodRuntimeStatus, ProbeResult, ProbeResults
from kindling.node.runtime.interface import Container, ContainerState, Sandbox

READY = Sandbox("s1", "p", "ns", "u", 0, True, 1, ips=("10.64.1.2",))
LOST = Sandbox("s1", "p", "ns", "u", 0, False, 1)
RUNNING, EXITED = ContainerState.RUNNING, ContainerState.EXITED


def pod(*names: str, init: tuple[Any, ...] = (), policy: str = "Always") -> dict[str, Any]:
    return {
        "spec": {
            "restartPolicy": policy,
            "initContainers": [{"name": item} if isinstance(item, str) else item for item in init],
            "containers": [{"name": name} for name in names],
        }
    }


def container(
    name: str, state: ContainerState = RUNNING, code: int = 0, sandbox: str = "s1", identifier: str = ""
) -> Container:
    return Container(identifier or name, sandbox, name, 0, state, 1, exit_code=code)


def observed(*containers: Container, sandbox: Sandbox | None = READY) -> PodRuntimeStatus:
    return PodRuntimeStatus((sandbox,) if sandbox else (), {item.name: (item,) for item in containers})


def actions(spec: dict[str, Any], seen: PodRuntimeStatus, **probe_results: ProbeResults) -> PodActions:
    return compute_pod_actions(spec, seen, LocalState(probe_results=probe_results))


def test_a_new_pod_gets_a_sandbox_first() -> None:
    assert actions(pod("a"), PodRuntimeStatus()) == PodActions(SandboxAction.CREATE, attempt=0)


def test_a_lost_sandbox_is_replaced_under_the_next_attempt() -> None:
    seen = observed(container("a", EXITED), sandbox=LOST)
    assert actions(pod("a"), seen) == PodActions(SandboxAction.CREATE, attempt=1)


def test_a_pod_that_has_run_and_never_restarts_is_not_given_another_sandbox() -> None:
    seen = observed(container("a", EXITED, 1), sandbox=LOST)
    assert actions(pod("a", policy="Never"), seen).sandbox is SandboxAction.KILL


def test_all_containers_start_together() -> None:
    assert actions(pod("a", "b"), observed()).start == ("a", "b")


def test_init_containers_run_one_after_the_other() -> None:
    spec = pod("a", init=("i", "j"))
    assert actions(spec, observed()).start == ("i",)
    assert actions(spec, observed(container("i"))).start == ()
    assert actions(spec, observed(container("i", EXITED))).start == ("j",)
    assert actions(spec, observed(container("i", EXITED), container("j", EXITED))).start == ("a",)


def test_a_failed_init_container_is_repeated_or_fails_the_pod() -> None:
    failed = observed(container("i", EXITED, 1))
    assert actions(pod("a", init=("i",)), failed).start == ("i",)
    assert actions(pod("a", init=("i",), policy="Never"), failed).sandbox is SandboxAction.KILL


def test_a_sidecar_only_has_to_start_before_what_follows() -> None:
    spec = pod("a", init=({"name": "s", "restartPolicy": "Always"},))
    assert actions(spec, observed()).start == ("s",)
    waiting = ProbeResults(startup=ProbeResult.UNKNOWN)
    assert actions(spec, observed(container("s")), s=waiting).start == ()
    assert actions(spec, observed(container("s"))).start == ("a",)


def test_containers_restart_by_policy() -> None:
    failed, done = observed(container("a", EXITED, 1)), observed(container("a", EXITED, 0))
    assert actions(pod("a"), done).start == ("a",)
    assert actions(pod("a", policy="OnFailure"), failed).start == ("a",)
    assert actions(pod("a", policy="OnFailure"), done).sandbox is SandboxAction.KILL
    assert actions(pod("a", policy="Never"), failed).sandbox is SandboxAction.KILL


def test_a_pod_goes_on_while_one_container_runs() -> None:
    seen = observed(container("a", EXITED), container("b"))
    assert actions(pod("a", "b", policy="Never"), seen) == PodActions()


def test_a_container_whose_liveness_probe_fails_is_killed() -> None:
    kills = actions(pod("a"), observed(container("a")), a=ProbeResults(liveness=ProbeResult.FAILURE)).kill
    assert [item.message for item in kills] == ["Container a failed liveness probe, will be restarted"]


def test_containers_of_an_earlier_sandbox_do_not_count_as_running() -> None:
    seen = observed(container("a", EXITED, 1, sandbox="s0"))
    assert actions(pod("a"), seen).start == ("a",)


def made_from(name: str, image: str, state: ContainerState = RUNNING) -> Container:
    annotations = {identity.ANNOTATION_HASH: identity.container_hash({"name": name, "image": image})}
    return replace(container(name, state), annotations=annotations)


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_a_container_of_another_image_is_replaced_whatever_the_policy(policy: str) -> None:
    spec = pod("a", policy=policy)
    spec["spec"]["containers"][0]["image"] = "new"
    found = actions(spec, observed(made_from("a", "old")))
    assert [each.message for each in found.kill] == ["Container a definition changed, will be restarted"]
    assert found.start == ("a",)
    assert actions(spec, observed(made_from("a", "new"))) == PodActions()
    assert actions(spec, observed(container("a"))) == PodActions(), "of an older agent"


def test_ephemeral_containers_run_once_and_hold_nothing_up() -> None:
    spec = pod("a", init=("i",))
    spec["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    assert actions(spec, observed()).start == ("debug", "i")
    ended = observed(container("i", EXITED), container("debug", EXITED, 1), container("a"))
    assert actions(spec, ended) == PodActions()
    done = pod("a", policy="Never")
    done["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    seen = observed(container("a", EXITED), container("debug"))
    assert actions(done, seen).sandbox is SandboxAction.KILL, "a debugger keeps no pod alive"

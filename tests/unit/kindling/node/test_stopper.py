"""Stopping pods: order, hooks, grace, and what is taken away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kindling.node.pods import identity, starter
from kindling.node.pods.runtime_status import PodRuntimeStatus
from kindling.node.pods.stopper import PodStopper
from kindling.node.runtime.interface import Container, ContainerState, ExecResult, RuntimeFailure, Sandbox

pytestmark = pytest.mark.looptime

SANDBOX = Sandbox("s1", "p", "ns", "u", 0, True, 1, ips=("10.64.1.2",))
HOOK = {"lifecycle": {"preStop": {"exec": {"command": ["bye"]}}}}
POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
    "spec": {
        "initContainers": [
            {"name": "first", "restartPolicy": "Always"},
            {"name": "second", "restartPolicy": "Always"},
        ],
        "containers": [{"name": "main"}, {"name": "hooked", **HOOK}],
    },
}


def observed(*names: str, state: ContainerState = ContainerState.RUNNING) -> PodRuntimeStatus:
    made = {name: (Container(name, "s1", name, 0, state, 1),) for name in names}
    return PodRuntimeStatus((SANDBOX,), made)


class Runtime:
    """Remembers what it was told to do; hooks take `hook_seconds`, containers `stop_seconds`."""

    def __init__(self, hook_seconds: float = 0, stop_seconds: float = 0, hook_exit: int = 0) -> None:
        self.done: list[str] = []
        self._hook_seconds, self._stop_seconds, self._hook_exit = hook_seconds, stop_seconds, hook_exit

    async def sandbox_status(self, _id: str) -> Sandbox:
        return SANDBOX

    async def exec_sync(self, id: str, _command: object, _seconds: int) -> ExecResult:
        await asyncio.sleep(self._hook_seconds)
        self.done.append(f"hook of {id}")
        return ExecResult(self._hook_exit, b"oh", b"")

    async def stop_container(self, id: str, seconds: int) -> None:
        await asyncio.sleep(self._stop_seconds)
        self.done.append(f"stop {id} in {seconds}")

    async def stop_sandbox(self, id: str) -> None:
        self.done.append(f"stop {id}")

    async def remove_container(self, id: str) -> None:
        self.done.append(f"remove {id}")

    async def remove_sandbox(self, id: str) -> None:
        self.done.append(f"remove {id}")


class Stopping:
    """A stopper and the events that it announced."""

    def __init__(self, runtime: Runtime) -> None:
        self.events: list[tuple[str, ...]] = []
        self.detached: list[str] = []
        typed: Any = runtime

        async def detach(sandbox: str) -> None:
            assert not any(done == f"stop {sandbox}" for done in runtime.done), "its namespace is still there"
            self.detached.append(sandbox)

        self.stopper = PodStopper(typed, lambda _pod, *event: self.events.append(event), detach)


async def test_sidecars_stop_after_the_others_in_reverse_order_and_the_sandbox_last() -> None:
    runtime = Runtime()
    stopping = Stopping(runtime)
    await stopping.stopper.stop_all(POD, observed("first", "second", "main"), 30, "Stopping container {}")
    assert stopping.detached == ["s1"]
    # Sidecars have what is left of the grace period, in whole seconds.
    stopped = [each.split(" in ")[0] for each in runtime.done]
    assert stopped == ["stop main", "stop second", "stop first", "stop s1"]
    assert [event[2] for event in stopping.events] == [
        "Stopping container main",
        "Stopping container second",
        "Stopping container first",
    ]


async def test_what_has_ended_is_not_stopped() -> None:
    runtime = Runtime()
    await Stopping(runtime).stopper.stop_all(POD, observed("main", state=ContainerState.EXITED), 30, "")
    assert runtime.done == ["stop s1"]


async def test_stop_without_grace_skips_the_hook() -> None:
    runtime = Runtime()
    await Stopping(runtime).stopper.stop_all(POD, observed("hooked"), 0, "")
    assert runtime.done == ["stop hooked in 0", "stop s1"]


async def test_a_hook_that_fails_is_told_and_the_container_stopped() -> None:
    runtime = Runtime(hook_exit=1)
    stopping = Stopping(runtime)
    await stopping.stopper.stop_container(POD, observed("hooked").containers["hooked"][0], 30)
    assert runtime.done == ["hook of hooked", "stop hooked in 30"]
    assert stopping.events == [("Warning", "FailedPreStopHook", "PreStopHook failed: oh", "hooked")]


async def test_a_hook_that_never_ends_costs_no_more_than_the_grace_period() -> None:
    runtime = Runtime(hook_seconds=3600)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await Stopping(runtime).stopper.stop_container(POD, observed("hooked").containers["hooked"][0], 20)
    assert loop.time() - begun == pytest.approx(20, abs=0.1)
    assert [each.split(" in ")[0] for each in runtime.done] == ["stop hooked"]


async def test_a_container_that_cannot_be_stopped_keeps_the_sandbox() -> None:
    class Stubborn(Runtime):
        async def stop_container(self, id: str, seconds: int) -> None:
            if id == "main":
                raise RuntimeFailure("it will not go", "UNKNOWN")
            await super().stop_container(id, seconds)

    runtime = Stubborn()
    with pytest.raises(RuntimeFailure, match="it will not go"):
        await Stopping(runtime).stopper.stop_all(POD, observed("main", "hooked"), 30, "")
    assert runtime.done == ["hook of hooked", "stop hooked in 30"]


async def test_everything_of_a_pod_is_removed_and_links_lead_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(identity, "CONTAINER_LOGS", tmp_path / "links")
    (tmp_path / "links").mkdir()
    logs = identity.log_directory(POD)
    (logs / "main").mkdir(parents=True)
    (logs / "main/0.log").write_text("x")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").write_text("x")
    (logs / "elsewhere").symlink_to(tmp_path / "kept")
    link = tmp_path / "links/p_ns_main-main.log"
    link.symlink_to(logs / "main/0.log")
    runtime = Runtime()
    await Stopping(runtime).stopper.remove_all(POD, observed("main"))
    assert runtime.done == ["remove main", "remove s1"]
    assert not logs.exists()
    assert not link.is_symlink()
    assert (tmp_path / "kept/file").exists()


async def test_a_pod_of_the_longest_name_is_linked_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's name has 255 bytes. What cannot be removed would be tried again for ever."""
    monkeypatch.setattr(identity, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(identity, "CONTAINER_LOGS", tmp_path / "links")
    (tmp_path / "links").mkdir()
    uid = "0d3ad4b8-6a3b-4f3c-9a58-6b4f0c0c9f11"
    for length in (190, 253):
        pod = {"metadata": {"name": "p" * length, "namespace": "n" * 63, "uid": uid}, "spec": POD["spec"]}
        logs = identity.log_directory(pod)
        assert logs.name.endswith(f"_{uid}")
        logs.mkdir(parents=True)
        container = "c" * 64
        starter._link_log(pod, "main", "main/0.log", container)
        (link,) = (tmp_path / "links").iterdir()
        assert link.readlink() == logs / "main/0.log"
        made = {"main": (Container(container, "s1", "main", 0, ContainerState.EXITED, 1),)}
        await Stopping(Runtime()).stopper.remove_all(pod, PodRuntimeStatus((SANDBOX,), made))
        assert not logs.exists()
        assert list((tmp_path / "links").iterdir()) == []

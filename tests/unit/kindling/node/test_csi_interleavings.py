"""CSI volumes whatever happens between any two steps: pods end, agents are killed, calls fail."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.kindling.node.simulated_csi_node import Node, a_node, steps


async def one_pod(node: Node, disturb: Callable[[], Any], at: int) -> None:
    node.add("a")
    await steps(at)
    await disturb()


async def a_second_pod(node: Node, disturb: Callable[[], Any], at: int) -> None:
    node.add("a")
    await node.settle()
    node.add("b")
    await steps(at)
    await disturb()


async def pods_that_end_at_once(node: Node, disturb: Callable[[], Any], at: int) -> None:
    node.add("a")
    node.add("b")
    await node.settle()
    await node.end("a")
    await node.end("b")
    await steps(at)
    await disturb()


async def one_comes_as_another_goes(node: Node, disturb: Callable[[], Any], at: int) -> None:
    node.add("a")
    await node.settle()
    await node.end("a")
    await steps(at)
    node.add("b")
    await steps(at // 2)
    await disturb()


async def a_volume_that_grows(node: Node, disturb: Callable[[], Any], at: int) -> None:
    node.add("a")
    await node.settle()
    node.grow()
    await steps(at)
    await disturb()


STORIES = [one_pod, a_second_pod, pods_that_end_at_once, one_comes_as_another_goes, a_volume_that_grows]


@pytest.mark.parametrize("failing", [0, 2])
@pytest.mark.parametrize("what", ["end a", "end b", "kill", "end and kill", "kill twice"])
@pytest.mark.parametrize("story", STORIES)
async def test_a_disturbance_at_any_step_neither_leaks_nor_takes_what_is_used(
    tmp_path: Path, story: Callable[..., Any], what: str, failing: int
) -> None:
    for at in range(0, 36, 2 + failing):
        async with a_node(tmp_path / str(at)) as make:
            node = make()
            node.driver.failing = failing

            async def disturb(node: Node = node, at: int = at) -> None:
                if what.startswith("end"):
                    await node.end("b" if what == "end b" else "a")
                    await steps(at % 7)
                if "kill" in what:
                    await node.kill_agent()
                if what == "kill twice":
                    await steps(at % 5)
                    await node.kill_agent()

            await story(node, disturb, at)
            await node.settle()
            node.check()
            for uid in list(node.pods):
                await node.end(uid)
            await node.settle()
            node.check()


class Killed(BaseException):
    """The agent was killed between two operations on files."""


@contextlib.contextmanager
def killed_at(number: int) -> Iterator[None]:
    """Raise `Killed` in place of the agent's `number`-th operation on files, and of all later ones."""
    left = number

    def watched(operation: Callable[..., Any]) -> Callable[..., Any]:
        def do(path: Path, *arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return operation(path, *arguments, **options)

        return do

    with pytest.MonkeyPatch.context() as patch:
        for name in ("mkdir", "rmdir", "unlink", "replace", "symlink_to"):
            patch.setattr(Path, name, watched(getattr(Path, name)))
        write = Path.write_bytes

        def write_half(path: Path, data: bytes) -> int:
            nonlocal left
            left -= 1
            if left < 0:
                write(path, data[: len(data) // 2])
                raise Killed
            return write(path, data)

        patch.setattr(Path, "write_bytes", write_half)
        yield


@pytest.mark.parametrize("story", STORIES)
async def test_an_agent_killed_between_any_two_operations_on_files_goes_on_where_it_was(
    tmp_path: Path, story: Callable[..., Any]
) -> None:
    async def nothing() -> None:
        return

    for number in range(30):
        async with a_node(tmp_path / str(number)) as make:
            node = make()
            with killed_at(number), contextlib.suppress(Killed):
                await story(node, nothing, 5)
                await node.settle()
            await node.kill_agent()
            await node.settle()
            node.check()
            for uid in list(node.pods):
                await node.end(uid)
            await node.settle()
            node.check()


EVENTS = st.tuples(
    st.sampled_from(["add", "end", "kill", "fail", "grow"]), st.sampled_from("abc"), st.integers(0, 25)
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(EVENTS, max_size=12))
def test_any_course_of_events_ends_with_exactly_what_pods_use(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, str, int]]
) -> None:
    async def course() -> None:
        async with a_node(tmp_path_factory.mktemp("node")) as make:
            node = make()
            for kind, uid, pause in events:
                if kind == "add":
                    node.add(uid, "w" if uid == "c" else "v")
                elif kind == "end":
                    await node.end(uid)
                elif kind == "fail":
                    node.driver.failing += 1
                elif kind == "grow":
                    node.grow()
                else:
                    await node.kill_agent()
                await steps(pause)
            await node.settle()
            node.check()

    asyncio.run(course())

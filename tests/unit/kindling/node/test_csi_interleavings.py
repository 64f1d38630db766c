"""CSI volumes whatever happens between any two steps: pods that end, agents that are killed, calls that fail.

The driver here is a process of its own: what it has begun it ends, whatever becomes of the agent. A file in
each place that it mounts stands for the data there, so that whoever removes below a mount is seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kindling.node.pods import identity
from kindling.node.volumes import csi_records, manager, mounts
from kindling.node.volumes.content import ContentProblem
from kindling.node.volumes.csi import CsiVolumes
from kindling.node.volumes.manager import VolumeManager
from kubecore import mountinfo
from kubecore.errors import StatusError

DRIVER = "d.example.com"


class Driver:
    """What a driver has staged and published, and what it was asked for that it must not be."""

    def __init__(self) -> None:
        self.staged: dict[str, str] = {}
        self.published: dict[str, str] = {}
        """Target -> volume."""
        self.wrong: list[str] = []
        self.calls: set[asyncio.Task[None]] = set()
        self.failing = 0
        """So many calls fail after they have done their work."""
        self._busy: dict[str, int] = {}

    @property
    def mounted(self) -> set[str]:
        return {*self.staged.values(), *self.published}

    async def serve(self, agent: int, method: str, values: dict[str, Any]) -> None:
        volume = values["volume_id"]
        if volume in self._busy:
            if self._busy[volume] == agent:
                self.wrong.append(f"{method} beside another call for {volume}")
            raise ContentProblem("rpc error: code = Aborted desc = an operation is pending")
        self._busy[volume] = agent
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            getattr(self, method)(volume, values)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            del self._busy[volume]
        if self.failing:
            self.failing -= 1
            raise ContentProblem("rpc error: code = Internal desc = too late to tell")

    def NodeStageVolume(self, volume: str, values: dict[str, Any]) -> None:
        place = values["staging_target_path"]
        self.staged[volume] = place
        _put_data(place)

    def NodePublishVolume(self, volume: str, values: dict[str, Any]) -> None:
        if self.staged.get(volume) != values["staging_target_path"]:
            self.wrong.append(f"{volume} published without being staged")
        target = values["target_path"]
        with contextlib.suppress(FileExistsError):
            os.mkdir(target)  # noqa: PTH102 - the agent's own way of doing it is watched
        _put_data(target)
        self.published[target] = volume

    def NodeUnpublishVolume(self, volume: str, values: dict[str, Any]) -> None:
        target = values["target_path"]
        if self.published.pop(target, None):
            self._take_data(target)
            os.rmdir(target)  # noqa: PTH106

    def NodeUnstageVolume(self, volume: str, values: dict[str, Any]) -> None:
        if volume in self.published.values():
            self.wrong.append(f"{volume} unstaged while it is published")
        if self.staged.pop(volume, None):
            self._take_data(values["staging_target_path"])

    def _take_data(self, place: str) -> None:
        try:
            os.unlink(f"{place}/data")  # noqa: PTH108
        except FileNotFoundError:
            self.wrong.append(f"the data in {place} was removed")


def _put_data(place: str) -> None:
    os.close(os.open(f"{place}/data", os.O_CREAT))


class Connection:
    """One agent's connection to the driver."""

    capabilities = frozenset({1})

    def __init__(self, driver: Driver, agent: int) -> None:
        self._driver, self._agent = driver, agent

    def get(self, _name: str) -> Connection:
        return self

    async def call(self, method: str, values: dict[str, Any]) -> None:
        call = asyncio.create_task(self._driver.serve(self._agent, method, values))
        self._driver.calls.add(call)
        await asyncio.shield(call)


_NO_CLIENT: Any = None


class Api:
    async def get(self, *_: object) -> Any:
        await asyncio.sleep(0)
        raise StatusError(404, "NotFound", "there is no such object")


class Node:
    """A node whose agent may be killed and started again; pods by uid, with the volume of each."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.pods: dict[str, str] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._agent = 0
        self.start_agent()

    def start_agent(self) -> None:
        self._agent += 1
        api: Any = Api()
        connection: Any = Connection(self.driver, self._agent)
        self._csi = CsiVolumes(api, connection, "node01")
        self._volumes = VolumeManager(_NO_CLIENT, {"csi": self._csi})
        for uid in sorted(self._volumes.uids() | set(self.pods)):
            self._work(uid)

    async def kill_agent(self) -> None:
        await self._cancel(*self._workers)
        await self._csi.close()
        self.start_agent()

    def add(self, uid: str, volume: str = "v") -> None:
        if uid not in self.pods and uid not in self._workers:
            self.pods[uid] = volume
            self._work(uid)

    async def end(self, uid: str) -> None:
        if self.pods.pop(uid, None):
            await self._cancel(uid)
            self._work(uid)

    async def settle(self) -> None:
        async with asyncio.timeout(20):
            await asyncio.gather(*self._workers.values())
            await asyncio.gather(*self.driver.calls, return_exceptions=True)

    def _work(self, uid: str) -> None:
        self._workers[uid] = asyncio.create_task(self._until_done(uid))

    async def _cancel(self, *uids: str) -> None:
        tasks = [self._workers.pop(uid) for uid in uids]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_done(self, uid: str) -> None:
        """What a pod's worker does with volumes, again after each failure."""
        while True:
            try:
                if uid in self.pods:
                    await self._csi.publish(pod_of(uid), volume_of(self.pods[uid]), read_only=False)
                else:
                    await self._volumes.clean_up(uid)
                return
            except (ContentProblem, OSError):
                await asyncio.sleep(0)

    def check(self) -> None:
        """Everything that a pod uses is there, and nothing else."""
        assert self.driver.wrong == []
        used = {str(csi_records.publish_path(uid, v, block=False)): v for uid, v in self.pods.items()}
        assert self.driver.published == used
        assert set(self.driver.staged) == set(used.values())
        for place in self.driver.mounted:
            assert (Path(place) / "data").exists(), f"the data in {place} was removed"
        assert self._volumes.uids() == set(self.pods)
        places = (identity.ROOT / "plugins/kubernetes.io/csi").glob("*/*/*")
        assert {str(path) for path in places} == set(self.driver.staged.values())


def pod_of(uid: str) -> dict[str, Any]:
    return {"metadata": {"name": uid, "namespace": "ns", "uid": uid}, "spec": {"containers": []}}


def volume_of(name: str) -> dict[str, Any]:
    source = {"driver": DRIVER, "volumeHandle": name}
    return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "csi": source}}


@contextlib.contextmanager
def a_node(directory: Path) -> Iterator[Callable[[], Node]]:
    """Makes a node whose paths lie in `directory` and whose mounts are the driver's."""
    nodes: list[Node] = []

    def below(directory: Path) -> list[Path]:
        places = [Path(place) for node in nodes for place in node.driver.mounted]
        return [place for place in places if place.is_relative_to(directory)]

    async def inline(_name: str, work: Callable[[Callable[[], None]], None]) -> None:
        await asyncio.sleep(0)
        work(lambda: None)

    def make() -> Node:
        nodes.append(Node())
        return nodes[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity, "ROOT", directory)
        patch.setattr(mountinfo, "mount_points_below", below)
        patch.setattr(mounts, "unmount", lambda target: None)
        patch.setattr(manager, "in_thread", inline)
        yield make


async def steps(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


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


STORIES = [one_pod, a_second_pod, pods_that_end_at_once, one_comes_as_another_goes]


@pytest.mark.parametrize("failing", [0, 2])
@pytest.mark.parametrize("what", ["end a", "end b", "kill", "end and kill", "kill twice"])
@pytest.mark.parametrize("story", STORIES)
async def test_a_disturbance_at_any_step_neither_leaks_nor_takes_what_is_used(
    tmp_path: Path, story: Callable[..., Any], what: str, failing: int
) -> None:
    for at in range(0, 36, 1 + failing):
        with a_node(tmp_path / str(at)) as make:
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
        with a_node(tmp_path / str(number)) as make:
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
    st.sampled_from(["add", "end", "kill", "fail"]), st.sampled_from("abc"), st.integers(0, 25)
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(EVENTS, max_size=12))
def test_any_course_of_events_ends_with_exactly_what_pods_use(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, str, int]]
) -> None:
    async def course() -> None:
        with a_node(tmp_path_factory.mktemp("node")) as make:
            node = make()
            for kind, uid, pause in events:
                if kind == "add":
                    node.add(uid, "w" if uid == "c" else "v")
                elif kind == "end":
                    await node.end(uid)
                elif kind == "fail":
                    node.driver.failing += 1
                else:
                    await node.kill_agent()
                await steps(pause)
            await node.settle()
            node.check()

    asyncio.run(course())


async def test_two_volumes_of_one_handle_are_unstaged_once(tmp_path: Path) -> None:
    """Staged places are the handle's: another volume object of the same handle uses the same one."""
    with a_node(tmp_path) as make:
        node = make()
        csi = node._csi
        second = volume_of("v")
        second["metadata"] = {"name": "other"}
        await csi.publish(pod_of("a"), volume_of("v"), read_only=False)
        await csi.publish(pod_of("b"), second, read_only=False)
        await csi.unpublish("a")
        assert set(node.driver.staged) == {"v"}
        await csi.unpublish("b")
        assert (node.driver.staged, node.driver.wrong) == ({}, [])


async def test_a_volume_that_cannot_be_undone_does_not_keep_others(tmp_path: Path) -> None:
    with a_node(tmp_path) as make:
        node = make()
        csi = node._csi
        await csi.publish(pod_of("a"), volume_of("v"), read_only=False)
        await csi.publish(pod_of("a"), volume_of("w"), read_only=False)
        node.driver.failing = 1
        with pytest.raises(OSError, match=r"volume v: rpc error: .* too late"):
            await csi.unpublish("a")
        assert set(node.driver.staged) == {"v"}
        await csi.unpublish("a")
        assert node.driver.staged == {}


async def test_a_record_that_cannot_be_read_is_named_and_nothing_is_removed(tmp_path: Path) -> None:
    with a_node(tmp_path) as make:
        node = make()
        await node._csi.publish(pod_of("a"), volume_of("v"), read_only=False)
        record = csi_records.read(csi_records.files_of_pod("a")[0])
        record.file.write_bytes(b"{")
        with pytest.raises(OSError, match=r"vol_data\.json is not a valid record of a CSI volume"):
            await node._volumes.clean_up("a")
        assert (record.target / "data").exists()


async def test_a_damaged_record_keeps_no_other_volume_from_being_undone(tmp_path: Path) -> None:
    with a_node(tmp_path) as make:
        node = make()
        csi = node._csi
        for uid, name in (("a", "v"), ("a", "w"), ("b", "v"), ("b", "x")):
            await csi.publish(pod_of(uid), volume_of(name), read_only=False)
        damaged = next(file for file in csi_records.files_of_pod("a") if file.parent.name == "v")
        damaged.write_bytes(b"[]")

        with pytest.raises(
            OSError, match=r"^volume v: .*vol_data\.json is not a valid record of a CSI volume"
        ):
            await csi.unpublish("a")
        await csi.unpublish("b")
        # Whether pod a still uses v is not known: it stays staged.
        assert set(node.driver.staged) == {"v"}

"""CSI volumes whatever happens between any two steps: pods that end, agents that are killed, calls that fail.

The driver here is a process of its own: what it has begun it ends, whatever becomes of the agent. A file in
each place that it mounts stands for the data there, so that whoever removes below a mount is seen. It must
have its volumes attached: a controller beside it attaches what pods use, and detaches by the rules of the
real one what the node does not report in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kindling.controllers import attachment_rules as rules
from kindling.node.pods import identity
from kindling.node.volumes import csi_attachments, csi_records, manager, mounts
from kindling.node.volumes.content import ContentProblem
from kindling.node.volumes.csi import CsiServices, CsiVolumes
from kindling.node.volumes.csi_attachments import Attachments
from kindling.node.volumes.csi_growth import Growth
from kindling.node.volumes.csi_registry import CallProblem
from kindling.node.volumes.csi_requests import CsiRequests
from kindling.node.volumes.csi_upkeep import Tending, Upkeep
from kindling.node.volumes.manager import VolumeManager
from kindling.scheduler.csi import CsiVolume
from kindling.scheduler.volume_rules import size_of
from kubecore import mountinfo
from kubecore.errors import StatusError
from kubecore.patch.mergepatch import apply_merge_patch
from kubecore.resources import NODES

DRIVER = "d.example.com"


class Driver:
    """What a driver has staged and published, and what it was asked for that it must not be."""

    def __init__(self) -> None:
        self.staged: dict[str, str] = {}
        self.published: dict[str, str] = {}
        """Target -> volume."""
        self.wrong: list[str] = []
        self.calls: set[asyncio.Task[None]] = set()
        self.attached: set[str] = set()
        self.sizes: dict[str, int] = {}
        """The sizes of file systems."""
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
            raise CallProblem("rpc error: code = Aborted desc = an operation is pending", "ABORTED")
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
            raise CallProblem("rpc error: code = Internal desc = too late to tell", "INTERNAL")

    def NodeStageVolume(self, volume: str, values: dict[str, Any]) -> None:
        place = values["staging_target_path"]
        if volume not in self.attached or values["publish_context"] != {"device": volume}:
            self.wrong.append(f"{volume} staged without being attached")
        self.staged[volume] = place
        self.sizes.setdefault(volume, 1)
        _put_data(place)

    def NodePublishVolume(self, volume: str, values: dict[str, Any]) -> None:
        if self.staged.get(volume) != values["staging_target_path"]:
            self.wrong.append(f"{volume} published without being staged")
        target = values["target_path"]
        with contextlib.suppress(FileExistsError):
            os.mkdir(target)  # noqa: PTH102 - the agent's own way of doing it is watched
        _put_data(target)
        self.published[target] = volume

    def NodeExpandVolume(self, volume: str, values: dict[str, Any]) -> None:
        if self.published.get(values["volume_path"]) != volume:
            self.wrong.append(f"{volume} grown where it is not published")
        self.sizes[volume] = max(self.sizes[volume], values["capacity_range"]["required_bytes"])

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

    def detach(self, volume: str) -> None:
        if volume in self.staged or volume in self._busy:
            self.wrong.append(f"{volume} detached while it is staged")
        self.attached.discard(volume)

    def _take_data(self, place: str) -> None:
        try:
            os.unlink(f"{place}/data")  # noqa: PTH108
        except FileNotFoundError:
            self.wrong.append(f"the data in {place} was removed")


def _put_data(place: str) -> None:
    os.close(os.open(f"{place}/data", os.O_CREAT))


class Connection:
    """One agent's connection to the driver."""

    capabilities = frozenset({1, 3})

    def __init__(self, driver: Driver, agent: int) -> None:
        self._driver, self._agent = driver, agent

    def get(self, _name: str) -> Connection:
        return self

    async def call(self, method: str, values: dict[str, Any]) -> None:
        call = asyncio.create_task(self._driver.serve(self._agent, method, values))
        self._driver.calls.add(call)
        call.add_done_callback(self._driver.calls.discard)
        await asyncio.shield(call)


_NO_CLIENT: Any = None


class Api:
    """An API server with a Node, claims and volumes (both by the name of the volume)."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.node: dict[str, Any] = {"metadata": {"name": "node01"}, "status": {}}
        self.claims: dict[str, dict[str, Any]] = {}
        self.size = 1

    def claim(self, name: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "ns", "uid": f"claim-{name}", "resourceVersion": "1"}
        status = {"phase": "Bound", "capacity": {"storage": "1"}}
        new = {"metadata": metadata, "spec": {"volumeName": name}, "status": status}
        return self.claims.setdefault(name, new)

    def volume(self, name: str) -> dict[str, Any]:
        return volume_of(name, self.size)

    def grow(self) -> None:
        """What a resizer does: the volumes are larger, their file systems are to follow."""
        self.size += 1
        for name in self.claims:
            self._write_claim(
                name, {"status": {"allocatedResourceStatuses": {"storage": "NodeResizePending"}}}
            )

    async def get(self, resource: Any, name: str, *_: object) -> Any:
        await asyncio.sleep(0)
        if resource.plural == "nodes":
            return self.node
        if resource.plural == "persistentvolumeclaims":
            return self.claim(name)
        if resource.plural == "persistentvolumes":
            return self.volume(name)
        for volume in self._driver.attached:
            if CsiVolume(DRIVER, volume).attachment_name("node01") == name:
                return {
                    "metadata": {},
                    "status": {"attached": True, "attachmentMetadata": {"device": volume}},
                }
        raise StatusError(404, "NotFound", "there is no such object")

    async def patch(self, resource: Any, name: str, body: Any, *_: object, **__: object) -> Any:
        await asyncio.sleep(0)
        if resource.plural == "nodes":
            self.node = apply_merge_patch(self.node, body)
            return self.node
        self._write_claim(name, body)
        return self.claims[name]

    def _write_claim(self, name: str, body: dict[str, Any]) -> None:
        metadata = self.claim(name)["metadata"]
        if (
            body.get("metadata", {}).get("resourceVersion", metadata["resourceVersion"])
            != (metadata["resourceVersion"])
        ):
            raise StatusError(409, "Conflict", "the claim has changed")
        changed = apply_merge_patch(self.claims[name], body)
        version = str(int(metadata["resourceVersion"]) + 1)
        self.claims[name] = {**changed, "metadata": {**metadata, "resourceVersion": version}}


class Node:
    """A node whose agent may be killed and started again; pods by uid, with the volume of each."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.api = Api(self.driver)
        self.pods: dict[str, str] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._agent = 0
        self.start_agent()
        self._controller = asyncio.create_task(self._attach_and_detach())

    def start_agent(self) -> None:
        self._agent += 1
        api: Any = self.api
        connection: Any = Connection(self.driver, self._agent)
        requests, attachments = CsiRequests(api), Attachments(api, "node01")
        growth = Growth(api, requests, "node01", lambda *_: None)
        self._csi = CsiVolumes(CsiServices(connection, requests, attachments, growth, "node01"))
        self._upkeep = Upkeep(Tending(api, self._csi, requests, self._pod_objects, lambda *_: None))
        self._volumes = VolumeManager(_NO_CLIENT, {"csi": self._csi})
        self._reports = asyncio.create_task(attachments.run())
        for uid in sorted(self._volumes.uids() | set(self.pods)):
            self._work(uid)

    def _pod_objects(self) -> list[dict[str, Any]]:
        return [pod_of(uid, volume) for uid, volume in self.pods.items()]

    async def kill_agent(self) -> None:
        await self._cancel(*self._workers)
        await self._upkeep.close()
        await self._csi.close()
        await stop(self._reports)
        self.start_agent()

    async def leave(self) -> None:
        """Stop everything."""
        await self._cancel(*self._workers)
        await self._upkeep.close()
        await stop(self._reports, self._controller)

    def grow(self) -> None:
        """The volumes are larger, and the agent looks after them."""
        self.api.grow()
        self._upkeep.look()

    async def publish(self, uid: str, volume: str, name: str = "") -> None:
        api = self.api
        persistent = api.volume(volume)
        persistent["metadata"] = {"name": name or volume}
        await self._csi.publish(pod_of(uid, volume), "data", api.claim(volume), persistent, read_only=False)

    async def _attach_and_detach(self) -> None:
        """The controller: attaches first and lists then; unlists first, looks, and detaches then."""
        api, attached = self.api, self.driver.attached
        while True:
            await asyncio.sleep(0)
            wanted = set(self.pods.values())
            for volume in sorted(wanted | attached):
                csi, name = CsiVolume(DRIVER, volume), CsiVolume(DRIVER, volume).attachment_name("node01")
                if volume in wanted:
                    attached.add(volume)
                    await asyncio.sleep(0)
                    await self._list(rules.attached_with(api.node, name, csi))
                elif not rules.is_in_use(api.node, name):
                    await self._list(rules.attached_with(api.node, name, None))
                    if not rules.is_in_use(api.node, name):
                        await asyncio.sleep(0)
                        self.driver.detach(volume)

    async def _list(self, listed: list[dict[str, Any]]) -> None:
        if listed != self.api.node["status"].get("volumesAttached", []):
            await self.api.patch(NODES, "node01", {"status": {"volumesAttached": listed}})

    def add(self, uid: str, volume: str = "v") -> None:
        if uid not in self.pods and uid not in self._workers:
            self.pods[uid] = volume
            self._work(uid)

    async def end(self, uid: str) -> None:
        if self.pods.pop(uid, None):
            await self._cancel(uid)
            self._work(uid)

    async def settle(self) -> None:
        """Wait until everybody has done what is to be done."""
        for _ in range(2000):
            if all(worker.done() for worker in self._workers.values()) and not self.driver.calls:
                await asyncio.gather(*self._workers.values())
                await self._upkeep.settle()
                if self._is_settled():
                    return
                self._upkeep.look()
            await asyncio.sleep(0)
        state = (self.pods, self.api.node, self.api.claims, vars(self.driver), self._workers)
        pytest.fail(f"nothing moves any more: {state}")

    def _is_settled(self) -> bool:
        """Whether all others have seen what the agent did."""
        used, driver = set(self.pods.values()), self.driver
        sizes = {size_of(self.api.claim(volume)) for volume in used} | {driver.sizes[v] for v in used}
        names = [CsiVolume(DRIVER, volume).unique_name for volume in sorted(used)]
        in_use = self.api.node["status"].get("volumesInUse", [])
        return driver.attached == used and in_use == names and sizes <= {self.api.size}

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
                    await self.publish(uid, self.pods[uid])
                else:
                    await self._volumes.clean_up(uid)
                return
            except (ContentProblem, StatusError, OSError):
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


def pod_of(uid: str, volume: str) -> dict[str, Any]:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": volume}}]
    metadata = {"name": uid, "namespace": "ns", "uid": uid}
    return {"metadata": metadata, "spec": {"containers": [], "volumes": volumes}}


def volume_of(name: str, size: int) -> dict[str, Any]:
    source = {"driver": DRIVER, "volumeHandle": name}
    spec = {"accessModes": ["ReadWriteOnce"], "csi": source, "capacity": {"storage": str(size)}}
    return {"metadata": {"name": name}, "spec": spec}


async def stop(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def a_node(directory: Path) -> AsyncIterator[Callable[[], Node]]:
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
        patch.setattr(os, "fsync", lambda _: None)  # another test shows that records are synced
        patch.setattr(csi_attachments, "_FIRST_LOOK_SECONDS", 0.0)
        yield make
        for node in nodes:
            await node.leave()
            assert node.driver.wrong == []


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


async def test_two_volumes_of_one_handle_are_unstaged_once(tmp_path: Path) -> None:
    """Staged places are the handle's: another volume object of the same handle uses the same one."""
    async with a_node(tmp_path) as make:
        node = make()
        csi = node._csi
        node.pods = {"a": "v", "b": "v"}
        await node.publish("a", "v")
        await node.publish("b", "v", "other")
        await csi.unpublish("a")
        assert set(node.driver.staged) == {"v"}
        await csi.unpublish("b")
        assert (node.driver.staged, node.driver.wrong) == ({}, [])


async def test_a_volume_that_cannot_be_undone_does_not_keep_others(tmp_path: Path) -> None:
    async with a_node(tmp_path) as make:
        node = make()
        csi = node._csi
        node.pods = {"a": "v", "b": "w"}
        await node.publish("a", "v")
        await node.publish("a", "w")
        node.driver.failing = 1
        with pytest.raises(OSError, match=r"volume v: rpc error: .* too late"):
            await csi.unpublish("a")
        assert set(node.driver.staged) == {"v"}
        await csi.unpublish("a")
        assert node.driver.staged == {}


async def test_a_record_that_cannot_be_read_is_named_and_nothing_is_removed(tmp_path: Path) -> None:
    async with a_node(tmp_path) as make:
        node = make()
        node.pods = {"a": "v"}
        await node.publish("a", "v")
        record = csi_records.read(csi_records.files_of_pod("a")[0])
        record.file.write_bytes(b"{")
        with pytest.raises(OSError, match=r"vol_data\.json is not a valid record of a CSI volume"):
            await node._volumes.clean_up("a")
        assert (record.target / "data").exists()


async def test_a_damaged_record_keeps_no_other_volume_from_being_undone(tmp_path: Path) -> None:
    async with a_node(tmp_path) as make:
        node = make()
        csi = node._csi
        node.pods = {"a": "v", "b": "w", "c": "x"}
        for uid, name in (("a", "v"), ("a", "w"), ("b", "v"), ("b", "x")):
            await node.publish(uid, name)
        damaged = next(file for file in csi_records.files_of_pod("a") if file.parent.name == "v")
        damaged.write_bytes(b"[]")

        with pytest.raises(
            OSError, match=r"^volume v: .*vol_data\.json is not a valid record of a CSI volume"
        ):
            await csi.unpublish("a")
        await csi.unpublish("b")
        # Whether pod a still uses v is not known: it stays staged.
        assert set(node.driver.staged) == {"v"}

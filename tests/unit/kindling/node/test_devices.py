"""Device plugins over real sockets: what they offer, who gets what, and plugins that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from kindling.node.devices.manager import DeviceManager
from kindling.node.pods.container import DeviceGrant
from kindling.node.volumes.content import ContentProblem
from kubecore.wire import load_interface

RESOURCE = "example.com/thing"
INTERFACE = load_interface("deviceplugin-v1beta1")
CONTAINER = {"name": "c", "resources": {"limits": {RESOURCE: "1"}, "requests": {RESOURCE: "1"}}}


def pod(uid: str) -> dict[str, Any]:
    return {"metadata": {"uid": uid}, "spec": {"containers": [CONTAINER]}}


class Plugin:
    """A plugin with two devices; `answers` is how many containers it answers for."""

    answers = 1

    async def list_and_watch(self, _request: Any, _context: Any) -> AsyncIterator[Any]:
        devices = [{"ID": name, "health": "Healthy"} for name in ("a", "b")]
        yield INTERFACE.message("ListAndWatchResponse", {"devices": devices})
        await asyncio.Event().wait()

    async def allocate(self, request: Any, _context: Any) -> Any:
        ids = ",".join(request.container_requests[0].devices_ids)
        answer = {"envs": {"IDS": ids}}
        return INTERFACE.message("AllocateResponse", {"container_responses": [answer] * self.answers})

    async def serve(self, stack: AsyncExitStack, path: Path) -> None:
        server = grpc.aio.server()
        methods = {"ListAndWatch": self.list_and_watch, "Allocate": self.allocate}
        server.add_generic_rpc_handlers((INTERFACE.handler("DevicePlugin", methods),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        stack.push_async_callback(server.stop, 0)


async def register(directory: Path, **fields: str) -> None:
    request = {"version": "v1beta1", "endpoint": "p.sock", "resource_name": RESOURCE, **fields}
    options = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.insecure_channel(f"unix:{directory}/kubelet.sock", options=options) as channel:
        stub = INTERFACE.stub(channel, "Registration")
        await stub["Register"](INTERFACE.message("RegisterRequest", request), timeout=5)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as made:
        yield made


async def started(stack: AsyncExitStack, directory: Path) -> tuple[DeviceManager, asyncio.Event]:
    changed = asyncio.Event()
    devices = DeviceManager(directory, changed.set)
    await devices.start()
    stack.push_async_callback(devices.close)
    return devices, changed


async def test_devices_are_given_once_and_the_same_again(tmp_path: Path, stack: AsyncExitStack) -> None:
    devices, changed = await started(stack, tmp_path)
    await Plugin().serve(stack, tmp_path / "p.sock")
    await register(tmp_path)
    await asyncio.wait_for(changed.wait(), 5)
    assert devices.capacity() == {RESOURCE: (2, 2)}
    assert (await devices.allocate(pod("1"), CONTAINER)).envs == {"IDS": "a"}
    assert (await devices.allocate(pod("2"), CONTAINER)).envs == {"IDS": "b"}
    assert (await devices.allocate(pod("1"), CONTAINER)).envs == {"IDS": "a"}
    with pytest.raises(ContentProblem, match="Requested: 1, Available: 0"):
        await devices.allocate(pod("3"), CONTAINER)
    again = DeviceManager(tmp_path, changed.set)
    again.retain({"2"})
    devices.release("1")
    assert (await devices.allocate(pod("3"), CONTAINER)).envs == {"IDS": "a"}


async def test_after_a_restart_a_resource_counts_nothing_until_its_plugin_registers(
    tmp_path: Path, stack: AsyncExitStack
) -> None:
    before, changed = await started(stack, tmp_path)
    await Plugin().serve(stack, tmp_path / "p.sock")
    await register(tmp_path)
    await asyncio.wait_for(changed.wait(), 5)
    await before.close()
    again, changed = await started(stack, tmp_path)
    assert again.capacity() == {RESOURCE: (0, 0)}
    with pytest.raises(ContentProblem, match=r"plugin of example\.com/thing has not registered yet"):
        await again.allocate(pod("1"), CONTAINER)
    await register(tmp_path)
    await asyncio.wait_for(changed.wait(), 5)
    assert again.capacity() == {RESOURCE: (2, 2)}


async def test_nothing_is_allocated_of_a_resource_that_no_plugin_offered(tmp_path: Path) -> None:
    devices = DeviceManager(tmp_path, lambda: None)
    assert await devices.allocate(pod("1"), CONTAINER) == DeviceGrant()


@pytest.mark.parametrize("answers", [0, 2])
async def test_a_plugin_that_answers_for_another_number_of_containers_is_a_problem_of_the_pod(
    tmp_path: Path, stack: AsyncExitStack, answers: int
) -> None:
    devices, changed = await started(stack, tmp_path)
    plugin = Plugin()
    plugin.answers = answers
    await plugin.serve(stack, tmp_path / "p.sock")
    await register(tmp_path)
    await asyncio.wait_for(changed.wait(), 5)
    with pytest.raises(ContentProblem, match=f"answered for {answers}"):
        await devices.allocate(pod("1"), CONTAINER)


@pytest.mark.parametrize(
    "fields",
    [
        {"version": "v1alpha"},
        {"resource_name": ""},
        {"resource_name": "cpu"},
        {"resource_name": "kubernetes.io/thing"},
        {"resource_name": "requests.example.com/thing"},
        {"resource_name": "example.com/not a name"},
        {"resource_name": "example.com/" + "x" * 64},
        {"endpoint": "../p.sock"},
        {"endpoint": "/run/other.sock"},
        {"endpoint": ""},
        {"endpoint": ".."},
    ],
)
async def test_registrations_that_would_spoil_the_nodes_status_or_lead_elsewhere_are_refused(
    tmp_path: Path, stack: AsyncExitStack, fields: dict[str, str]
) -> None:
    devices, _ = await started(stack, tmp_path)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await register(tmp_path, **fields)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert devices.capacity() == {}


@pytest.mark.parametrize("content", [b"", b'{"uid":', b'["a"]', b'{"uid":{"c":{"example.com/thing":1}}}'])
def test_damaged_allocations_are_dropped_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    (tmp_path / "kindling_allocations.json").write_bytes(content)
    DeviceManager(tmp_path, lambda: None).retain(set())
    (message,) = caplog.messages
    assert str(tmp_path / "kindling_allocations.json") in message
    assert "delete the pods that use devices" in message


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]"])
def test_damaged_names_of_resources_are_dropped_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    (tmp_path / "kindling_resources.json").write_bytes(content)
    assert DeviceManager(tmp_path, lambda: None).capacity() == {}
    assert ["restart the plugins" in message for message in caplog.messages] == [True]


def test_the_log_says_nothing_of_files_that_are_not_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    DeviceManager(tmp_path, lambda: None)
    assert caplog.messages == []


async def test_devices_that_cannot_be_recorded_are_not_given(tmp_path: Path, stack: AsyncExitStack) -> None:
    devices, changed = await started(stack, tmp_path)
    await Plugin().serve(stack, tmp_path / "p.sock")
    await register(tmp_path)
    await asyncio.wait_for(changed.wait(), 5)
    obstacle = tmp_path / "kindling_allocations.new"
    obstacle.mkdir()
    for _ in range(2):
        with pytest.raises(IsADirectoryError):
            await devices.allocate(pod("1"), CONTAINER)
    obstacle.rmdir()
    assert (await devices.allocate(pod("1"), CONTAINER)).envs == {"IDS": "a"}
    assert b'"1"' in (tmp_path / "kindling_allocations.json").read_bytes()


async def test_a_plugin_whose_name_cannot_be_recorded_may_register_again(
    tmp_path: Path, stack: AsyncExitStack
) -> None:
    _, changed = await started(stack, tmp_path)
    await Plugin().serve(stack, tmp_path / "p.sock")
    obstacle = tmp_path / "kindling_resources.new"
    obstacle.mkdir()
    with pytest.raises(grpc.aio.AioRpcError):
        await register(tmp_path)
    obstacle.rmdir()
    await register(tmp_path)
    await asyncio.wait_for(changed.wait(), 5)
    assert (tmp_path / "kindling_resources.json").read_bytes() == f'["{RESOURCE}"]'.encode()

"""What virt-handler answers on its console server, with everything below it replaced."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp import web
from tests.support.web import serve_app

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.consoles.server import CLIENT_NAME, ConsoleServer
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.thaws import Thaws

BASE = "/v1/namespaces/ns/virtualmachineinstances/vm"
PICTURE = b"\x89PNG\r\n\x1a\n..."


class Hypervisor:
    """Notes what is asked of it."""

    is_open = True
    agent_connected = True
    refuses_mounts = False

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def screenshot(self, name: str) -> tuple[str, bytes]:
        self.asked.append(("screenshot", name))
        return "image/png", PICTURE

    async def guest_info(self, name: str) -> dict[str, Any]:
        return {"hostname": "h", "os.id": "debian"}

    async def agent_command(self, name: str, command: str, timeout_seconds: int) -> str:
        commands = [{"name": "guest-ping", "enabled": True}, {"name": "guest-exec", "enabled": False}]
        return json.dumps({"return": {"version": "7.2", "supported_commands": commands}})

    async def agent_mounts(self, name: str) -> str:
        if self.refuses_mounts:
            raise HypervisorError("agent", "the command guest-get-fsinfo has been disabled")
        return json.dumps({"return": [{"name": "vda1", "disk": [{"bus-type": "virtio"}]}]})


class Paths:
    def __init__(self, private: Path) -> None:
        self.private = private


class Machine:
    name = "ns_vm"
    uid = "u"

    def __init__(self, private: Path) -> None:
        self.hypervisor = Hypervisor()
        self.agent = self
        self.paths = Paths(private)
        self.frozen = False
        self.asked: list[str] = []
        self.failures: list[str] = []
        """Calls whose answer is lost, each once."""

    async def is_frozen(self) -> bool:
        return self.frozen

    async def freeze(self) -> None:
        self._do("freeze")
        self.frozen = True

    async def thaw(self) -> None:
        self._do("thaw")
        self.frozen = False

    def _do(self, operation: str) -> None:
        self.asked.append(operation)
        if operation in self.failures:
            self.failures.remove(operation)
            raise HypervisorError(operation, "the answer was lost")


class Events:
    """Keeps the reasons and messages of what was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    def send(self, _vmi: VirtualMachineInstance, _kind: str, reason: str, message: str) -> None:
        self.sent.append((reason, message))


class Controller:
    """Knows one instance."""

    def __init__(self, private: Path) -> None:
        self.events = Events()
        self.machine = Machine(private)
        self.machines = {"u": self.machine}

    def machine_of(self, namespace: str, name: str) -> Machine | None:
        return self.machine if (namespace, name) == ("ns", "vm") else None

    def instance(self, namespace: str, name: str) -> VirtualMachineInstance | None:
        if (namespace, name) == ("ns", "unfit"):
            return decode(VirtualMachineInstance, {"spec": {"hostname": 7}})
        return VirtualMachineInstance() if (namespace, name) == ("ns", "vm") else None


class Served:
    """The console server's answers, and the hypervisor behind it."""

    def __init__(self, url: str, session: aiohttp.ClientSession, controller: Controller) -> None:
        self._url, self._session = url, session
        self.machine, self.hypervisor = controller.machine, controller.machine.hypervisor
        self.events = controller.events.sent

    def connect(self, path: str) -> AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse]:
        return self._session.ws_connect(self._url + path, protocols=["plain.kubevirt.io"])

    async def ask(self, method: str, path: str, body: str = "") -> tuple[int, str, bytes]:
        async with self._session.request(method, self._url + path, data=body or None) as answer:
            return answer.status, answer.content_type, await answer.read()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A console server, without the check of certificates; what it plans is in the folder ``thaws``."""
    controller: Any = Controller(tmp_path)
    thaws = Thaws(tmp_path / "thaws", controller)
    app = ConsoleServer(controller, thaws).application()
    app.middlewares.clear()
    async with serve_app(app) as port, aiohttp.ClientSession() as session:
        yield Served(f"http://127.0.0.1:{port}", session, controller)
    await thaws.close()


async def test_a_screenshot_is_the_picture_that_the_hypervisor_takes(served: Served) -> None:
    assert await served.ask("GET", f"{BASE}/vnc/screenshot") == (200, "image/png", PICTURE)
    assert served.hypervisor.asked == [("screenshot", "ns_vm")]


async def test_what_the_agent_may_not_do_lacks_the_word_enabled(served: Served) -> None:
    _, _, body = await served.ask("GET", f"{BASE}/guestosinfo")
    told = json.loads(body)
    assert (told["hostname"], told["os"], told["guestAgentVersion"]) == ("h", {"id": "debian"}, "7.2")
    assert told["supportedCommands"] == [{"name": "guest-ping", "enabled": True}, {"name": "guest-exec"}]


@pytest.mark.feature("CTL-09")
async def test_file_systems_are_told_as_the_agent_knows_them(served: Served) -> None:
    _, _, listed = await served.ask("GET", f"{BASE}/filesystemlist")
    _, _, about = await served.ask("GET", f"{BASE}/guestosinfo")
    (mount,) = json.loads(listed)["items"]
    assert (mount["diskName"], mount["disk"]) == ("vda1", [{"busType": "virtio"}])
    assert json.loads(about)["fsInfo"]["disks"] == [mount]


async def test_an_agent_that_tells_no_file_systems_is_described_without(served: Served) -> None:
    served.hypervisor.refuses_mounts = True
    status, _, about = await served.ask("GET", f"{BASE}/guestosinfo")
    assert (status, json.loads(about)["fsInfo"]) == (200, {"disks": []})


@pytest.mark.parametrize("length", ["5m0s", "0s"])
async def test_a_freeze_is_told_its_length_as_a_duration(served: Served, length: str) -> None:
    status, _, _ = await served.ask("PUT", f"{BASE}/freeze", f'{{"unfreezeTimeout":"{length}"}}')
    assert (status, served.machine.asked) == (202, ["freeze"])
    assert (await served.ask("PUT", f"{BASE}/unfreeze"))[0] == 202


async def test_the_end_of_a_freeze_is_planned_until_it_has_ended(served: Served, tmp_path: Path) -> None:
    planned = tmp_path / "thaws/u"
    served.machine.failures = ["freeze", "thaw"]
    status, _, text = await served.ask("PUT", f"{BASE}/freeze", '{"unfreezeTimeout":"5m"}')
    assert (status, text.startswith(b"server error. command Freeze failed: ")) == (500, True)
    assert planned.exists(), "an answer that was lost says nothing about the freeze"
    assert (await served.ask("PUT", f"{BASE}/unfreeze"))[0] == 500
    assert planned.exists()
    assert (await served.ask("PUT", f"{BASE}/unfreeze"))[0] == 202
    assert not planned.exists()


@pytest.mark.feature("SNP-05")
async def test_a_freeze_that_fails_has_an_event(served: Served) -> None:
    await served.ask("PUT", f"{BASE}/freeze", '{"unfreezeTimeout":"5m"}')
    assert not served.events
    await served.ask("PUT", f"{BASE}/unfreeze")
    served.machine.failures = ["freeze"]
    await served.ask("PUT", f"{BASE}/freeze", '{"unfreezeTimeout":"5m"}')
    ((reason, text),) = served.events
    assert reason == "FreezeError"
    assert text.startswith("Failed to freeze VMI: server error. command Freeze failed: ")


async def test_a_freeze_without_an_end_forgets_that_of_an_earlier_one(served: Served, tmp_path: Path) -> None:
    await served.ask("PUT", f"{BASE}/freeze", '{"unfreezeTimeout":"5m"}')
    served.machine.frozen = False  # by the guest itself
    await served.ask("PUT", f"{BASE}/freeze", '{"unfreezeTimeout":"0s"}')
    assert not (tmp_path / "thaws/u").exists()


async def test_a_second_freeze_succeeds_and_changes_nothing(served: Served, tmp_path: Path) -> None:
    await served.ask("PUT", f"{BASE}/freeze", '{"unfreezeTimeout":"5m"}')
    planned = (tmp_path / "thaws/u").read_text()
    assert (await served.ask("PUT", f"{BASE}/freeze", '{"unfreezeTimeout":"0s"}'))[0] == 202
    assert (served.machine.asked, (tmp_path / "thaws/u").read_text()) == (["freeze"], planned)


async def test_a_freeze_whose_end_cannot_be_planned_does_not_begin(served: Served, tmp_path: Path) -> None:
    (tmp_path / "thaws").write_text("no folder")
    status, _, text = await served.ask("PUT", f"{BASE}/freeze", '{"unfreezeTimeout":"5m"}')
    assert (status, served.machine.asked) == (500, [])
    assert text.startswith(b"the end of the freeze cannot be planned on this node")


@pytest.mark.parametrize(
    "body", ["", "{}", "[]", '{"unfreezeTimeout":"soon"}', '{"unfreezeTimeout":5}', "[" * 100_000]
)
async def test_a_freeze_without_a_length_does_not_begin(served: Served, body: str) -> None:
    assert (await served.ask("PUT", f"{BASE}/freeze", body))[0] == 400
    assert served.machine.asked == []


async def test_each_usb_device_has_a_socket_of_its_own_until_all_are_in_use(
    served: Served, tmp_path: Path
) -> None:
    (tmp_path / "u").mkdir()
    used: list[str] = []

    @asynccontextmanager
    async def guest(name: str) -> AsyncIterator[None]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            used.append(name)
            await reader.read()
            writer.close()

        async with await asyncio.start_unix_server(serve, tmp_path / "u" / name):
            yield

    async with AsyncExitStack() as stack:
        for slot in range(4):
            await stack.enter_async_context(guest(f"virt-usbredir-{slot}"))
        for _ in range(4):
            await stack.enter_async_context(served.connect(f"{BASE}/usbredir"))
        status, _, text = await served.ask("GET", f"{BASE}/usbredir")
        assert (status, text) == (503, b"All USB devices are in use.")
    assert used == [f"virt-usbredir-{slot}" for slot in range(4)]


async def test_an_instance_that_cannot_be_read_is_told_with_its_field(served: Served) -> None:
    status, _, text = await served.ask("PUT", BASE.replace("/vm", "/unfit") + "/pause")
    assert (status, served.hypervisor.asked) == (500, [])
    assert b"has to be corrected first" in text and b"spec.hostname" in text


async def test_instances_of_other_nodes_are_not_found(served: Served) -> None:
    assert (await served.ask("PUT", BASE.replace("/vm", "/other") + "/pause"))[0] == 404


async def test_virt_api_has_as_many_connections_as_its_users_have_consoles() -> None:
    server = ConsoleServer(Mock(), Mock())
    (guard,) = server.application().middlewares

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response()

    async def ask(name: str, address: str) -> None:
        request = Mock(remote=address)
        request.transport.get_extra_info.return_value = {"subject": ((("commonName", name),),)}
        await cast(Any, guard)(request, handler)

    await ask(CLIENT_NAME, "10.0.0.1")
    with pytest.raises(web.HTTPForbidden):
        await ask("somebody else", "10.0.0.2")
    assert all(server.connections.admit("10.0.0.1") for _ in range(1000))
    assert not all(server.connections.admit("10.0.0.2") for _ in range(1000))

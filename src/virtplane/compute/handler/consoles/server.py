"""The console server on port 8186, which virt-api calls. Mutual TLS, one client name only."""

from __future__ import annotations

import json
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from kubecore.connections import Connections
from kubecore.json import JsonObject
from kubecore.objects.structs import UnfitDocument
from virtplane.api.durations import parse_duration
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.devices import usb_redirection_sockets
from virtplane.compute.handler.consoles import streams
from virtplane.compute.handler.consoles.sessions import Sessions
from virtplane.compute.handler.consoles.turns import Turns
from virtplane.compute.handler.controller import InstanceController
from virtplane.compute.handler.decisions import has_acpi
from virtplane.compute.handler.libvirtd import agentanswers
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor
from virtplane.compute.handler.machine import Machine
from virtplane.compute.handler.settings import HandlerSettings
from virtplane.compute.handler.thaws import Thaws

CLIENT_NAME = "kubevirt.io:system:client:virt-handler"
_PREFIX = "/v1/namespaces/{namespace}/virtualmachineinstances/{name}"

_PICTURES = ("image/png", "image/x-portable-pixmap")
_UNKNOWN = "application/octet-stream"
_CHUNK = 65536
_PICTURES_AT_ONCE = 8

Handler = Callable[[Machine, VirtualMachineInstance, web.Request], Awaitable[web.StreamResponse]]


def server_tls(settings: HandlerSettings, authorities: str) -> ssl.SSLContext:
    """A TLS context that requires client certificates of the installation's authority. Raises OSError,
    ssl.SSLError.
    """
    folder = settings.certificate_directory / "servercertificates"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    context.load_verify_locations(cadata=authorities)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


class ConsoleServer:
    """Routes of virt-handler (see the table in ``application``)."""

    def __init__(self, controller: InstanceController, thaws: Thaws) -> None:
        self._controller = controller
        self._thaws = thaws
        self._sessions = Sessions()
        self._pictures = Turns(_PICTURES_AT_ONCE)
        self.connections = Connections()

    def application(self) -> web.Application:
        """The web application."""
        app = web.Application(middlewares=[self._only_virt_api])
        routes: tuple[tuple[str, str, Handler], ...] = (
            ("GET", "console", self._console),
            ("GET", "vnc", self._vnc),
            ("GET", "vnc/screenshot", self._screenshot),
            ("GET", "usbredir", self._usb_redirection),
            ("GET", "guestosinfo", self._guest_info),
            ("GET", "userlist", self._users),
            ("GET", "filesystemlist", self._filesystems),
            ("PUT", "pause", self._pause),
            ("PUT", "unpause", self._unpause),
            ("PUT", "reset", self._reset),
            ("PUT", "softreboot", self._soft_reboot),
            ("PUT", "freeze", self._freeze),
            ("PUT", "unfreeze", self._unfreeze),
        )
        for method, action, handler in routes:
            app.router.add_route(method, f"{_PREFIX}/{action}", self._on_machine(handler))
        return app

    @web.middleware
    async def _only_virt_api(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse other clients than virt-api: the authority also signs certificates of other components."""
        certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
        subject = (certificate or {}).get("subject", ())
        names = [value for part in subject for key, value in part if key == "commonName"]
        if CLIENT_NAME not in names:
            raise web.HTTPForbidden(text="this client may not connect")
        if request.remote:
            self.connections.trust(request.remote)
        return await handler(request)

    def _on_machine(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            namespace, name = request.match_info["namespace"], request.match_info["name"]
            try:
                machine = self._controller.machine_of(namespace, name)
                vmi = self._controller.instance(namespace, name)
            except UnfitDocument as error:
                text = f"the instance has to be corrected first: {error}"
                raise web.HTTPInternalServerError(text=text) from error
            if machine is None or vmi is None:
                raise web.HTTPNotFound(text=f"VirtualMachineInstance {namespace}/{name} is not on this node")
            try:
                return await handler(machine, vmi, request)
            except HypervisorError as error:
                raise web.HTTPInternalServerError(text=str(error)) from error

        return handle

    async def _console(
        self, machine: Machine, _vmi: VirtualMachineInstance, request: web.Request
    ) -> web.StreamResponse:
        return await self._stream(machine, request, "virt-serial0")

    async def _vnc(
        self, machine: Machine, _vmi: VirtualMachineInstance, request: web.Request
    ) -> web.StreamResponse:
        is_open = self._sessions.is_open((machine.uid, "virt-vnc"))
        if is_open and request.query.get("preserveSession") == "true":
            raise web.HTTPServiceUnavailable(text="Active VNC connection. Request denied.")
        return await self._stream(machine, request, "virt-vnc")

    async def _screenshot(
        self, machine: Machine, vmi: VirtualMachineInstance, request: web.Request
    ) -> web.StreamResponse:
        """A picture is in memory until it is sent, and a launcher makes it as large as it likes."""
        async with self._pictures.take(vmi.metadata.namespace):
            kind, picture = await _hypervisor(machine).screenshot(machine.name)
            response = web.StreamResponse()
            response.content_type = kind if kind in _PICTURES else _UNKNOWN
            response.content_length = len(picture)
            await response.prepare(request)
            for begin in range(0, len(picture), _CHUNK):
                await response.write(memoryview(picture)[begin : begin + _CHUNK])
            await response.write_eof()
            return response

    async def _usb_redirection(
        self, machine: Machine, _vmi: VirtualMachineInstance, request: web.Request
    ) -> web.StreamResponse:
        """Each device has its own socket; a second client is refused instead of taking over."""
        for name in usb_redirection_sockets():
            if not self._sessions.is_open((machine.uid, name)):
                return await self._stream(machine, request, name)
        raise web.HTTPServiceUnavailable(text="All USB devices are in use.")

    async def _stream(self, machine: Machine, request: web.Request, name: str) -> web.StreamResponse:
        async with self._sessions.take((machine.uid, name)) as ending:
            return await streams.carry(request, machine.paths.private, f"{machine.uid}/{name}", ending)

    async def _pause(
        self, machine: Machine, _vmi: VirtualMachineInstance, _request: web.Request
    ) -> web.StreamResponse:
        with _command("Pause"):
            await _hypervisor(machine).suspend(machine.name)
        return web.Response(status=202)

    async def _unpause(
        self, machine: Machine, _vmi: VirtualMachineInstance, _request: web.Request
    ) -> web.StreamResponse:
        with _command("Unpause"):
            await _hypervisor(machine).resume(machine.name)
        return web.Response(status=202)

    async def _reset(
        self, machine: Machine, _vmi: VirtualMachineInstance, _request: web.Request
    ) -> web.StreamResponse:
        with _command("Reset"):
            await _hypervisor(machine).reset(machine.name)
        return web.Response(status=202)

    async def _soft_reboot(
        self, machine: Machine, vmi: VirtualMachineInstance, _request: web.Request
    ) -> web.StreamResponse:
        hypervisor = _hypervisor(machine)
        if not hypervisor.agent_connected and not has_acpi(vmi):
            text = "VMI neither have the agent connected nor the ACPI feature enabled"
            raise web.HTTPBadRequest(text=text)
        with _command("SoftReboot"):
            await hypervisor.reboot(machine.name, by_agent=hypervisor.agent_connected)
        return web.Response(status=202)

    async def _freeze(
        self, machine: Machine, vmi: VirtualMachineInstance, request: web.Request
    ) -> web.StreamResponse:
        seconds = _unfreeze_seconds(await request.read())
        _hypervisor(machine)
        with self._freezing(vmi):
            if await machine.agent.is_frozen():
                # The freeze that goes on ends when it was said to.
                return web.Response(status=202)
        if seconds == 0:
            self._thaws.forget(machine.uid)
        else:
            # The end is planned before the freeze, so that a freeze whose answer is lost ends, too.
            try:
                self._thaws.plan(machine.uid, seconds)
            except OSError as error:
                text = f"the end of the freeze cannot be planned on this node: {error.strerror}"
                raise web.HTTPInternalServerError(text=text) from error
        with self._freezing(vmi):
            await machine.agent.freeze()
        return web.Response(status=202)

    @contextmanager
    def _freezing(self, vmi: VirtualMachineInstance) -> Iterator[None]:
        """Tell of a failure in an event, too: who waits for a snapshot does not see the answer."""
        try:
            with _command("Freeze"):
                yield
        except web.HTTPInternalServerError as error:
            text = f"Failed to freeze VMI: {error.text}"
            self._controller.events.send(vmi, "Warning", "FreezeError", text)
            raise

    async def _unfreeze(
        self, machine: Machine, _vmi: VirtualMachineInstance, _request: web.Request
    ) -> web.StreamResponse:
        _hypervisor(machine)
        with _command("Unfreeze"):
            await machine.agent.thaw()
        self._thaws.forget(machine.uid)
        return web.Response(status=202)

    async def _guest_info(
        self, machine: Machine, _vmi: VirtualMachineInstance, _request: web.Request
    ) -> web.StreamResponse:
        hypervisor = _hypervisor(machine)
        info = await hypervisor.guest_info(machine.name)
        answer = await hypervisor.agent_command(machine.name, '{"execute":"guest-info"}', 5)
        version, commands = agentanswers.version_and_commands(answer)
        try:
            mounted = agentanswers.filesystems(await hypervisor.agent_mounts(machine.name))
        except HypervisorError:
            mounted = []  # an agent may be set to refuse single commands
        return web.json_response(agentanswers.agent_info(info, mounted, version, commands))

    async def _users(
        self, machine: Machine, _vmi: VirtualMachineInstance, _request: web.Request
    ) -> web.StreamResponse:
        info = await _hypervisor(machine).guest_info(machine.name)
        return web.json_response(_list("VirtualMachineInstanceGuestOSUserList", agentanswers.users(info)))

    async def _filesystems(
        self, machine: Machine, _vmi: VirtualMachineInstance, _request: web.Request
    ) -> web.StreamResponse:
        mounted = agentanswers.filesystems(await _hypervisor(machine).agent_mounts(machine.name))
        return web.json_response(_list("VirtualMachineInstanceFileSystemList", mounted))


def _list(kind: str, items: list[JsonObject]) -> JsonObject:
    return {"apiVersion": "subresources.kubevirt.io/v1", "kind": kind, "metadata": {}, "items": items}


def _hypervisor(machine: Machine) -> Hypervisor:
    if machine.hypervisor is None or not machine.hypervisor.is_open:
        raise web.HTTPServiceUnavailable(text=f"the hypervisor of {machine.name} does not answer")
    return machine.hypervisor


@contextmanager
def _command(name: str) -> Iterator[None]:
    """Tell a failure in KubeVirt's words, by which its clients recognize a command."""
    try:
        yield
    except HypervisorError as error:
        text = f'server error. command {name} failed: "{error}"'
        raise web.HTTPInternalServerError(text=text) from error


def _unfreeze_seconds(body: bytes) -> float:
    """After how many seconds a freeze ends by itself; 0 if it does not. Raises web.HTTPBadRequest."""
    try:
        options = json.loads(body)
        return parse_duration(options["unfreezeTimeout"]).total_seconds()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise web.HTTPBadRequest(text=f"unfreezeTimeout is missing or not a duration: {error}") from error

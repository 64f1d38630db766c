"""Device plugins: ``devices.kubevirt.io/kvm``, ``…/tun`` and ``…/vhost-net`` as schedulable resources.

Each plugin serves the kubelet's DevicePlugin interface on a socket of its own and registers it. When the
kubelet restarts it deletes the sockets in the directory and creates its own again; the plugin detects that
and registers again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import grpc

from kubecore.json import JsonObject
from kubecore.wire import Interface, Message, load_interface

logger = logging.getLogger(__name__)

_KUBELET_SOCKET = "kubelet.sock"
_VERSION = "v1beta1"
UNITS = 1000
"""How many guests may hold a device at once, where nobody says otherwise; the device itself has no limit."""

_BACK_OFF_SECONDS = (1.0, 2.0, 5.0, 10.0)
_CHECK_SECONDS = 1.0
_OPTIONS = [("grpc.default_authority", "localhost")]


class Offer(Protocol):
    """What one plugin offers to pods."""

    @property
    def name(self) -> str:
        """The plugin's, among those of this node."""

    @property
    def resource(self) -> str:
        """The resource's name in pods and nodes."""

    def units(self) -> Mapping[str, bool]:
        """The units by ID, with whether they can be used now. Looked at again and again."""

    def allocation(self, ids: Sequence[str]) -> JsonObject:
        """What a container with these units gets: a ContainerAllocateResponse."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device node that containers may request, many at once; `guests` tells how many of them."""

    name: str
    path: str
    guests: Callable[[], int] = lambda: UNITS

    @property
    def resource(self) -> str:
        """The resource's name in pods and nodes."""
        return f"devices.kubevirt.io/{self.name}"

    def units(self) -> Mapping[str, bool]:
        """The same node many times."""
        numbers = range(max(0, self.guests()))
        return dict.fromkeys((f"{self.name}{number}" for number in numbers), Path(self.path).exists())

    def allocation(self, ids: Sequence[str]) -> JsonObject:
        """The node, however many units a container has."""
        return {"devices": [device_spec(self.path)]} if ids else {}


def device_spec(path: str) -> JsonObject:
    """A device node of this node, in the container's place of the same name."""
    return {"container_path": path, "host_path": path, "permissions": "mrw"}


class DevicePlugin:
    """Serves one device. ``run`` until cancelled; `ready` is set once it is registered."""

    def __init__(self, device: Offer, folder: Path) -> None:
        self.device = device
        self.ready = asyncio.Event()
        self._folder = folder
        self._socket = folder / f"kubevirt-{device.name}.sock"
        self._wire: Interface = load_interface("deviceplugin-v1beta1")
        self._closing = asyncio.Event()

    async def run(self) -> None:
        """Serve and register, again after every restart of the kubelet or failure."""
        failures = 0
        while True:
            try:
                await self._serve_once()
                failures = 0
            except (OSError, grpc.aio.AioRpcError) as error:
                delay = _BACK_OFF_SECONDS[min(failures, len(_BACK_OFF_SECONDS) - 1)]
                failures += 1
                logger.info(
                    "A device plugin could not register with the kubelet; trying again",
                    extra={"device": self.device.name, "err": str(error)},
                )
                await asyncio.sleep(delay)

    async def _serve_once(self) -> None:
        self._socket.unlink(missing_ok=True)
        self._closing = asyncio.Event()
        server = grpc.aio.server()
        implementations = {
            "GetDevicePluginOptions": self._options,
            "ListAndWatch": self._list_and_watch,
            "Allocate": self._allocate,
            "PreStartContainer": self._pre_start,
            "GetPreferredAllocation": self._preferred,
        }
        server.add_generic_rpc_handlers((self._wire.handler("DevicePlugin", implementations),))
        try:
            server.add_insecure_port(f"unix://{self._socket}")
        except RuntimeError as error:
            # gRPC's error whatever the reason, such as a folder that the kubelet has not made yet.
            raise OSError(f"cannot listen on {self._socket}: {error}") from error
        await server.start()
        try:
            await self._register()
            self.ready.set()
            await self._until_kubelet_restarts()
        finally:
            self.ready.clear()
            self._closing.set()
            await server.stop(grace=0.2)

    async def _register(self) -> None:
        async with grpc.aio.insecure_channel(f"unix://{self._folder / _KUBELET_SOCKET}", _OPTIONS) as channel:
            request = self._wire.message(
                "RegisterRequest",
                {"version": _VERSION, "endpoint": self._socket.name, "resource_name": self.device.resource},
            )
            await self._wire.stub(channel, "Registration")["Register"](request, timeout=5)

    async def _until_kubelet_restarts(self) -> None:
        """Wait until the kubelet's socket was replaced or ours removed; polls, since there is no event for
        either.
        """
        kubelet, own = _identity(self._folder / _KUBELET_SOCKET), _identity(self._socket)
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            now = _identity(self._folder / _KUBELET_SOCKET)
            if (now is not None and now != kubelet) or own is None or _identity(self._socket) != own:
                return

    async def _options(self, _request: Message, _context: object) -> Message:
        return self._wire.message("DevicePluginOptions")

    async def _list_and_watch(self, _request: Message, _context: object) -> AsyncIterator[Message]:
        told: Mapping[str, bool] | None = None
        while not self._closing.is_set():
            units = self.device.units()
            if units != told:
                told = units
                yield self._devices(units)
            try:
                async with asyncio.timeout(_CHECK_SECONDS * 5):
                    await self._closing.wait()
            except TimeoutError:
                continue

    def _devices(self, units: Mapping[str, bool]) -> Message:
        devices = [{"ID": name, "health": "Healthy" if fit else "Unhealthy"} for name, fit in units.items()]
        return self._wire.message("ListAndWatchResponse", {"devices": devices})

    async def _allocate(self, request: Message, _context: object) -> Message:
        responses = [self.device.allocation(list(asked.devices_ids)) for asked in request.container_requests]
        return self._wire.message("AllocateResponse", {"container_responses": responses})

    async def _pre_start(self, _request: Message, _context: object) -> Message:
        return self._wire.message("PreStartContainerResponse")

    async def _preferred(self, _request: Message, _context: object) -> Message:
        return self._wire.message("PreferredAllocationResponse")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_ctime_ns


def devices(*, kvm: bool, guests: Callable[[], int]) -> Sequence[Device]:
    """The devices of this node, for so many guests; KVM only if the probe showed that it runs them."""
    offered = [Device("tun", "/dev/net/tun", guests)]
    if Path("/dev/vhost-net").exists():
        offered.append(Device("vhost-net", "/dev/vhost-net", guests))
    if kvm:
        offered.append(Device("kvm", "/dev/kvm", guests))
    return offered

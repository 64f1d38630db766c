"""The connection to a CSI driver."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from kubecore.wire import Message, load_interface, unix
from kubecore.wire.csi import names

logger = logging.getLogger(__name__)

Values = Mapping[str, Any]
"""A message as dicts, lists and scalars."""

_PROBE_SECONDS = 1.0
_IN_PROGRESS = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "ABORTED"})
_SERVICE = "PluginCapability.Service.Type"
_CONTROLLER = "ControllerServiceCapability.RPC.Type"
_GROUP_CONTROLLER = "GroupControllerServiceCapability.RPC.Type"
_NODE = "NodeServiceCapability.RPC.Type"
_MAX_NAME = 63


class CallError(Exception):
    """The driver refused or did not answer a call. `code` is Python's name of it (``NOT_FOUND``)."""

    def __init__(self, method: str, code: str, text: str) -> None:
        super().__init__(text)
        self.method = method
        self.code = code

    @property
    def is_final(self) -> bool:
        """Whether what was asked for has not happened and is not under way."""
        return self.code not in _IN_PROGRESS

    @property
    def is_final_or_full(self) -> bool:
        """As `is_final`, for calls of which a driver that lacks resources may still be working on one."""
        return self.is_final and self.code != "RESOURCE_EXHAUSTED"


class UnfitDriver(Exception):
    """The driver answers nonsense, or has changed into another one."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the driver is and what it can do: names of capabilities as the CSI specification has them."""

    name: str
    plugin: frozenset[str]
    controller: frozenset[str]
    group_controller: frozenset[str] = frozenset()

    @property
    def takes_groups(self) -> bool:
        """Whether it takes snapshots of several volumes at one moment."""
        return "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT" in self.group_controller

    @property
    def tells_pods_apart(self) -> bool:
        """Whether it tells volumes of one pod from volumes of one node."""
        return "SINGLE_NODE_MULTI_WRITER" in self.controller


class Driver(Protocol):
    """What parts need of a driver."""

    @property
    def identity(self) -> Identity: ...

    async def call(self, service: str, method: str, values: Values, timeout_seconds: float) -> Message:
        """Call ``service.method``. Raises CallError."""
        ...


class SocketDriver:
    """A driver behind a unix socket. Create it with `connect`."""

    def __init__(self, address: str) -> None:
        self._interface = load_interface("csi-v1")
        self._channel = unix.channel_to(address.removeprefix("unix://"))
        self._stubs: dict[str, Mapping[str, Callable[..., Awaitable[Any]]]] = {
            service: self._interface.stub(self._channel, service)
            for service in ("Identity", "Controller", "GroupController", "Node")
        }
        self._identity = Identity("", frozenset(), frozenset())

    @property
    def identity(self) -> Identity:
        """Who the driver is, since `meet`."""
        return self._identity

    async def call(self, service: str, method: str, values: Values, timeout_seconds: float) -> Message:
        """Call ``service.method``. Raises CallError."""
        try:
            request = self._interface.methods[service][method].request(**values)
        except (ValueError, TypeError) as error:
            # Parameters and secrets may hold what is no text; such a request is never sent.
            raise CallError(method, "INVALID_ARGUMENT", f"{method} cannot be asked for: {error}") from error
        try:
            return await unix.call(self._stubs[service][method], request, timeout_seconds)
        except unix.CallFailed as error:
            raise CallError(method, error.code, str(error)) from error

    async def wait_ready(self) -> None:
        """Probe the driver until it says that it is ready."""
        failures = 0
        while True:
            try:
                answer = await self.call("Identity", "Probe", {}, _PROBE_SECONDS)
                if not answer.HasField("ready") or answer.ready.value:
                    return
                problem = "it is not ready"
            except CallError as error:
                problem = str(error)
                if error.is_final:
                    # Anything but silence: the driver is there and says that something is wrong with it.
                    logger.warning("the CSI driver is not healthy, asking again: %s", error)
            if failures % 30 == 0:
                logger.info("waiting for the CSI driver: %s", problem)
            failures += 1
            await asyncio.sleep(_PROBE_SECONDS if failures > 10 else 0.1)

    async def meet(self, timeout_seconds: float) -> Identity:
        """Ask who the driver is and what it can do. Raises CallError, UnfitDriver."""
        self._identity = await identify(self, timeout_seconds)
        return self._identity

    async def watch(self, timeout_seconds: float) -> None:
        """Return once a driver with other capabilities answers under the address: what rests on the old ones
        must begin anew. A driver that merely restarts is met again without ado.
        """
        ready = grpc.ChannelConnectivity.READY
        while True:
            state = self._channel.get_state(try_to_connect=True)
            await self._channel.wait_for_state_change(state)
            if self._channel.get_state(try_to_connect=True) is not ready:
                continue
            try:
                found = await identify(self, timeout_seconds)
            except (CallError, UnfitDriver) as error:
                logger.warning("the CSI driver is back but does not say who it is: %s", error)
                continue
            if found != self._identity:
                logger.error("the CSI driver has changed from %s to %s", self._identity, found)
                return

    async def close(self) -> None:
        """Close the connection; calls under way fail."""
        await self._channel.close()


async def identify(driver: Driver, timeout_seconds: float) -> Identity:
    """Who the driver is and what it can do. Raises CallError, UnfitDriver."""
    info = await driver.call("Identity", "GetPluginInfo", {}, timeout_seconds)
    if not info.name or len(info.name) > _MAX_NAME:
        raise UnfitDriver(f"a CSI driver's name has 1 to {_MAX_NAME} characters, not {info.name[:80]!r}")
    answer = await driver.call("Identity", "GetPluginCapabilities", {}, timeout_seconds)
    services = [each.service.type for each in answer.capabilities if each.WhichOneof("type") == "service"]
    plugin = names(_SERVICE, services)
    controller: frozenset[str] = frozenset()
    if "CONTROLLER_SERVICE" in plugin:
        answer = await driver.call("Controller", "ControllerGetCapabilities", {}, timeout_seconds)
        controller = names(_CONTROLLER, [each.rpc.type for each in answer.capabilities])
    group_controller: frozenset[str] = frozenset()
    if "GROUP_CONTROLLER_SERVICE" in plugin:
        method = "GroupControllerGetCapabilities"
        answer = await driver.call("GroupController", method, {}, timeout_seconds)
        group_controller = names(_GROUP_CONTROLLER, [each.rpc.type for each in answer.capabilities])
    return Identity(str(info.name), plugin, controller, group_controller)


async def node_capabilities(driver: Driver, timeout_seconds: float) -> frozenset[str]:
    """What the driver can do on nodes. Raises CallError."""
    answer = await driver.call("Node", "NodeGetCapabilities", {}, timeout_seconds)
    return names(_NODE, [each.rpc.type for each in answer.capabilities])

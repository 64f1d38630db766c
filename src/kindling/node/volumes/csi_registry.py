"""Registration of CSI drivers: their sockets in the plugin directory, and their entries in the CSINode."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from kindling.node.backoff import Backoff
from kindling.node.volumes import csi_node
from kindling.node.volumes.content import ContentProblem
from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects.names import is_dns1123_subdomain, is_label_value, is_qualified_name
from kubecore.resources import CSI_NODES, NODES
from kubecore.wire import Message, load_interface, unix

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_CALL_SECONDS = 120.0
_REGISTRATION_SECONDS = 30.0
_MAX_RETRY_SECONDS = 60.0
_MAX_NAME = 63
_MAX_NODE_ID = 256
_MAX_TOPOLOGY_KEYS = 100
_MAX_COUNT = 2**31 - 1
"""The API's type of a number of volumes."""
_REFUSED = (403, 413, 422)
"""Answers to labels that a node must not set, or has too many of."""


@dataclass(frozen=True, slots=True, order=True)
class _Socket:
    """A socket in the plugin directory. A restarted driver creates it again, later.

    Its inode alone would not say so: a new file often gets the one of the file that was removed last.
    """

    path: str
    inode: int
    created_ns: int
    """When it was last written, which nobody does to a socket after it was bound."""


class CallProblem(ContentProblem):
    """A driver's error; `code` is gRPC's, such as ``NOT_FOUND``."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Driver:
    """A registered driver. `capabilities` are values of NodeServiceCapability.RPC.Type."""

    def __init__(self, name: str, stub: Mapping[str, Callable[..., Any]], close: AsyncExitStack) -> None:
        self.name = name
        self.capabilities: frozenset[int] = frozenset()
        self.node: JsonObject = {}
        """The driver's entry in the CSINode object."""
        self.topology: dict[str, str] = {}
        """Labels of the node, by which the driver says where its volumes can be reached."""
        self._stub = stub
        self._close = close
        self._interface = load_interface("csi-v1")

    async def call(
        self, method: str, values: Mapping[str, Any] | None = None, seconds: float = _CALL_SECONDS
    ) -> Message:
        """Call a method of the driver's node service and wait `seconds` at most. Raises ContentProblem."""
        try:
            request = self._interface.methods["Node"][method].request(**(values or {}))
        except ValueError as error:
            # Details from secrets and attributes may contain bytes that are not UTF-8.
            raise ContentProblem(f"{method} of driver {self.name}: {error}") from error
        try:
            return await unix.call(self._stub[method], request, seconds)
        except unix.ConnectionClosed as error:
            raise ContentProblem(f"driver {self.name} has gone away") from error
        except unix.CallFailed as error:
            raise CallProblem(str(error), error.code) from error

    async def ask(self) -> None:
        """Call the driver for its capabilities and its ID of this node."""
        answer = await self.call("NodeGetCapabilities")
        capabilities = frozenset(item.rpc.type for item in answer.capabilities)
        info = await self.call("NodeGetInfo")
        if not info.node_id:
            raise ContentProblem(f"driver {self.name} returned no ID of this node")
        if len(info.node_id) > _MAX_NODE_ID:
            raise ContentProblem(f"driver {self.name} has an ID of more than {_MAX_NODE_ID} characters")
        topology = dict(info.accessible_topology.segments) if info.HasField("accessible_topology") else {}
        if len(topology) > _MAX_TOPOLOGY_KEYS:
            raise ContentProblem(f"driver {self.name} has more than {_MAX_TOPOLOGY_KEYS} topology keys")
        if wrong := [key for key in topology if is_qualified_name(key)]:
            raise ContentProblem(
                f"driver {self.name} has topology keys that are not valid label keys: {wrong}"
            )
        if wrong := [value for value in topology.values() if is_label_value(value)]:
            raise ContentProblem(
                f"driver {self.name} has topology values that are not valid label values: {wrong}"
            )
        self.capabilities, self.topology = capabilities, topology
        self.node = {"name": self.name, "nodeID": info.node_id, "topologyKeys": sorted(topology) or None}
        if info.max_volumes_per_node > 0:
            self.node["allocatable"] = {"count": min(info.max_volumes_per_node, _MAX_COUNT)}

    async def close(self) -> None:
        """Close the connection."""
        await self._close.aclose()


class CsiRegistry:
    """Watches the plugin directory, in which drivers' registrars put their sockets.

    A driver may hang or answer nonsense: each is registered in a task of its own, with a timeout.
    """

    def __init__(self, client: Client, node_name: str, directory: Path) -> None:
        self._client = client
        self._node_name = node_name
        self._directory = directory
        self._registration = load_interface("pluginregistration-v1")
        self._by_socket: dict[_Socket, Driver | None] = {}
        """None: not a CSI driver."""
        self._registering: dict[_Socket, asyncio.Task[None]] = {}
        self._backoff = Backoff(_LOOK_SECONDS, _MAX_RETRY_SECONDS)
        self._failed: set[_Socket] = set()
        self._publishing = asyncio.Lock()
        self._published = True

    def get(self, name: str) -> Driver | None:
        """The registered driver `name`."""
        return next(
            (item for item in self._by_socket.values() if item is not None and item.name == name), None
        )

    def names(self) -> list[str]:
        """The names of all registered drivers."""
        return sorted({driver.name for driver in self._by_socket.values() if driver is not None})

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                try:
                    self._directory.mkdir(parents=True, exist_ok=True)
                    await self._look()
                except OSError as error:
                    _log.warning(
                        "plugin directory %s cannot be read, trying again: %s", self._directory, error
                    )
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            for task in self._registering.values():
                task.cancel()
            await asyncio.gather(*self._registering.values(), return_exceptions=True)
            for driver in self._by_socket.values():
                if driver is not None:
                    await driver.close()

    async def _look(self) -> None:
        present = _sockets(self._directory)
        for socket in [socket for socket in self._by_socket if socket not in present]:
            driver = self._by_socket.pop(socket)
            if driver is not None:
                _log.info("CSI driver %s deregistered: its socket is gone", driver.name)
                self._published = False
                await driver.close()
        for socket in self._failed - present:
            self._failed.discard(socket)
            self._backoff.forget(str(socket))
        now = asyncio.get_running_loop().time()
        for socket in sorted(present - set(self._by_socket) - set(self._registering)):
            if not self._backoff.is_waiting(str(socket), now):
                task = asyncio.create_task(self._register(socket), name=f"csi-registration-{socket.path}")
                self._registering[socket] = task
        await self._publish()

    async def refresh(self, name: str) -> None:
        """Ask a driver again how many volumes the node can have, and publish that. Raises ContentProblem."""
        driver = self.get(name)
        if driver is None:
            return
        before = driver.node
        await driver.ask()
        if driver.node != before:
            self._published = False
            await self._publish()

    async def _register(self, socket: _Socket) -> None:
        """Register the driver of one socket; after a failure, record when to try again."""
        try:
            async with asyncio.timeout(_REGISTRATION_SECONDS):
                driver = await self._meet(socket.path)
        except (grpc.aio.AioRpcError, ContentProblem, TimeoutError, OSError) as error:
            self._failed.add(socket)
            self._backoff.failed(str(socket), asyncio.get_running_loop().time())
            wait = self._backoff.delay(str(socket))
            text = error or f"no answer within {_REGISTRATION_SECONDS:g} s"
            _log.warning(
                "registering the CSI driver at %s failed, trying again in %g s: %s", socket.path, wait, text
            )
            return
        finally:
            del self._registering[socket]
        self._failed.discard(socket)
        self._backoff.forget(str(socket))
        self._by_socket[socket] = driver
        if driver is not None:
            _log.info("CSI driver %s registered", driver.name)
            self._published = False
            await self._publish()

    async def _meet(self, socket: str) -> Driver | None:
        """Ask a registration socket for its driver; None for plugins of other types. Raises ContentProblem,
        AioRpcError.
        """
        async with unix.channel_to(socket) as channel:
            stub = self._registration.stub(channel, "Registration")
            info = await stub["GetInfo"](self._registration.message("InfoRequest"), timeout=5)
            if info.type != "CSIPlugin":
                _log.info(
                    "plugin socket %s is ignored: %s is not the plugin type of CSI drivers", socket, info.type
                )
                return None
            try:
                driver = await _connect(info.name, info.endpoint or socket)
            except ContentProblem as problem:
                await self._notify(stub, str(problem))
                raise
            try:
                await self._notify(stub, "")
            except BaseException:
                await driver.close()
                raise
            return driver

    async def _notify(self, stub: Mapping[str, Callable[..., Any]], problem: str) -> None:
        status = {"plugin_registered": not problem, "error": problem}
        await stub["NotifyRegistrationStatus"](
            self._registration.message("RegistrationStatus", status), timeout=5
        )

    async def _publish(self) -> None:
        """Update the CSINode if drivers have come or gone."""
        async with self._publishing:
            if not self._published:
                self._published = True  # drivers that register or deregister from here on need another update
                if not await self._tell():
                    self._published = False

    async def _tell(self) -> bool:
        """Update the CSINode; returns whether that succeeded."""
        by_name = {driver.name: driver.node for driver in filter(None, reversed(self._by_socket.values()))}
        drivers = [
            {key: value for key, value in by_name[name].items() if value is not None}
            for name in sorted(by_name)
        ]
        try:
            node = await self._client.get(NODES, self._node_name)
            await self._describe(node, by_name)
            owner = {
                "apiVersion": "v1",
                "kind": "Node",
                "name": self._node_name,
                "uid": get_str(node, "metadata", "uid"),
            }
            wanted = {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSINode",
                "metadata": {"name": self._node_name, "ownerReferences": [owner]},
                "spec": {"drivers": drivers},
            }
            try:
                found = await self._client.get(CSI_NODES, self._node_name)
                await self._replace(get_list(found, "spec", "drivers"), drivers)
            except StatusError as error:
                if error.code != 404:
                    raise
                await self._client.create(CSI_NODES, wanted)
        except (StatusError, ConnectionFailed) as error:
            _log.warning("updating CSINode %s failed, trying again: %s", self._node_name, error)
            return False
        return True

    async def _describe(self, node: JsonObject, entries: Mapping[str, JsonObject]) -> None:
        """Annotate and label the Node with what drivers say of it. Raises StatusError, ConnectionFailed."""
        topologies = {
            driver.name: driver.topology for driver in self._by_socket.values() if driver is not None
        }
        ids = {name: get_str(entry, "nodeID") for name, entry in entries.items()}
        wanted = csi_node.change(node, ids, topologies)
        for collision in wanted.collisions:
            _log.warning("node %s keeps its label: %s", self._node_name, collision)
        if not wanted.is_different:
            return
        try:
            await self._client.patch(NODES, self._node_name, wanted.patch(), type="merge")
        except StatusError as error:
            if error.code not in _REFUSED:
                raise
            await self._client.patch(
                NODES, self._node_name, csi_node.change(node, ids, {}).patch(), type="merge"
            )
            for driver, topology in topologies.items():
                await self._label(driver, csi_node.change(node, ids, {driver: topology}))

    async def _label(self, driver: str, wanted: csi_node.NodeChange) -> None:
        """Label the Node for one driver, since one of them asks for what a node must not set."""
        try:
            await self._client.patch(NODES, self._node_name, wanted.patch(), type="merge")
        except StatusError as error:
            if error.code not in _REFUSED:
                raise
            text = "node %s does not get the labels %s, which CSI driver %s asks for: %s"
            _log.warning(text, self._node_name, sorted(wanted.labels), driver, error.message)

    async def _replace(self, known: list[JsonObject], drivers: list[JsonObject]) -> None:
        """Bring the drivers of the CSINode from `known` to `drivers`.

        The API server allows adding and removing entries but not changing one: therefore, as in a kubelet, a
        changed entry is first removed and then added again.
        """
        if known == drivers:
            return
        identity = {driver["name"]: (driver["nodeID"], driver.get("topologyKeys")) for driver in drivers}
        unchanged = [
            entry
            for entry in known
            if identity.get(entry["name"]) in (None, (entry["nodeID"], entry.get("topologyKeys")))
        ]
        steps = [drivers] if len(unchanged) == len(known) else [unchanged, drivers]
        for step in steps:
            patch = {"spec": {"drivers": step}}
            await self._client.patch(CSI_NODES, self._node_name, patch, type="merge")


def _sockets(directory: Path) -> set[_Socket]:
    """The sockets in a directory, without symbolic links and sockets that were deleted meanwhile."""
    found = set()
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISSOCK(status.st_mode) and entry.name.endswith(".sock"):
                found.add(_Socket(entry.path, status.st_ino, status.st_mtime_ns))
    return found


async def _connect(name: str, endpoint: str) -> Driver:
    """Connect to the driver `name` and get its capabilities. Raises ContentProblem."""
    if len(name) > _MAX_NAME or is_dns1123_subdomain(name.lower()):
        raise ContentProblem(f"{name[:_MAX_NAME]!r} is not a valid name of a CSI driver")
    stack = AsyncExitStack()
    channel = await stack.enter_async_context(unix.channel_to(endpoint))
    driver = Driver(name, load_interface("csi-v1").stub(channel, "Node"), stack)
    try:
        await driver.ask()
    except BaseException:
        await stack.aclose()
        raise
    return driver

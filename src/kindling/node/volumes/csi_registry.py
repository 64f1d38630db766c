"""Which CSI drivers run on this node: their sockets appear in a folder, and the API learns of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from kindling.node.volumes.content import ContentProblem
from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_str
from kubecore.resources import CSI_NODES, NODES
from kubecore.wire import Message, load_interface

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_CALL_SECONDS = 120.0
_OPTIONS = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))


class Driver:
    """A registered driver. `capabilities` are values of NodeServiceCapability.RPC.Type."""

    def __init__(self, name: str, stub: Mapping[str, Callable[..., Any]], close: AsyncExitStack) -> None:
        self.name = name
        self.capabilities: frozenset[int] = frozenset()
        self.node: JsonObject = {}
        """The driver's entry in the CSINode object."""
        self._stub = stub
        self._close = close
        self._interface = load_interface("csi-v1")

    async def call(self, method: str, values: Mapping[str, Any] | None = None) -> Message:
        """Call a method of the driver's node service. Raises ContentProblem."""
        request = self._interface.methods["Node"][method].request(**(values or {}))
        try:
            return await self._stub[method](request, timeout=_CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            text = f"rpc error: code = {error.code().name} desc = {error.details()}"
            raise ContentProblem(text) from error

    async def ask(self) -> None:
        """Learn what the driver can do and what it calls this node."""
        answer = await self.call("NodeGetCapabilities")
        self.capabilities = frozenset(item.rpc.type for item in answer.capabilities)
        info = await self.call("NodeGetInfo")
        topology = dict(info.accessible_topology.segments) if info.HasField("accessible_topology") else {}
        self.node = {"name": self.name, "nodeID": info.node_id, "topologyKeys": sorted(topology) or None}
        if info.max_volumes_per_node:
            self.node["allocatable"] = {"count": info.max_volumes_per_node}

    async def close(self) -> None:
        """Close the connection."""
        await self._close.aclose()


class CsiRegistry:
    """Watches the folder where drivers' registrars put their sockets."""

    def __init__(self, client: Client, node_name: str, directory: Path) -> None:
        self._client = client
        self._node_name = node_name
        self._directory = directory
        self._registration = load_interface("pluginregistration-v1")
        self._by_socket: dict[tuple[str, int], Driver | None] = {}
        """By path and inode: a driver that restarts makes its socket anew. None: not a CSI driver."""

    def get(self, name: str) -> Driver | None:
        """The registered driver `name`."""
        return next(
            (item for item in self._by_socket.values() if item is not None and item.name == name), None
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            while True:
                await self._look()
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            for driver in self._by_socket.values():
                if driver is not None:
                    await driver.close()

    async def _look(self) -> None:
        present = {(str(path), path.stat().st_ino) for path in self._directory.glob("*.sock")}
        gone = [key for key in self._by_socket if key not in present]
        for key in gone:
            driver = self._by_socket.pop(key)
            if driver is not None:
                _log.info("CSI driver %s went away", driver.name)
                await driver.close()
        added = False
        for key in sorted(present - set(self._by_socket)):
            try:
                self._by_socket[key] = await self._register(Path(key[0]))
                added = True
            except (grpc.aio.AioRpcError, ContentProblem) as error:
                _log.warning("registering %s: %s", key[0], error)
        if added or gone:
            await self._publish()

    async def _register(self, socket: Path) -> Driver | None:
        async with grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
            stub = self._registration.stub(channel, "Registration")
            info = await stub["GetInfo"](self._registration.message("InfoRequest"), timeout=5)
            if info.type != "CSIPlugin":
                _log.info("%s is a %s, which registers elsewhere", socket, info.type)
                return None
            driver = await _connect(info.name, info.endpoint or str(socket))
            _log.info("CSI driver %s registered", info.name)
            done = self._registration.message("RegistrationStatus", {"plugin_registered": True})
            await stub["NotifyRegistrationStatus"](done, timeout=5)
            return driver

    async def _publish(self) -> None:
        """Tell the API which drivers this node has."""
        drivers = [
            {key: value for key, value in driver.node.items() if value is not None}
            for driver in sorted(filter(None, self._by_socket.values()), key=lambda item: item.name)
        ]
        try:
            node = await self._client.get(NODES, self._node_name)
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
                if get_list(found, "spec", "drivers") != drivers:
                    patch = {"spec": {"drivers": drivers}}
                    await self._client.patch(CSI_NODES, self._node_name, patch, type="merge")
            except StatusError as error:
                if error.code != 404:
                    raise
                await self._client.create(CSI_NODES, wanted)
        except (StatusError, ConnectionFailed) as error:
            _log.warning("CSINode: %s", error)


async def _connect(name: str, endpoint: str) -> Driver:
    stack = AsyncExitStack()
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"unix:{endpoint}", options=_OPTIONS))
    driver = Driver(name, load_interface("csi-v1").stub(channel, "Node"), stack)
    try:
        await driver.ask()
    except ContentProblem:
        await stack.aclose()
        raise
    return driver

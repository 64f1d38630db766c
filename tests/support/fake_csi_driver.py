"""A CSI driver in memory: behind a real socket, or called directly; it does what it is told goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from kubecore.wire import Message, load_interface, rpc_text
from kubecore.wire.csi import numbers
from virtplane.storage.csi.driver import CallError, Identity, Values

NAME = "fake.csi.example.com"
EVERYTHING = frozenset(numbers("ControllerServiceCapability.RPC.Type")) - {"UNKNOWN"}
CSI = load_interface("csi-v1")


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one call: nothing happens, or it does and the answer is lost."""

    code: str
    text: str = "told to fail"
    happens: bool = False
    delay_seconds: float = 0.0


class Refused(Exception):
    """The answer to a call is an error."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass
class FakeDriver:
    """The driver and its storage. `faults` holds, for each method, what happens to its next calls."""

    controller: frozenset[str] = EVERYTHING
    topology: Mapping[str, str] = field(default_factory=dict)
    """The place of its node; without one, volumes are the same from everywhere."""
    node_expansion: bool = False
    capacity_bytes: int = 100 * 2**30
    smaller_by: int = 0
    snapshots_take: int = 0
    """How often a snapshot must be asked for until it is ready."""
    ready: bool = True
    volumes: dict[str, Message] = field(default_factory=dict)
    """By name."""
    snapshots: dict[str, Message] = field(default_factory=dict)
    takes_groups: bool = False
    groups: dict[str, Message] = field(default_factory=dict)
    """Snapshots of several volumes, by name; the snapshots in them are no `snapshots`."""
    published: set[tuple[str, str]] = field(default_factory=set)
    calls: list[tuple[str, Message]] = field(default_factory=list)
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    choose: Callable[[str], Fault | None] = lambda _: None
    """Chooses what happens to a call for which nothing was said."""
    created: dict[str, int] = field(default_factory=dict)
    """How often storage was made, by name."""

    @property
    def identity(self) -> Identity:
        """What parts learn of it."""
        plugin = {"CONTROLLER_SERVICE"} | ({"VOLUME_ACCESSIBILITY_CONSTRAINTS"} if self.topology else set())
        groups: set[str] = set()
        if self.takes_groups:
            plugin.add("GROUP_CONTROLLER_SERVICE")
            groups.add("CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT")
        return Identity(NAME, frozenset(plugin), self.controller, frozenset(groups))

    def methods(self) -> list[str]:
        """The methods called, in order."""
        return [method for method, _ in self.calls]

    def requests(self, method: str) -> list[Message]:
        """The requests of one method."""
        return [request for name, request in self.calls if name == method]

    async def answer(self, service: str, method: str, request: Message) -> Message:
        """Answer a call. Raises Refused."""
        self.calls.append((method, request))
        planned = self.faults.get(method)
        fault = planned.pop(0) if planned else self.choose(method)
        if fault is not None:
            await asyncio.sleep(fault.delay_seconds)
            if fault.happens:
                self._do(service, method, request)
            if fault.code:
                raise Refused(fault.code, fault.text)
        values = self._do(service, method, request)
        return CSI.methods[service][method].response(**values)

    def _do(self, service: str, method: str, request: Message) -> dict[str, Any]:
        found: dict[str, Any] = getattr(self, f"_{method}")(request)
        return found

    # Identity and node.

    def _GetPluginInfo(self, _: Message) -> dict[str, Any]:
        return {"name": NAME, "vendor_version": "1"}

    def _GetPluginCapabilities(self, _: Message) -> dict[str, Any]:
        known = numbers("PluginCapability.Service.Type")
        return {"capabilities": [{"service": {"type": known[name]}} for name in self.identity.plugin]}

    def _Probe(self, _: Message) -> dict[str, Any]:
        return {"ready": {"value": self.ready}}

    def _ControllerGetCapabilities(self, _: Message) -> dict[str, Any]:
        known = numbers("ControllerServiceCapability.RPC.Type")
        return {"capabilities": [{"rpc": {"type": known[name]}} for name in sorted(self.controller)]}

    def _NodeGetInfo(self, _: Message) -> dict[str, Any]:
        return {"node_id": "n", "accessible_topology": {"segments": dict(self.topology)}}

    def _NodeGetCapabilities(self, _: Message) -> dict[str, Any]:
        return {"capabilities": [{"rpc": {"type": 3}}]}

    # Volumes.

    def _CreateVolume(self, request: Message) -> dict[str, Any]:
        if request.name not in self.volumes:
            values: dict[str, Any] = {
                "volume_id": f"id-{request.name}",
                "capacity_bytes": request.capacity_range.required_bytes - self.smaller_by,
                "volume_context": {"made": "here"},
            }
            if request.HasField("volume_content_source"):
                values["content_source"] = request.volume_content_source
            if self.topology:
                values["accessible_topology"] = [{"segments": dict(self.topology)}]
            self.volumes[request.name] = CSI.message("Volume", values)
            self.created[request.name] = self.created.get(request.name, 0) + 1
        return {"volume": self.volumes[request.name]}

    def _DeleteVolume(self, request: Message) -> dict[str, Any]:
        if any(handle == request.volume_id for handle, _ in self.published):
            raise Refused("FAILED_PRECONDITION", "volume is published")
        self.volumes.pop(request.volume_id.removeprefix("id-"), None)
        return {}

    def _GetCapacity(self, _: Message) -> dict[str, Any]:
        return {"available_capacity": self.capacity_bytes, "maximum_volume_size": {"value": 2**40}}

    def _ControllerPublishVolume(self, request: Message) -> dict[str, Any]:
        self.published.add((request.volume_id, request.node_id))
        return {"publish_context": {"device": f"/dev/{request.volume_id}"}}

    def _ControllerUnpublishVolume(self, request: Message) -> dict[str, Any]:
        self.published.discard((request.volume_id, request.node_id))
        return {}

    def _ListVolumes(self, _: Message) -> dict[str, Any]:
        entries = []
        for volume in self.volumes.values():
            nodes = [node for handle, node in self.published if handle == volume.volume_id]
            entries.append({"volume": volume, "status": {"published_node_ids": nodes}})
        return {"entries": entries}

    def _ControllerExpandVolume(self, request: Message) -> dict[str, Any]:
        name = request.volume_id.removeprefix("id-")
        if name not in self.volumes:
            raise Refused("NOT_FOUND", "no such volume")
        wanted = request.capacity_range.required_bytes
        self.volumes[name].capacity_bytes = wanted
        return {"capacity_bytes": wanted, "node_expansion_required": self.node_expansion}

    # Snapshots.

    def _CreateSnapshot(self, request: Message) -> dict[str, Any]:
        if request.name not in self.snapshots:
            if request.source_volume_id.removeprefix("id-") not in self.volumes:
                raise Refused("NOT_FOUND", "no such volume")
            values = {
                "snapshot_id": f"id-{request.name}",
                "source_volume_id": request.source_volume_id,
                "size_bytes": 2**30,
                "creation_time": {"seconds": 1_700_000_000},
            }
            self.snapshots[request.name] = CSI.message("Snapshot", values)
            self.created[request.name] = self.created.get(request.name, 0) + 1
        asked = sum(each.name == request.name for each in self.requests("CreateSnapshot"))
        self.snapshots[request.name].ready_to_use = asked > self.snapshots_take
        return {"snapshot": self.snapshots[request.name]}

    def _DeleteSnapshot(self, request: Message) -> dict[str, Any]:
        if any(request.snapshot_id == each.snapshot_id for each in self._in_groups()):
            raise Refused("INVALID_ARGUMENT", "the snapshot belongs to a group")
        self.snapshots.pop(request.snapshot_id.removeprefix("id-"), None)
        return {}

    def _ListSnapshots(self, request: Message) -> dict[str, Any]:
        known = [*self.snapshots.values(), *self._in_groups()]
        found = [each for each in known if each.snapshot_id == request.snapshot_id]
        return {"entries": [{"snapshot": each} for each in found]}

    # Groups.

    def _in_groups(self) -> list[Message]:
        return [each for group in self.groups.values() for each in group.snapshots]

    def _GroupControllerGetCapabilities(self, _: Message) -> dict[str, Any]:
        known = numbers("GroupControllerServiceCapability.RPC.Type")
        found = sorted(self.identity.group_controller)
        return {"capabilities": [{"rpc": {"type": known[name]}} for name in found]}

    def _CreateVolumeGroupSnapshot(self, request: Message) -> dict[str, Any]:
        if request.name not in self.groups:
            known = {volume.volume_id for volume in self.volumes.values()}
            if not known.issuperset(request.source_volume_ids):
                raise Refused("NOT_FOUND", "no such volume")
            self.make_group(request.name, list(request.source_volume_ids))
        asked = sum(each.name == request.name for each in self.requests("CreateVolumeGroupSnapshot"))
        group = self.groups[request.name]
        group.ready_to_use = asked > self.snapshots_take
        for each in group.snapshots:
            each.ready_to_use = group.ready_to_use
        return {"group_snapshot": group}

    def make_group(self, name: str, volumes: list[str]) -> None:
        """Take a group, which is ready."""
        moment = {"seconds": 1_700_000_000}
        snapshots = [
            {
                "snapshot_id": f"id-{name}-{number}",
                "source_volume_id": volume,
                "size_bytes": 2**30,
                "creation_time": moment,
                "ready_to_use": True,
                "group_snapshot_id": f"id-{name}",
            }
            for number, volume in enumerate(volumes)
        ]
        values = {"group_snapshot_id": f"id-{name}", "creation_time": moment, "ready_to_use": True}
        self.groups[name] = CSI.message("VolumeGroupSnapshot", {**values, "snapshots": snapshots})
        self.created[name] = self.created.get(name, 0) + 1

    def _group(self, request: Message) -> Message | None:
        group = self.groups.get(request.group_snapshot_id.removeprefix("id-"))
        if group is not None and {*request.snapshot_ids} != {each.snapshot_id for each in group.snapshots}:
            raise Refused("INVALID_ARGUMENT", "these are not the snapshots of the group")
        return group

    def _DeleteVolumeGroupSnapshot(self, request: Message) -> dict[str, Any]:
        if self._group(request) is not None:
            del self.groups[request.group_snapshot_id.removeprefix("id-")]
        return {}

    def _GetVolumeGroupSnapshot(self, request: Message) -> dict[str, Any]:
        group = self._group(request)
        if group is None:
            raise Refused("NOT_FOUND", "no such group")
        return {"group_snapshot": group}


class DirectDriver:
    """The driver without a socket, for virtual time. `is_cut`: its caller has ended and hears nothing."""

    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver
        self.is_cut = False

    @property
    def identity(self) -> Identity:
        """Who the driver is."""
        return self._driver.identity

    async def call(self, service: str, method: str, values: Values, timeout_seconds: float) -> Message:
        """Call the driver."""
        request = CSI.methods[service][method].request(**values)
        await asyncio.sleep(0.001)
        if self.is_cut:
            raise CallError(method, "CANCELLED", "the process has ended")
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._driver.answer(service, method, request)
        except Refused as refused:
            raise CallError(method, refused.code, rpc_text(refused.code, refused.text)) from refused
        except TimeoutError as error:
            text = rpc_text("DEADLINE_EXCEEDED", "context deadline exceeded")
            raise CallError(method, "DEADLINE_EXCEEDED", text) from error


@asynccontextmanager
async def serving(driver: FakeDriver, socket: Path) -> AsyncIterator[None]:
    """The driver behind a unix socket."""

    def answering(service: str, method: str) -> Callable[[Message, Any], Any]:
        async def answer(request: Message, context: Any) -> Message:
            try:
                return await driver.answer(service, method, request)
            except Refused as refused:
                await context.abort(grpc.StatusCode[refused.code], refused.text)

        return answer

    server = grpc.aio.server()
    for service in ("Identity", "Controller", "GroupController", "Node"):
        names = [name for name in CSI.methods[service] if hasattr(driver, f"_{name}")]
        handler = CSI.handler(service, {name: answering(service, name) for name in names})
        server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)

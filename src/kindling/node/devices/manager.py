"""Device plugins: their registration, the devices that they offer, and allocations to containers.

Plugins register on ``kubelet.sock``; the agent then calls each over the plugin's own socket. Allocations are
kept on disk, so that a restarted agent does not hand out a device twice. The names of the resources are kept
too: a resource has no devices until its plugin registers again. Extended resources that no plugin ever
offered here were written into the node's status by an administrator; nothing is allocated for those.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from kindling.node import state_files
from kindling.node.pods.container import DeviceGrant
from kindling.node.pods.resources import extended_resources
from kindling.node.volumes.content import ContentProblem
from kubecore.json import JsonObject, get_str
from kubecore.objects.names import is_qualified_name
from kubecore.wire import load_interface

_log = logging.getLogger(__name__)

_VERSION = "v1beta1"
_HEALTHY = "Healthy"
_OPTIONS = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))

_Allocated = dict[str, dict[str, dict[str, list[str]]]]
"""pod uid -> container -> resource -> device ids"""

_LOST_ALLOCATIONS = "devices of running pods may be given to others; delete the pods that use devices"
_LOST_NAMES = "a resource has no devices until its plugin registers again; restart the plugins"


class _Plugin:
    """A registered device plugin and the resource that it offers."""

    def __init__(self, resource: str, socket: Path) -> None:
        self.resource = resource
        self.socket = socket
        self.devices: dict[str, str] = {}
        self.pre_start = False
        self.channel: Any = None
        self.stub: Mapping[str, Callable[..., Any]] = {}
        self.task: asyncio.Task[None] | None = None


class DeviceManager:
    """The resources that device plugins offer on this node. `changed` is called when a resource or its
    devices change.
    """

    def __init__(self, directory: Path, changed: Callable[[], None]) -> None:
        self._directory = directory
        self._changed = changed
        self._interface = load_interface("deviceplugin-v1beta1")
        self._server: Any = None
        self._checkpoint = directory / "kindling_allocations.json"
        self._allocated = state_files.read(self._checkpoint, _Allocated, _LOST_ALLOCATIONS) or {}
        self._names = directory / "kindling_resources.json"
        known = state_files.read(self._names, list[str], _LOST_NAMES) or []
        self._plugins: dict[str, _Plugin] = {name: _Plugin(name, directory) for name in known}
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Serve registrations. Plugin sockets are kept: plugins that watch ``kubelet.sock``
        register again.
        """
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        socket = self._directory / "kubelet.sock"
        socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        handler = self._interface.handler("Registration", {"Register": self._register})
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{socket}")
        await self._server.start()

    async def close(self) -> None:
        """Stop serving and watching."""
        for plugin in self._plugins.values():
            if plugin.task is not None:
                plugin.task.cancel()
        if self._server is not None:
            await self._server.stop(0)

    def capacity(self) -> dict[str, tuple[int, int]]:
        """Resource -> (all devices, healthy devices); resources whose plugin went away count 0."""
        return {
            name: (len(plugin.devices), sum(health == _HEALTHY for health in plugin.devices.values()))
            for name, plugin in self._plugins.items()
        }

    async def allocate(self, pod: JsonObject, container: JsonObject) -> DeviceGrant:
        """Allocate devices to a container; repeated calls return the same devices. Raises ContentProblem when
        too few are available, OSError when they cannot be recorded.
        """
        requested = extended_resources(container)
        wanted = {name: count for name, count in requested.items() if name in self._plugins}
        if not wanted:
            return DeviceGrant()
        uid, name = get_str(pod, "metadata", "uid"), get_str(container, "name")
        envs: dict[str, str] = {}
        annotations: dict[str, str] = {}
        mounts: list[dict[str, Any]] = []
        devices: list[dict[str, Any]] = []
        async with self._lock:
            for resource, count in wanted.items():
                answer = await self._allocate_one(uid, name, resource, count)
                envs |= dict(answer.envs)
                annotations |= dict(answer.annotations)
                mounts += [
                    {"container_path": m.container_path, "host_path": m.host_path, "readonly": m.read_only}
                    for m in answer.mounts
                ]
                devices += [
                    {
                        "container_path": d.container_path,
                        "host_path": d.host_path,
                        "permissions": d.permissions,
                    }
                    for d in answer.devices
                ]
        return DeviceGrant(envs, mounts, devices, annotations)

    def release(self, uid: str) -> None:
        """Free the devices of a pod that has ended."""
        if self._allocated.pop(uid, None) is not None:
            self._save()

    def retain(self, uids: set[str]) -> None:
        """Free the devices of all pods except these (after a restart of the agent)."""
        for uid in set(self._allocated) - uids:
            self.release(uid)

    async def _allocate_one(self, uid: str, container: str, resource: str, count: int) -> Any:
        plugin = self._plugins[resource]
        if not plugin.stub:
            raise ContentProblem(f"the device plugin of {resource} has not registered yet")
        held = self._allocated.setdefault(uid, {}).setdefault(container, {})
        ids = held.get(resource)
        if ids is None:
            taken = {
                device
                for containers in self._allocated.values()
                for resources in containers.values()
                for device in resources.get(resource, ())
            }
            healthy = [d for d, h in plugin.devices.items() if h == _HEALTHY and d not in taken]
            if len(healthy) < count:
                raise ContentProblem(
                    f"requested number of devices unavailable for {resource}. "
                    f"Requested: {count}, Available: {len(healthy)}"
                )
            ids = held[resource] = sorted(healthy)[:count]
            try:
                self._save()
            except OSError:
                del held[resource]  # an agent that is started again would give them to others
                raise
        try:
            request = self._interface.message(
                "AllocateRequest", {"container_requests": [{"devices_ids": ids}]}
            )
            answer = await plugin.stub["Allocate"](request, timeout=10)
            if plugin.pre_start:
                before = self._interface.message("PreStartContainerRequest", {"devices_ids": ids})
                await plugin.stub["PreStartContainer"](before, timeout=30)
        except grpc.aio.AioRpcError as error:
            raise ContentProblem(f"device plugin of {resource}: {error.details()}") from error
        if len(answer.container_responses) != 1:
            raise ContentProblem(
                f"device plugin of {resource} answered for {len(answer.container_responses)}"
            )
        return answer.container_responses[0]

    async def _register(self, request: Any, context: Any) -> Any:
        resource = request.resource_name
        if wrong := _registration_problem(request.version, resource, request.endpoint):
            _log.warning("device plugin for %.100r is not registered: %s", resource, wrong)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, wrong)
        previous = self._plugins.get(resource)
        if previous is None:
            # Before the plugin is known: it registers again where this fails, and the name is written then.
            state_files.write(self._names, sorted({*self._plugins, resource}))
        _log.info("device plugin for %s registered", resource)
        if previous is not None and previous.task is not None:
            previous.task.cancel()
        plugin = _Plugin(resource, self._directory / request.endpoint)
        plugin.pre_start = request.options.pre_start_required
        if previous is not None:
            plugin.devices = previous.devices
        self._plugins[resource] = plugin
        plugin.task = asyncio.create_task(self._watch(plugin), name=f"device-plugin-{resource}")
        return self._interface.message("Empty")

    async def _watch(self, plugin: _Plugin) -> None:
        """Follow a plugin's ListAndWatch stream. When it ends, the resource has no devices until the plugin
        registers again.
        """
        async with grpc.aio.insecure_channel(f"unix:{plugin.socket}", options=_OPTIONS) as channel:
            plugin.stub = self._interface.stub(channel, "DevicePlugin")
            try:
                stream = plugin.stub["ListAndWatch"](self._interface.message("Empty"), wait_for_ready=True)
                async for answer in stream:
                    offered = {device.ID: device.health for device in answer.devices}
                    if offered != plugin.devices:
                        plugin.devices = offered
                        self._changed()
            except grpc.aio.AioRpcError as error:
                _log.info("device plugin for %s went away: %s", plugin.resource, error.details())
        plugin.devices = dict.fromkeys(plugin.devices, "Unhealthy")
        self._changed()

    def _save(self) -> None:
        state_files.write(self._checkpoint, self._allocated)


def _registration_problem(version: str, resource: str, endpoint: str) -> str:
    """Why a registration is refused, else empty. An invalid resource name would make every status update of
    the node invalid.
    """
    if version != _VERSION:
        return f"unsupported API version {version[:20]!r}, want {_VERSION}"
    reserved = "/" not in resource or "kubernetes.io/" in resource or resource.startswith("requests.")
    if reserved or is_qualified_name(f"requests.{resource}"):
        return f"invalid name of a resource: {resource[:100]!r}"
    if Path(endpoint).name != endpoint or endpoint in ("", ".", ".."):
        return f"{endpoint[:100]!r} is no socket beside kubelet.sock"
    return ""

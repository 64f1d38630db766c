"""The node agent: what a kubelet does, made of the parts in this package."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from kindling.node import registration
from kindling.node.backend import ApiBackend
from kindling.node.devices.manager import DeviceManager
from kindling.node.housekeeping import Housekeeping
from kindling.node.images.host_image import HostFiles
from kindling.node.images.manager import ImageManager
from kindling.node.networks.attachments import NetworkSettings, PodNetworks
from kindling.node.pods import identity
from kindling.node.pods.cgroups import remove_pod_cgroups
from kindling.node.pods.confinement import Confinement
from kindling.node.pods.downward_api import NodeFacts
from kindling.node.pods.pleg import Pleg
from kindling.node.pods.pod_services import PodServices
from kindling.node.pods.pod_worker import PodWorker
from kindling.node.pods.pod_workers import PodWorkers
from kindling.node.pods.sandbox import ResolverSettings
from kindling.node.pods.starter import ContainerStarter, StarterServices
from kindling.node.pods.status_manager import StatusManager
from kindling.node.pods.stopper import PodStopper
from kindling.node.probes.manager import ProbeManager
from kindling.node.registration import NodeRegistration, NodeSettings
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.shims import LostShims
from kindling.node.server import http, stats
from kindling.node.server.access import Access
from kindling.node.server.routes import Routes, RouteServices
from kindling.node.volumes.csi import CsiVolumes
from kindling.node.volumes.csi_registry import CsiRegistry
from kindling.node.volumes.manager import VolumeManager
from kubecore.client import Client, ClientConfig
from kubecore.json import JsonObject
from kubecore.resources import PODS, SERVICES
from kubecore.runtime import EventRecorder, Informer

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentSettings:
    """Settings of the agent. Certificates and keys are PEM files."""

    node: NodeSettings
    api: ClientConfig
    runtime_socket: str
    cgroup_root: str
    resolver: ResolverSettings
    tls_cert: Path
    tls_key: Path
    client_ca: Path
    networks: NetworkSettings = field(default_factory=NetworkSettings)
    default_environment: Mapping[str, str] = field(default_factory=dict)
    max_pod_processes: int = 4096
    """The most processes and threads of one pod: stops a fork bomb, and leaves enough for a large guest."""
    registered: Callable[[], object] = lambda: None
    """Called once the node's status has been reported."""


@dataclass(frozen=True)
class _Connections:
    """The API server and the container runtime, and what the agent reads and reports through them."""

    client: Client
    runtime: Containerd
    recorder: EventRecorder
    services: Informer[JsonObject]
    pods: Informer[JsonObject]

    def record_event(self, pod: JsonObject, kind: str, reason: str, message: str, container: str) -> None:
        """Record an event about a pod, or about one of its containers."""
        subject = {"apiVersion": "v1", "kind": "Pod", **pod}
        where = identity.field_path(pod, container) if container else ""
        self.recorder.event(subject, "Warning" if kind == "Warning" else "Normal", reason, message, where)


@dataclass(frozen=True)
class _Parts:
    """The parts of the agent that have work of their own."""

    registration: NodeRegistration
    devices: DeviceManager
    pleg: Pleg
    pod_workers: PodWorkers
    volumes: VolumeManager
    csi: CsiRegistry
    confinement: Confinement
    networks: PodNetworks


class NodeAgent:
    """Runs the pods of one node until cancelled."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._registration: NodeRegistration | None = None

    def _facts(self) -> NodeFacts:
        allocatable: Mapping[str, str] = self._registration.allocatable if self._registration else {}
        return NodeFacts(self._settings.node.name, (self._settings.node.address,), allocatable)

    async def run(self) -> None:
        """Connect, adopt what runs, and work."""
        async with AsyncExitStack() as stack:
            connections = await self._connect(stack)
            parts = await self._make_parts(stack, connections)
            await self._serve(stack, connections, parts.pleg)
            await self._work(connections, parts)

    async def _connect(self, stack: AsyncExitStack) -> _Connections:
        settings = self._settings
        client = await stack.enter_async_context(Client(settings.api))
        return _Connections(
            client=client,
            runtime=await stack.enter_async_context(Containerd(settings.runtime_socket)),
            recorder=await stack.enter_async_context(EventRecorder(client, "kubelet", settings.node.name)),
            services=Informer(client, SERVICES),
            pods=Informer(client, PODS, field_selector=f"spec.nodeName={settings.node.name}"),
        )

    async def _make_parts(self, stack: AsyncExitStack, to: _Connections) -> _Parts:
        settings = self._settings
        registration, devices = await self._make_registration(stack, to)
        probes = ProbeManager(to.runtime)
        stack.push_async_callback(probes.close)
        pod_workers = PodWorkers(lambda pod: PodWorker(pod, shared))
        pleg = Pleg(to.runtime, pod_workers.pod_changed)
        images, host_files = ImageManager(to.runtime), HostFiles()
        backend = ApiBackend(
            to.client,
            images,
            to.record_event,
            self._facts,
            to.services.list,
            lambda uid: pleg.runtime_status(uid).ips,
            host_files,
        )
        csi = CsiRegistry(to.client, settings.node.name, identity.ROOT / "plugins_registry")
        csi_volumes = CsiVolumes(to.client, csi, settings.node.name)
        stack.push_async_callback(csi_volumes.close)
        volumes = VolumeManager(backend, {"csi": csi_volumes})
        confinement = Confinement(to.runtime, settings.cgroup_root, settings.max_pod_processes)
        networks = PodNetworks(to.client, to.runtime, to.record_event, settings.networks)
        starter = self._make_starter(to, backend, images, volumes, devices, host_files, confinement)

        async def release(uid: str) -> None:
            devices.release(uid)
            backend.forget(uid)
            await asyncio.to_thread(remove_pod_cgroups, settings.cgroup_root, uid)

        shared = PodServices(
            runtime=to.runtime,
            pleg=pleg,
            status_manager=StatusManager(to.client),
            volumes=volumes,
            probes=probes,
            starter=starter,
            stopper=PodStopper(to.runtime, to.record_event, networks.detach),
            recorder=to.recorder,
            node=self._facts,
            release=release,
            networks=networks,
            admitted=pod_workers.admitted,
        )
        return _Parts(registration, devices, pleg, pod_workers, volumes, csi, confinement, networks)

    async def _make_registration(
        self, stack: AsyncExitStack, to: _Connections
    ) -> tuple[NodeRegistration, DeviceManager]:
        settings = self._settings

        def extended() -> Mapping[str, tuple[int, int]]:
            return devices.capacity()

        registration = NodeRegistration(to.client, to.runtime, settings.node, extended, settings.registered)
        self._registration = registration
        devices = DeviceManager(identity.ROOT / "device-plugins", registration.changed)
        await devices.start()
        stack.push_async_callback(devices.close)
        return registration, devices

    def _make_starter(
        self,
        to: _Connections,
        backend: ApiBackend,
        images: ImageManager,
        volumes: VolumeManager,
        devices: DeviceManager,
        host_files: HostFiles,
        confinement: Confinement,
    ) -> ContainerStarter:
        settings = self._settings
        return ContainerStarter(
            StarterServices(
                runtime=to.runtime,
                images=images,
                volumes=volumes,
                record_event=to.record_event,
                sources=backend.sources,
                pull_secrets=backend.pull_secrets,
                devices=devices.allocate,
                node=self._facts,
                resolver=settings.resolver,
                cgroup_root=settings.cgroup_root,
                node_memory_bytes=registration.memory_bytes(),
                host_files=host_files,
                confinement=confinement,
                default_environment=settings.default_environment,
            )
        )

    async def _serve(self, stack: AsyncExitStack, to: _Connections, pleg: Pleg) -> None:
        """Serve the node's own API: logs, exec, statistics."""
        routes = Routes(
            RouteServices(
                runtime=to.runtime,
                pods=to.pods.list,
                runtime_status=pleg.runtime_status,
                is_healthy=lambda: True,
                summary=lambda: self._summary(to.runtime),
                metrics=lambda: self._metrics(to.runtime),
            )
        )
        node = self._settings.node
        access = Access(to.client, node.name)
        await stack.enter_async_context(
            http.serving(routes.handle, node.address, node.port, self._tls(), access.check)
        )

    async def _work(self, to: _Connections, parts: _Parts) -> None:
        pleg, pod_workers = parts.pleg, parts.pod_workers
        lost_shims = LostShims(self._settings.runtime_socket)
        networks = parts.networks

        async def sweep() -> None:
            await parts.confinement.sweep()
            await networks.sweep([sandbox.id for sandbox in pleg.sandboxes()])

        housekeeping = Housekeeping(to.runtime, pleg, sweep, lost_shims)
        async with asyncio.TaskGroup() as group:
            group.create_task(parts.registration.run(), name="node-registration")
            group.create_task(to.services.run(), name="services")
            await to.services.wait_synced()
            group.create_task(to.pods.run(), name="pods")
            await to.pods.wait_synced()
            await _until_ready(to.runtime)
            await pleg.relist()
            await parts.confinement.adopt(pleg.sandboxes())
            networks.load()
            group.create_task(pleg.run(), name="runtime-pleg")
            live = {str(pod["metadata"]["uid"]) for pod in to.pods.list()}
            parts.devices.retain(live)
            pod_workers.adopt_orphans((pleg.uids() | parts.volumes.uids()) - live, pleg)
            group.create_task(housekeeping.run(), name="housekeeping")
            group.create_task(parts.csi.run(), name="csi-registry")
            group.create_task(pod_workers.run(to.pods), name="pod-workers")

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self._settings.client_ca)
        context.load_cert_chain(self._settings.tls_cert, self._settings.tls_key)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    async def _summary(self, runtime: Containerd) -> JsonObject:
        return stats.summary(self._settings.node.name, await stats.container_usage(runtime))

    async def _metrics(self, runtime: Containerd) -> str:
        return stats.metrics(await stats.container_usage(runtime))


async def _until_ready(runtime: Containerd) -> None:
    while problems := await runtime.not_ready_reasons():
        _log.info("waiting for the container runtime: %s", "; ".join(problems))
        await asyncio.sleep(0.2)

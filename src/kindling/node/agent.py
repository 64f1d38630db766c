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
    default_environment: Mapping[str, str] = field(default_factory=dict)
    max_pod_processes: int = 4096
    """The most processes and threads of one pod: stops a fork bomb, and leaves enough for a large guest."""
    registered: Callable[[], object] = lambda: None
    """Called once the node's status has been reported."""


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
        settings = self._settings
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(settings.api))
            runtime = await stack.enter_async_context(Containerd(settings.runtime_socket))
            recorder = await stack.enter_async_context(EventRecorder(client, "kubelet", settings.node.name))
            services = Informer(client, SERVICES)
            pods = Informer(client, PODS, field_selector=f"spec.nodeName={settings.node.name}")

            def extended() -> Mapping[str, tuple[int, int]]:
                return devices.capacity()

            self._registration = NodeRegistration(
                client, runtime, settings.node, extended, settings.registered
            )
            devices = DeviceManager(identity.ROOT / "device-plugins", self._registration.changed)
            await devices.start()
            stack.push_async_callback(devices.close)
            probes = ProbeManager(runtime)
            stack.push_async_callback(probes.close)
            pod_workers = PodWorkers(lambda pod: PodWorker(pod, shared))
            pleg = Pleg(runtime, pod_workers.pod_changed)
            images = ImageManager(runtime)
            host_files = HostFiles()

            def record_event(pod: JsonObject, kind: str, reason: str, message: str, container: str) -> None:
                subject = {"apiVersion": "v1", "kind": "Pod", **pod}
                where = identity.field_path(pod, container) if container else ""
                recorder.event(subject, "Warning" if kind == "Warning" else "Normal", reason, message, where)

            backend = ApiBackend(
                client,
                images,
                record_event,
                self._facts,
                services.list,
                lambda uid: pleg.runtime_status(uid).ips,
                host_files,
            )

            async def release(uid: str) -> None:
                devices.release(uid)
                backend.forget(uid)
                await asyncio.to_thread(remove_pod_cgroups, settings.cgroup_root, uid)

            csi = CsiRegistry(client, settings.node.name, identity.ROOT / "plugins_registry")
            csi_volumes = CsiVolumes(client, csi, settings.node.name)
            stack.push_async_callback(csi_volumes.close)
            volumes = VolumeManager(backend, {"csi": csi_volumes})
            confinement = Confinement(runtime, settings.cgroup_root, settings.max_pod_processes)
            starter = ContainerStarter(
                StarterServices(
                    runtime=runtime,
                    images=images,
                    volumes=volumes,
                    record_event=record_event,
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
            shared = PodServices(
                runtime=runtime,
                pleg=pleg,
                status_manager=StatusManager(client),
                volumes=volumes,
                probes=probes,
                starter=starter,
                stopper=PodStopper(runtime, record_event),
                recorder=recorder,
                node=self._facts,
                release=release,
                admitted=pod_workers.admitted,
            )
            routes = Routes(
                RouteServices(
                    runtime=runtime,
                    pods=pods.list,
                    runtime_status=pleg.runtime_status,
                    is_healthy=lambda: True,
                    summary=lambda: self._summary(runtime),
                    metrics=lambda: self._metrics(runtime),
                )
            )
            access = Access(client, settings.node.name)
            await stack.enter_async_context(
                http.serving(
                    routes.handle, settings.node.address, settings.node.port, self._tls(), access.check
                )
            )
            housekeeping = Housekeeping(runtime, pleg, confinement.sweep, LostShims(settings.runtime_socket))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._registration.run(), name="node-registration")
                group.create_task(services.run(), name="services")
                await services.wait_synced()
                group.create_task(pods.run(), name="pods")
                await pods.wait_synced()
                await _until_ready(runtime)
                await pleg.relist()
                await confinement.adopt(pleg.sandboxes())
                group.create_task(pleg.run(), name="runtime-pleg")
                live = {str(pod["metadata"]["uid"]) for pod in pods.list()}
                devices.retain(live)
                pod_workers.adopt_orphans((pleg.uids() | volumes.uids()) - live, pleg)
                group.create_task(housekeeping.run(), name="housekeeping")
                group.create_task(csi.run(), name="csi-registry")
                group.create_task(pod_workers.run(pods), name="pod-workers")

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

"""The node agent: what a kubelet does, made of the parts in this package."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from kindling.network.policy_enforcer import PolicyEnforcer
from kindling.node.agent_parts import Bounds, Connections, Parts
from kindling.node.backend import ApiBackend
from kindling.node.cpus import topology
from kindling.node.cpus.manager import CpuManager
from kindling.node.devices.manager import DeviceManager
from kindling.node.eviction.manager import EvictionManager, EvictionServices
from kindling.node.housekeeping import Housekeeping
from kindling.node.images.collector import LOADED_IMAGES, ImageCollector
from kindling.node.images.host_image import HostFiles
from kindling.node.images.manager import ImageManager
from kindling.node.networks.attachments import NetworkSettings, PodNetworks
from kindling.node.pods import identity, sysctls
from kindling.node.pods.admission import Refusal
from kindling.node.pods.allocations import Allocations
from kindling.node.pods.cgroup_removal import remove_pod_cgroups
from kindling.node.pods.confinement import Confinement
from kindling.node.pods.cpu_quotas import CpuQuotas
from kindling.node.pods.downward_api import NodeFacts
from kindling.node.pods.orphans import Orphans
from kindling.node.pods.pleg import Pleg
from kindling.node.pods.pod_cgroups import NodeShare, PodCgroups
from kindling.node.pods.pod_services import PodServices
from kindling.node.pods.pod_worker import PodWorker
from kindling.node.pods.pod_workers import PodWorkers
from kindling.node.pods.resizing import Resizer, ResizeServices
from kindling.node.pods.sandbox import ResolverSettings
from kindling.node.pods.starter import ContainerStarter, StarterServices
from kindling.node.pods.status_manager import StatusManager
from kindling.node.pods.stopper import PodStopper
from kindling.node.probes.manager import ProbeManager
from kindling.node.registration import NodeRegistration, NodeSettings, memory_bytes
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.shims import LostShims
from kindling.node.server import http
from kindling.node.server.access import Access
from kindling.node.server.routes import Routes, RouteServices
from kindling.node.stats.collector import Statistics, StatisticsSources
from kindling.node.volumes.csi_agent import CsiAgent, CsiHost
from kindling.node.volumes.manager import VolumeManager
from kindling.scheduler import requests
from kubecore.client import Client, ClientConfig
from kubecore.json import JsonObject
from kubecore.resources import PODS, SERVICES
from kubecore.runtime import EventRecorder, Informer

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentSettings:
    """Settings of the agent. Certificates and keys are PEM files.

    `network_api` may read all pods, namespaces and network policies, which a node's own credentials may not.
    """

    node: NodeSettings
    api: ClientConfig
    network_api: ClientConfig
    runtime_socket: str
    cgroup_root: str
    resolver: ResolverSettings
    tls_cert: Path
    tls_key: Path
    client_ca: Path
    networks: NetworkSettings = field(default_factory=NetworkSettings)
    default_environment: Mapping[str, str] = field(default_factory=dict)
    registered: Callable[[], object] = lambda: None
    """Called once the node's status has been reported."""


class NodeAgent:
    """Runs the pods of one node until cancelled."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._registration: NodeRegistration | None = None
        self._evictions: EvictionManager | None = None

    def _facts(self) -> NodeFacts:
        allocatable: Mapping[str, str] = self._registration.allocatable if self._registration else {}
        return NodeFacts(self._settings.node.name, self._settings.node.addresses, allocatable)

    def _pressure(self) -> Sequence[str]:
        return self._evictions.conditions() if self._evictions is not None else ()

    async def run(self) -> None:
        """Connect, adopt what runs, and work."""
        async with AsyncExitStack() as stack:
            connections = await self._connect(stack)
            parts = await self._make_parts(stack, connections)
            await self._serve(stack, connections, parts)
            await self._work(connections, parts)

    async def _connect(self, stack: AsyncExitStack) -> Connections:
        settings = self._settings
        client = await stack.enter_async_context(Client(settings.api))
        return Connections(
            client=client,
            runtime=await stack.enter_async_context(Containerd(settings.runtime_socket)),
            recorder=await stack.enter_async_context(EventRecorder(client, "kubelet", settings.node.name)),
            services=Informer(client, SERVICES),
            pods=Informer(client, PODS, field_selector=f"spec.nodeName={settings.node.name}"),
        )

    async def _make_parts(self, stack: AsyncExitStack, to: Connections) -> Parts:
        settings = self._settings
        registration, devices = await self._make_registration(stack, to)
        probes = ProbeManager(to.runtime)
        stack.push_async_callback(probes.close)
        pod_workers = PodWorkers(lambda pod: PodWorker(pod, shared))
        pleg = Pleg(to.runtime, pod_workers.pod_changed)
        images, host_files = ImageManager(to.runtime), HostFiles()
        backend = self._make_backend(to, images, pleg, host_files)
        host = CsiHost(to.client, settings.node.name, to.pods.list, to.record_event_of, backend.token)
        csi = CsiAgent(host)
        stack.push_async_callback(csi.volumes.close)
        volumes = VolumeManager(backend, {"csi": csi.volumes})
        network_client = await stack.enter_async_context(Client(settings.network_api))
        policies = PolicyEnforcer(network_client, (settings.resolver.cluster_server,))
        networks = PodNetworks(to.client, to.runtime, to.record_event, settings.networks)
        bounds = await self._make_bounds(to, pod_workers, policies)
        allocations = Allocations(identity.ROOT / "kindling_allocated_resources.json")
        resizer = self._make_resizer(to, allocations, pod_workers, bounds)
        shared = PodServices(
            runtime=to.runtime,
            pleg=pleg,
            status_manager=StatusManager(to.client),
            volumes=volumes,
            probes=probes,
            starter=self._make_starter(to, backend, images, volumes, devices, host_files, bounds),
            stopper=PodStopper(to.runtime, to.record_event, networks.detach),
            recorder=to.recorder,
            node=self._facts,
            release=self._release(resizer, bounds, devices, backend),
            networks=networks,
            admitted=pod_workers.admitted,
            pressure=self._pressure,
            resizer=resizer,
            reserve=self._reserve(bounds.cpus),
        )
        return Parts(
            registration=registration,
            devices=devices,
            pleg=pleg,
            pod_workers=pod_workers,
            volumes=volumes,
            csi=csi,
            confinement=bounds.confinement,
            policies=policies,
            networks=networks,
            statistics=self._statistics(to, pleg),
            pod_cgroups=bounds.pod_cgroups,
            allocations=allocations,
            cpus=bounds.cpus,
        )

    def _make_backend(
        self, to: Connections, images: ImageManager, pleg: Pleg, host_files: HostFiles
    ) -> ApiBackend:
        return ApiBackend(
            to.client,
            images,
            to.record_event,
            self._facts,
            to.services.list,
            lambda uid: pleg.runtime_status(uid).ips,
            host_files,
        )

    async def _make_bounds(
        self, to: Connections, pod_workers: PodWorkers, policies: PolicyEnforcer
    ) -> Bounds:
        """What limits the containers of pods."""
        root, options = self._settings.cgroup_root, self._settings.node.options
        cpus = CpuManager(options, topology.read(), identity.ROOT, to.runtime)
        cpu = int(requests.parse_amounts(self._facts().allocatable).get("cpu", 0))
        reserved = options.reserved("memory").value
        share = NodeShare(cpu, memory_bytes() - reserved if reserved else None)
        pod_cgroups = PodCgroups(root, options, share, pod_workers.admitted)
        await asyncio.to_thread(pod_cgroups.start)
        return Bounds(Confinement(to.runtime, policies), pod_cgroups, CpuQuotas(root, cpus.cpus), cpus)

    def _make_resizer(
        self, to: Connections, allocations: Allocations, pod_workers: PodWorkers, bounds: Bounds
    ) -> Resizer:
        return Resizer(
            ResizeServices(
                runtime=to.runtime,
                allocations=allocations,
                pod_cgroups=bounds.pod_cgroups,
                cpu_quotas=bounds.cpu_quotas,
                admitted=pod_workers.admitted,
                allocatable=lambda: self._facts().allocatable,
                record_event=to.record_event,
                node_memory_bytes=memory_bytes(),
                is_pinned=bounds.cpus.is_pinned,
            )
        )

    def _reserve(self, cpus: CpuManager) -> Callable[[JsonObject], Refusal | None]:
        """What admits a pod to what the node has only once."""
        unsafe = self._settings.node.options.allowed_unsafe_sysctls
        return lambda pod: sysctls.refusal(pod, unsafe) or cpus.admit(pod)

    def _release(
        self, resizer: Resizer, bounds: Bounds, devices: DeviceManager, backend: ApiBackend
    ) -> Callable[[str], Awaitable[None]]:
        """What takes back all that a pod had, once it has ended."""

        async def release(uid: str) -> None:
            resizer.forget(uid)
            bounds.cpus.release(uid)
            bounds.cpu_quotas.forget(uid)
            devices.release(uid)
            backend.forget(uid)
            await asyncio.to_thread(remove_pod_cgroups, self._settings.cgroup_root, uid)

        return release

    async def _make_registration(
        self, stack: AsyncExitStack, to: Connections
    ) -> tuple[NodeRegistration, DeviceManager]:
        settings = self._settings

        def extended() -> Mapping[str, tuple[int, int]]:
            return devices.capacity()

        registration = NodeRegistration(
            to.client, to.runtime, settings.node, extended, settings.registered, self._pressure
        )
        self._registration = registration
        devices = DeviceManager(identity.ROOT / "device-plugins", registration.changed)
        await devices.start()
        stack.push_async_callback(devices.close)
        return registration, devices

    def _make_starter(
        self,
        to: Connections,
        backend: ApiBackend,
        images: ImageManager,
        volumes: VolumeManager,
        devices: DeviceManager,
        host_files: HostFiles,
        bounds: Bounds,
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
                node_memory_bytes=memory_bytes(),
                host_files=host_files,
                confinement=bounds.confinement,
                pod_cgroups=bounds.pod_cgroups,
                cpu_quotas=bounds.cpu_quotas,
                cpus=bounds.cpus.cpus,
                is_pinned=bounds.cpus.is_pinned,
                default_environment=settings.default_environment,
            )
        )

    def _statistics(self, to: Connections, pleg: Pleg) -> Statistics:
        return Statistics(
            StatisticsSources(
                node=self._settings.node.name,
                runtime=to.runtime,
                pods=to.pods.list,
                runtime_status=pleg.runtime_status,
                cgroup_root=self._settings.cgroup_root,
            )
        )

    async def _serve(self, stack: AsyncExitStack, to: Connections, parts: Parts) -> None:
        """Serve the node's own API: logs, exec, statistics."""
        routes = Routes(
            RouteServices(
                runtime=to.runtime,
                pods=to.pods.list,
                runtime_status=parts.pleg.runtime_status,
                is_healthy=lambda: True,
                statistics=lambda with_disk: parts.statistics.collect(with_disk=with_disk),
                volumes=parts.csi.stats.of_pods,
            )
        )
        node = self._settings.node
        access = Access(to.client, node.name)
        await stack.enter_async_context(
            http.serving(routes.handle, node.addresses[0], node.port, self._tls(), access.check)
        )

    async def _work(self, to: Connections, parts: Parts) -> None:
        """Run all parts: caches first, then what ran before this agent, then everything else."""
        pleg, pod_workers = parts.pleg, parts.pod_workers
        node_event = to.node_event(self._settings.node.name)
        images = ImageCollector(
            to.runtime, self._settings.node.options, to.pods.list, node_event, identity.ROOT / LOADED_IMAGES
        )
        orphans = parts.orphans(to.pods, self._settings.cgroup_root)
        housekeeping = self._make_housekeeping(to, parts, images, orphans)
        evictions = self._make_evictions(to, parts, housekeeping, images)
        self._evictions = evictions
        async with asyncio.TaskGroup() as group:
            group.create_task(parts.registration.run(), name="node-registration")
            group.create_task(to.services.run(), name="services")
            await to.services.wait_synced()
            group.create_task(to.pods.run(), name="pods")
            await to.pods.wait_synced()
            await _until_ready(to.runtime)
            await pleg.relist()
            await parts.confinement.adopt(pleg.sandboxes())
            group.create_task(parts.policies.run(), name="network-policies")
            parts.networks.load()
            group.create_task(pleg.run(), name="runtime-pleg")
            await self._adopt(to, parts, orphans)
            group.create_task(housekeeping.run(), name="housekeeping")
            group.create_task(evictions.run(), name="eviction")
            group.create_task(parts.csi.run(), name="csi")
            group.create_task(pod_workers.run(to.pods), name="pod-workers")

    async def _adopt(self, to: Connections, parts: Parts, orphans: Orphans) -> None:
        """Keep what living pods hold, and have workers take down what is left of the others."""
        live = {str(pod["metadata"]["uid"]) for pod in to.pods.list()}
        parts.devices.retain(live)
        parts.allocations.retain(live)
        parts.cpus.retain(live)
        await orphans.adopt()

    def _make_housekeeping(
        self, to: Connections, parts: Parts, images: ImageCollector, orphans: Orphans
    ) -> Housekeeping:
        pleg = parts.pleg

        async def share_processors() -> None:
            await parts.cpus.reconcile(
                (pod, container)
                for pod in parts.pod_workers.admitted()
                for container in pleg.runtime_status(str(pod["metadata"]["uid"])).all_containers()
            )

        async def forget_networks() -> None:
            await parts.networks.sweep([sandbox.id for sandbox in pleg.sandboxes()])

        chores = (
            parts.confinement.sweep,
            forget_networks,
            parts.pod_cgroups.refresh,
            share_processors,
            orphans.sweep,
        )
        lost_shims = LostShims(self._settings.runtime_socket)
        return Housekeeping(to.runtime, pleg, chores, lost_shims, images.collect)

    def _make_evictions(
        self, to: Connections, parts: Parts, housekeeping: Housekeeping, images: ImageCollector
    ) -> EvictionManager:
        async def reclaim() -> None:
            await housekeeping.remove_dead_containers()
            await images.remove_unused()

        return EvictionManager(
            self._settings.node.options,
            EvictionServices(
                statistics=parts.statistics,
                pods=parts.pod_workers.admitted,
                evict=parts.pod_workers.evict,
                reclaim=reclaim,
                record_event=to.record_event,
                record_node_event=to.node_event(self._settings.node.name),
                changed=parts.registration.changed,
            ),
        )

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self._settings.client_ca)
        context.load_cert_chain(self._settings.tls_cert, self._settings.tls_key)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


async def _until_ready(runtime: Containerd) -> None:
    while problems := await runtime.not_ready_reasons():
        _log.info("waiting for the container runtime: %s", "; ".join(problems))
        await asyncio.sleep(0.2)

"""virt-handler as a component."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from pathlib import Path

from aiohttp import web

from kubecore.client import Client
from kubecore.json import JsonObject, get_str
from kubecore.resources import CONFIG_MAPS
from kubecore.runtime import Context, EventRecorder, Informer, Manager
from kubecore.runtime.metrics import collected
from virtplane.api import labels
from virtplane.api.config import VERSION_DETAIL, ClusterConfig, LastGood, observed_version
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.resources import KUBEVIRTS, VIRTUAL_MACHINE_INSTANCES
from virtplane.compute.handler import kubeletroot, kvm, libvirtcalls
from virtplane.compute.handler.api import until_answered
from virtplane.compute.handler.controller import InstanceController
from virtplane.compute.handler.guestmetrics import GuestMetrics
from virtplane.compute.handler.node import capabilities, hyperv, seccomp
from virtplane.compute.handler.node import heartbeat as heartbeats
from virtplane.compute.handler.node.deviceplugin import UNITS, DevicePlugin, devices
from virtplane.compute.handler.node.heartbeat import Heartbeat
from virtplane.compute.handler.node.ksm import KsmKeeper
from virtplane.compute.handler.node.labeller import NodeLabeller, Offers
from virtplane.compute.handler.node.mediated import MediatedDevices
from virtplane.compute.handler.node.optional import OptionalPlugins, allowed
from virtplane.compute.handler.node.passthrough import PassthroughPlugins
from virtplane.compute.handler.server import ConsoleServer, server_tls
from virtplane.compute.handler.settings import HandlerSettings
from virtplane.compute.handler.storage import heldimages
from virtplane.compute.handler.thaws import Thaws
from virtplane.compute.handler.threads import StepBlocked, Steps, in_thread
from virtplane.serving.tls import ServersTLS

logger = logging.getLogger(__name__)

_CA_NAME = "kubevirt-ca"
_CA_KEY = "ca-bundle"
_RETRY_SECONDS = 1.0


class VirtHandler:
    """virt-handler: runs the guests of one node."""

    name = "virt-handler"

    async def run(self, context: Context) -> None:
        """Serve this node until cancelled. Guests keep running afterwards."""
        client = context.client(self.name)
        settings = HandlerSettings(node_name=context.node_name)
        manager, serving = Manager(client, queues=context.queues), asyncio.Event()
        # Set the readiness checks first: a process without checks would count as ready.
        context.health.add_ready(
            "informers", lambda: "" if manager.has_started else "caches are not complete"
        )
        context.health.add_ready("consoles", lambda: "" if serving.is_set() else "not serving yet")
        verdict = await _prepare_node(context, settings)
        instances = manager.informer(
            VIRTUAL_MACHINE_INSTANCES,
            label_selector=f"{labels.NODE_NAME}={context.node_name}",
            struct=VirtualMachineInstance,
        )
        installation = _Installation(manager.informer(KUBEVIRTS, namespace=context.namespace))
        await installation.read(client, context.namespace)

        def guests() -> int:
            configured = installation.config().configuration.virtual_machine_instances_per_node
            return UNITS if configured is None else configured

        plugins = [
            DevicePlugin(device, settings.kubelet_root / "device-plugins")
            for device in devices(kvm=verdict.usable, guests=guests)
        ]
        context.health.add_detail(VERSION_DETAIL, lambda: observed_version(installation.document()))
        async with EventRecorder(client, self.name, host=context.node_name) as recorder:
            controller = InstanceController(
                client,
                instances,
                recorder,
                settings,
                installation.config,
                emulation=not verdict.usable,
            )
            labeller = NodeLabeller(
                client,
                recorder,
                context.node_name,
                offers(settings, kvm=verdict.usable),
                installation.config,
            )
            passthrough = PassthroughPlugins(
                settings.kubelet_root / "device-plugins",
                lambda: installation.config().configuration.permitted_host_devices,
            )
            optional = OptionalPlugins(
                settings.kubelet_root / "device-plugins", lambda: allowed(installation.config(), guests)
            )
            ksm = KsmKeeper(client, context.node_name, installation.config)
            mediated = MediatedDevices(
                client, context.node_name, installation.config, passthrough.rounds.look_again
            )

            def look_again(*_: object) -> None:
                for each in (ksm, labeller, mediated, passthrough, optional):
                    each.rounds.look_again()

            installation.informer.add_handler(look_again)

            def is_ready() -> bool:
                offered = all(plugin.ready.is_set() for plugin in plugins)
                return manager.has_started and labeller.has_labelled and offered

            def dedicates_cpus() -> bool:
                manages = installation.config().gate("CPUManager")
                return manages and heartbeats.dedicates_cpus(settings.kubelet_root)

            heartbeat = Heartbeat(client, recorder, context.node_name, verdict, is_ready, dedicates_cpus)
            manager.add(controller.controller)
            manager.add_runnable("heartbeat", heartbeat.run)
            manager.add_runnable("node-labeller", labeller.run)
            manager.add_runnable("host-devices", passthrough.run)
            manager.add_runnable("optional-devices", optional.run)
            manager.add_runnable("ksm", ksm.run)
            manager.add_runnable("mediated-devices", mediated.run)
            thaws = Thaws(settings.thaw_directory, controller)
            console_server = ConsoleServer(controller, thaws)
            consoles = partial(_serve, client, context, settings, console_server, serving)
            manager.add_runnable("console-server", consoles)
            for plugin in plugins:
                manager.add_runnable(f"device-plugin-{plugin.device.name}", plugin.run)
            thaws.resume()
            metrics = GuestMetrics(context.node_name, controller.guests)
            try:
                with collected(context.registry, metrics):
                    await manager.run()
            finally:
                await thaws.close()
                await controller.close()


class _Installation:
    """The KubeVirt object and its settings. Those that cannot be read leave the last good ones in force."""

    def __init__(self, informer: Informer[JsonObject]) -> None:
        self.informer = informer
        self._settings = LastGood()
        self._first: JsonObject | None = None
        """What was read before the cache was complete."""

    async def read(self, client: Client, namespace: str) -> None:
        """Read the object once, without the cache. Waits while the API does not answer."""
        found = await until_answered("the configuration", lambda: client.list(KUBEVIRTS, namespace))
        self._first = next(iter(found.get("items", ())), None)

    def document(self) -> JsonObject | None:
        """The KubeVirt object; None if there is none."""
        return next(iter(self.informer.list()), None) if self.informer.has_synced else self._first

    def config(self) -> ClusterConfig:
        """The settings in force."""
        return self._settings.of(self.document())


async def _prepare_node(context: Context, settings: HandlerSettings) -> kvm.KvmVerdict:
    """Clean up after an earlier virt-handler, and find out what guests can use; returns whether KVM works."""
    own_pod, mountinfo = os.environ.get("POD_UID", ""), Path("/proc/self/mountinfo").read_text()
    kubeletroot.require(settings.pods_directory, own_pod, context.node_name, mountinfo)
    libvirtcalls.start_events()
    await _unmount_orphans(settings)
    verdict = await kvm.probe()
    logger.info("KVM was probed", extra={"usable": verdict.usable, "why": verdict.why})
    await capabilities.warm(settings.capabilities_cache, kvm=verdict.usable)
    await _install_profile(settings)
    return verdict


async def _install_profile(settings: HandlerSettings) -> None:
    """Install the seccomp profile of servers of shared folders. Other guests do not need it."""
    try:
        await in_thread("seccomp", seccomp.install, settings)
    except OSError as error:
        logger.warning(
            "The seccomp profile of virtiofs servers cannot be installed: guests with shared folders do not"
            " start on this node. Make the kubelet's folder writable, then restart virt-handler",
            extra={"node": settings.node_name, "err": str(error)},
        )


async def _unmount_orphans(settings: HandlerSettings) -> None:
    """Unmount the container disks of pods that ended while virt-handler did not run. A failure only affects
    that pod.
    """
    steps = Steps(settings.node_name, lambda: None)
    try:
        orphans = await steps.run("orphans", heldimages.unmount_orphans, settings.pods_directory)
    except (OSError, StepBlocked) as error:
        logger.warning(
            "Mounts of ended pods cannot be read: the kubelet may be unable to remove those pods."
            " Restart virt-handler on this node to try again",
            extra={"err": str(error)},
        )
        return
    if orphans:
        logger.info("Unmounted container disks of ended pods", extra={"pods": orphans})


def offers(settings: HandlerSettings, *, kvm: bool) -> Offers:
    """What guests can use on this node, as far as the probes succeeded."""
    cache = settings.capabilities_cache
    interfaces: tuple[str, ...] = ()
    if kvm:
        try:
            interfaces = hyperv.interfaces()
        except OSError as error:
            text = "KVM does not report its Hyper-V features: the node gets no hyperv labels"
            logger.warning(text, extra={"err": str(error)})
    machines = tuple(capabilities.machine_types(cache))
    return Offers(machines, capabilities.read_processor(cache, kvm=kvm), interfaces)


async def _serve(
    client: Client,
    context: Context,
    settings: HandlerSettings,
    console_server: ConsoleServer,
    serving: asyncio.Event,
) -> None:
    """Run the console server, and restart it when its certificates were renewed. `serving` is set while it
    listens.
    """
    runner = web.AppRunner(console_server.application(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        while True:
            authorities = await _authorities(client, context.namespace)
            try:
                tls = server_tls(settings, authorities)
            except OSError as error:
                logger.info("Consoles wait for their certificates", extra={"err": str(error)})
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            ServersTLS.of(context).restrict(tls)
            site = web.TCPSite(runner, None, settings.console_port, ssl_context=tls)
            try:
                await site.start()
            except OSError as error:
                logger.error(
                    "Consoles cannot be served; trying again. See which process uses the port on this node",
                    extra={"port": settings.console_port, "err": str(error)},
                )
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            serving.set()
            await _until_renewed(client, context.namespace, settings, authorities)
            serving.clear()
            await site.stop()
    finally:
        await runner.cleanup()


async def _authorities(client: Client, namespace: str) -> str:
    """The certificate authorities of the installation; waits until virt-operator has published them."""
    while True:
        bundle = await until_answered(
            "the authorities of consoles", lambda: client.get(CONFIG_MAPS, _CA_NAME, namespace)
        )
        text = get_str(bundle, "data", _CA_KEY)
        if text:
            return text
        await asyncio.sleep(_RETRY_SECONDS)


async def _until_renewed(client: Client, namespace: str, settings: HandlerSettings, authorities: str) -> None:
    certificate = settings.certificate_directory / "servercertificates" / "tls.crt"
    before = _version(certificate)
    while True:
        await asyncio.sleep(settings.resync_seconds)
        if _version(certificate) != before or await _authorities(client, namespace) != authorities:
            return


def _version(file: Path) -> int:
    """A number that changes with the file; 0 if there is none, as while the kubelet replaces it."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0

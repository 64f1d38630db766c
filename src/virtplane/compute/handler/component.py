"""virt-handler as a component."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from pathlib import Path

from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.runtime import Context, EventRecorder, Informer, Manager
from kubecore.runtime.connection import Connection
from kubecore.runtime.metrics import collected
from virtplane.api import labels
from virtplane.api.config import VERSION_DETAIL, ClusterConfig, LastGood, observed_version
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.plugin_v1alpha1.plugin import Plugin
from virtplane.api.resources import KUBEVIRTS, PLUGINS, VIRTUAL_MACHINE_INSTANCES
from virtplane.compute.handler.api import until_answered
from virtplane.compute.handler.consoles import certificates
from virtplane.compute.handler.consoles.server import ConsoleServer
from virtplane.compute.handler.controller import InstanceController
from virtplane.compute.handler.guestmetrics import GuestMetrics
from virtplane.compute.handler.libvirtd import calls
from virtplane.compute.handler.node import capabilities, kubeletroot, kvm, seccomp
from virtplane.compute.handler.node.keepers import NodeKeepers
from virtplane.compute.handler.node.metrics import NodeMetrics
from virtplane.compute.handler.settings import HandlerSettings
from virtplane.compute.handler.storage import heldimages
from virtplane.compute.handler.thaws import Thaws
from virtplane.compute.handler.threads import StepBlocked, Steps, in_thread
from virtplane.compute.plugins import hooks

logger = logging.getLogger(__name__)


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
        connection = Connection(context.client(f"{self.name}/connection"))
        context.health.add_ready("apiserver", connection.problem)
        verdict = await _prepare_node(context, settings)
        instances = manager.informer(
            VIRTUAL_MACHINE_INSTANCES,
            label_selector=f"{labels.NODE_NAME}={context.node_name}",
            struct=VirtualMachineInstance,
        )
        plugins = manager.informer(PLUGINS, struct=Plugin)
        authorities = certificates.Authorities(manager, context.namespace)
        installation = _Installation(manager.informer(KUBEVIRTS, namespace=context.namespace))
        await installation.read(client, context.namespace)
        context.health.add_detail(VERSION_DETAIL, lambda: observed_version(installation.document()))
        async with EventRecorder(client, self.name, host=context.node_name) as recorder:
            controller = InstanceController(
                client,
                instances,
                recorder,
                settings,
                installation.config,
                emulation=not verdict.usable,
                plugins=lambda: plugins.list() if installation.config().gate(hooks.GATE) else (),
            )
            manager.add(controller.controller)
            keepers = NodeKeepers(client, manager, recorder, settings, verdict, installation.config)
            installation.informer.add_handler(keepers.look_again)
            thaws = Thaws(settings.thaw_directory, controller)
            console_server = ConsoleServer(controller, thaws)
            consoles = partial(certificates.serve, context, settings, console_server, authorities, serving)
            manager.add_runnable("console-server", consoles)
            manager.add_runnable("connection", connection.run)
            thaws.resume()
            deprecated = capabilities.deprecated_machine_types(settings.capabilities_cache)
            metrics = (
                GuestMetrics(context.node_name, controller.guests),
                NodeMetrics(context.node_name, deprecated),
                controller.writes.counts,
                controller.events.panics,
            )
            try:
                with collected(context.registry, *metrics):
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
    own_pod, mountinfo = os.environ.get("POD_UID", ""), Path("/proc/self/mountinfo").read_bytes()
    kubeletroot.require(settings.pods_directory, own_pod, context.node_name, mountinfo)
    calls.start_events()
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

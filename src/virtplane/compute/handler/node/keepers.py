"""All that virt-handler keeps of its node while it runs: labels and heartbeat, devices, KSM."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kubecore.client import Client
from kubecore.runtime import EventRecorder, Manager
from virtplane.api.config import ClusterConfig
from virtplane.compute.handler.node import capabilities, hyperv
from virtplane.compute.handler.node import heartbeat as heartbeats
from virtplane.compute.handler.node.deviceplugin import UNITS, DevicePlugin, devices
from virtplane.compute.handler.node.heartbeat import Heartbeat
from virtplane.compute.handler.node.ksm import KsmKeeper
from virtplane.compute.handler.node.kvm import KvmVerdict
from virtplane.compute.handler.node.labeller import NodeLabeller, Offers
from virtplane.compute.handler.node.mediated import MediatedDevices
from virtplane.compute.handler.node.optional import OptionalPlugins, allowed
from virtplane.compute.handler.node.passthrough import PassthroughPlugins
from virtplane.compute.handler.settings import HandlerSettings

logger = logging.getLogger(__name__)


class NodeKeepers:
    """The keepers of one node, which `manager` runs. `config` gives the settings of the installation."""

    def __init__(
        self,
        client: Client,
        manager: Manager,
        recorder: EventRecorder,
        settings: HandlerSettings,
        verdict: KvmVerdict,
        config: Callable[[], ClusterConfig],
    ) -> None:
        self._settings, self._config = settings, config
        name, folder = settings.node_name, settings.kubelet_root / "device-plugins"
        self._plugins = [
            DevicePlugin(device, folder) for device in devices(kvm=verdict.usable, guests=self._guests)
        ]
        self._labeller = NodeLabeller(client, recorder, name, offers(settings, kvm=verdict.usable), config)
        self._passthrough = PassthroughPlugins(folder, lambda: config().configuration.permitted_host_devices)
        self._optional = OptionalPlugins(folder, lambda: allowed(config(), self._guests))
        self._ksm = KsmKeeper(client, name, config)
        self._mediated = MediatedDevices(client, name, config, self._passthrough.rounds.look_again)
        self._manager = manager
        heartbeat = Heartbeat(client, recorder, name, verdict, self._is_ready, self._dedicates_cpus)
        manager.add_runnable("heartbeat", heartbeat.run)
        manager.add_runnable("node-labeller", self._labeller.run)
        manager.add_runnable("host-devices", self._passthrough.run)
        manager.add_runnable("optional-devices", self._optional.run)
        manager.add_runnable("ksm", self._ksm.run)
        manager.add_runnable("mediated-devices", self._mediated.run)
        for plugin in self._plugins:
            manager.add_runnable(f"device-plugin-{plugin.device.name}", plugin.run)

    def look_again(self, *_: object) -> None:
        """Have all of them look again soon: the installation may have other settings."""
        for each in (self._ksm, self._labeller, self._mediated, self._passthrough, self._optional):
            each.rounds.look_again()

    def _guests(self) -> int:
        configured = self._config().configuration.virtual_machine_instances_per_node
        return UNITS if configured is None else configured

    def _is_ready(self) -> bool:
        offered = all(plugin.ready.is_set() for plugin in self._plugins)
        return self._manager.has_started and self._labeller.has_labelled and offered

    def _dedicates_cpus(self) -> bool:
        manages = self._config().gate("CPUManager")
        return manages and heartbeats.dedicates_cpus(self._settings.kubelet_root)


def offers(settings: HandlerSettings, *, kvm: bool) -> Offers:
    """What guests can use on this node, as far as the probes succeeded."""
    cache = settings.capabilities_cache
    interfaces: tuple[str, ...] = ()
    if kvm:
        try:
            interfaces = hyperv.interfaces()
        except OSError as error:
            text = "KVM does not report its Hyper-V features: the node gets no hyperv labels"
            logger.warning(text, extra={"node": settings.node_name, "err": str(error)})
    machines = tuple(capabilities.machine_types(cache))
    return Offers(machines, capabilities.read_processor(cache, kvm=kvm), interfaces)

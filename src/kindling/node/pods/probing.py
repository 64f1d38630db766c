"""Which containers of a pod are probed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from kindling.node.pods.api_status import containers_with_probes, reported_status
from kindling.node.pods.downward_api import NodeFacts
from kindling.node.pods.runtime_status import PodRuntimeStatus
from kindling.node.probes.handlers import Target
from kindling.node.probes.manager import Listener, ProbeManager
from kindling.node.runtime.interface import ContainerState
from kubecore.json import JsonObject, get_str


@dataclass(frozen=True, slots=True)
class PodProbing:
    """Has the running containers of one pod probed, and no others."""

    probes: ProbeManager
    node: Callable[[], NodeFacts]
    listener: Listener

    def watch(self, pod: JsonObject, observed: PodRuntimeStatus, starting: Collection[str]) -> None:
        """Probe what runs now; `starting` are ids of containers whose postStart hook has not returned."""
        for container in containers_with_probes(pod):
            found = observed.current(get_str(container, "name"))
            if found is None or found.state is not ContainerState.RUNNING or found.id in starting:
                continue
            known = reported_status(pod, found)
            address = (observed.ips or self.node().ips or ("",))[0]
            self.probes.watch(
                Target(found.id, container, address),
                self.listener,
                was_started=known.get("started") is True,
                was_ready=known.get("ready") is True,
            )
        for found in observed.all_containers():
            if found.state is ContainerState.EXITED:
                self.probes.forget(found.id)

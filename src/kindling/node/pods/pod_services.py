"""What every pod worker uses: the parts of the agent that act on pods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kindling.node.networks.attachments import PodNetworks
from kindling.node.pods.admission import Refusal
from kindling.node.pods.downward_api import NodeFacts
from kindling.node.pods.pleg import Pleg
from kindling.node.pods.resizing import Resizer
from kindling.node.pods.starter import ContainerStarter
from kindling.node.pods.status_manager import StatusManager
from kindling.node.pods.stopper import PodStopper
from kindling.node.probes.manager import ProbeManager
from kindling.node.runtime.containerd import Containerd
from kindling.node.volumes.manager import VolumeManager
from kubecore.json import JsonObject
from kubecore.runtime import EventRecorder


@dataclass
class PodServices:
    """What all workers use."""

    runtime: Containerd
    pleg: Pleg
    status_manager: StatusManager
    volumes: VolumeManager
    probes: ProbeManager
    starter: ContainerStarter
    stopper: PodStopper
    recorder: EventRecorder
    node: Callable[[], NodeFacts]
    release: Callable[[str], Awaitable[None]]
    """Frees a pod's devices, cgroups and cached tokens, by uid."""
    networks: PodNetworks
    admitted: Callable[[], list[JsonObject]]
    """The pods that were admitted to this node and have not ended."""
    pressure: Callable[[], Sequence[str]]
    """The node's conditions of pressure that are true."""
    resizer: Resizer
    reserve: Callable[[JsonObject], Refusal | None]
    """Sets aside processors for a pod that has room; why that, or a kernel parameter, is not possible."""

"""The parts of the agent that have to do with CSI, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kindling.node.pods import identity
from kindling.node.volumes.csi import CsiServices, CsiVolumes
from kindling.node.volumes.csi_attachments import Attachments
from kindling.node.volumes.csi_growth import Growth, RecordEvent
from kindling.node.volumes.csi_limits import LimitUpdates
from kindling.node.volumes.csi_registry import CsiRegistry
from kindling.node.volumes.csi_requests import CsiRequests, IssueToken
from kindling.node.volumes.csi_stats import CsiStats
from kindling.node.volumes.csi_upkeep import Tending, Upkeep
from kubecore.client import Client
from kubecore.json import JsonObject


@dataclass(frozen=True, slots=True)
class CsiHost:
    """What CSI needs from the rest of the agent. `pods` are all pods of the node."""

    client: Client
    node_name: str
    pods: Callable[[], Sequence[JsonObject]]
    record_event: RecordEvent
    issue_token: IssueToken | None = None


class CsiAgent:
    """Drivers, their volumes, and what goes on beside the pods' workers."""

    def __init__(self, host: CsiHost) -> None:
        client, node_name = host.client, host.node_name
        requests = CsiRequests(client, host.issue_token)
        self.registry = CsiRegistry(client, node_name, identity.ROOT / "plugins_registry")
        self.attachments = Attachments(client, node_name)
        growth = Growth(client, requests, node_name, host.record_event)
        services = CsiServices(self.registry, requests, self.attachments, growth, node_name)
        self.volumes = CsiVolumes(services)
        self.stats = CsiStats(self.registry, host.pods, host.record_event)
        self.limits = LimitUpdates(self.registry, requests)
        self.upkeep = Upkeep(Tending(client, self.volumes, requests, host.pods, host.record_event))

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.registry.run(), name="csi-registry")
            group.create_task(self.attachments.run(), name="csi-attachments")
            group.create_task(self.limits.run(), name="csi-limits")
            group.create_task(self.stats.run(), name="csi-stats")
            group.create_task(self.upkeep.run(), name="csi-upkeep")

"""How long deletions of machines take while everything is killed, and what the cluster says of slow ones."""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.e2e.clusters import CORE, KUBEVIRT, NAMESPACE, Cluster, is_ready
from tests.e2e.failures import ApiError, Document

from kubecore.objects.times import format_time

DELETED_SECONDS = 30.0
"""Within this a deleted machine is gone, or something says why it is not."""

_OBJECTS = (
    f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachines",
    f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachineinstances",
    f"{CORE}/namespaces/{NAMESPACE}/pods",
)
_NAME = "vm.kubevirt.io/name"


@dataclass
class Deletions:
    """Deletions that users have asked for. Times are monotonic seconds."""

    cluster: Cluster
    pending: dict[str, float] = field(default_factory=dict)
    """When each was asked for, by the machine's name."""
    took: list[float] = field(default_factory=list)
    explained: dict[str, list[str]] = field(default_factory=dict)
    """What was said of those that took longer than they may."""
    unexplained: dict[str, float] = field(default_factory=dict)
    """The others that took longer, with the seconds after which nobody had said why."""

    def begin(self, name: str) -> None:
        """A user has asked for the deletion of that machine."""
        self.pending.setdefault(name, time.monotonic())

    def all_ended(self, allowed_seconds: float) -> bool:
        """Whether all that was asked for is gone."""
        self.look(allowed_seconds)
        return not self.pending

    def look(self, allowed_seconds: float) -> None:
        """Settle the deletions that have ended, and ask why others have not ended in time.

        Nothing is settled while the API does not answer: then users see that it is the API.
        """
        try:
            left = {name_of(item) for path in _OBJECTS for item in self.cluster.items(path)}
            now = time.monotonic()
            for name in [name for name in self.pending if name not in left]:
                self.took.append(now - self.pending.pop(name))
            for name, asked in self.pending.items():
                if now - asked <= allowed_seconds or name in self.explained:
                    continue
                if said := reasons(self.cluster, name, now - asked):
                    self.explained[name] = said
                    self.unexplained.pop(name, None)
                else:
                    self.unexplained[name] = now - asked
        except (OSError, http.client.HTTPException, ApiError):
            return


def name_of(item: Document) -> str:
    """The machine that an object, or a launcher's pod, belongs to."""
    labels = item["metadata"].get("labels", {})
    return str(labels.get(_NAME) or item["metadata"]["name"])


def reasons(cluster: Cluster, name: str, seconds: float) -> list[str]:
    """What says why a machine is not gone: its instance, events, and what of the cluster is not ready.

    Events of before the last `seconds`, since when it is deleted, say nothing of that.
    """
    since = format_time(datetime.now(UTC) - timedelta(seconds=seconds))
    instance = cluster.find(f"{_OBJECTS[1]}/{name}") or {}
    said = [
        f"instance: {each['type']}: {each['message']}"
        for each in instance.get("status", {}).get("conditions", ())
        if each["status"] == "False" and each["type"] == "Synchronized" and each.get("message")
    ]
    for event in cluster.items(f"{CORE}/namespaces/{NAMESPACE}/events"):
        is_new = str(event.get("lastTimestamp") or "") >= since
        if is_new and event["type"] == "Warning" and name in event["involvedObject"]["name"]:
            said.append(f"event of {event['involvedObject']['kind']}: {event['message']}")
    for pod in cluster.items(f"{CORE}/namespaces/kubevirt/pods"):
        if not is_ready(pod):
            said.append(f"pod {pod['metadata']['name']} is not ready")
    for node in cluster.items(f"{CORE}/nodes"):
        if not is_ready(node):
            said.append(f"node {node['metadata']['name']} is not ready")
    return said

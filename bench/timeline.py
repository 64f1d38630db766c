"""When each thing happened to a virtual machine, from the first request to its last object's end.

Everything is read from watches, so nothing waits for a poll; times are those of this process's clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kubecore.client import Client, WatchEvent
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.resources import PODS, ResourceType
from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES, VIRTUAL_MACHINES

STEPS = (
    "VM stored",
    "VMI created",
    "pod created",
    "pod scheduled",
    "sandbox and volumes ready",
    "containers started",
    "VMI Scheduled",
    "VMI Running",
    "VMI Ready",
)


BOOTED = "guest agent connected"
"""The guest's own services run; not a step of every machine, since most are deleted before."""

_CONDITIONS = {"Ready": "VMI Ready", "AgentConnected": BOOTED}


@dataclass
class Timeline:
    """Moments of one machine, in seconds since it was asked for."""

    begun: float
    moments: dict[str, float] = field(default_factory=dict)
    deleted: dict[str, float] = field(default_factory=dict)
    pod_uid: str = ""

    def reach(self, step: str, now: float) -> None:
        """Note the first time of `step`."""
        self.moments.setdefault(step, now - self.begun)


class Recorder:
    """Follows the machines of one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._changed = asyncio.Condition()
        self.machines: dict[str, Timeline] = {}

    async def run(self, ready: asyncio.Event) -> None:
        """Watch until cancelled."""
        watched: list[tuple[ResourceType, Callable[[Timeline, JsonObject, float], None]]] = [
            (VIRTUAL_MACHINES, lambda line, _obj, now: line.reach("VM stored", now)),
            (VIRTUAL_MACHINE_INSTANCES, _instance),
            (PODS, _pod),
        ]
        started = [asyncio.Event() for _ in watched]
        async with asyncio.TaskGroup() as group:
            for (resource, note), event in zip(watched, started, strict=True):
                group.create_task(self._follow(resource, note, event))
            for event in started:
                await event.wait()
            ready.set()

    async def wait(self, done: Callable[[], bool], seconds: float) -> None:
        """Return once `done`, looked at after every event. Raises TimeoutError."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(done)

    async def _follow(
        self,
        resource: ResourceType,
        note: Callable[[Timeline, JsonObject, float], None],
        started: asyncio.Event,
    ) -> None:
        listed = await self._client.list(resource, self._namespace)
        version = get_str(listed, "metadata", "resourceVersion")
        started.set()
        while True:
            # The server ends every watch after some time; the next goes on where it stood.
            async for event in self._client.watch(
                resource, self._namespace, resource_version=version, bookmarks=True
            ):
                version = get_str(event.object, "metadata", "resourceVersion") or version
                if event.type != "BOOKMARK":
                    await self._note(resource.plural, note, event)

    async def _note(
        self, kind: str, note: Callable[[Timeline, JsonObject, float], None], event: WatchEvent
    ) -> None:
        now = time.monotonic()
        line = self.machines.get(_machine_of(event.object))
        if line is None:
            return
        if event.type == "DELETED":
            line.deleted[kind] = now
        else:
            note(line, event.object, now)
        async with self._changed:
            self._changed.notify_all()


def _machine_of(obj: JsonObject) -> str:
    labels = get_object(obj, "metadata", "labels")
    return str(labels.get("vm.kubevirt.io/name") or get_str(obj, "metadata", "name"))


def _instance(line: Timeline, vmi: JsonObject, now: float) -> None:
    line.reach("VMI created", now)
    phase = get_str(vmi, "status", "phase")
    if phase in ("Scheduled", "Running"):
        line.reach("VMI Scheduled", now)
    if phase == "Running":
        line.reach("VMI Running", now)
    for condition in get_list(vmi, "status", "conditions"):
        if condition["status"] == "True" and condition["type"] in _CONDITIONS:
            line.reach(_CONDITIONS[condition["type"]], now)


def _pod(line: Timeline, pod: JsonObject, now: float) -> None:
    line.pod_uid = get_str(pod, "metadata", "uid")
    line.reach("pod created", now)
    if get_str(pod, "spec", "nodeName"):
        line.reach("pod scheduled", now)
    statuses = get_list(pod, "status", "containerStatuses") + get_list(pod, "status", "initContainerStatuses")
    if get_str(pod, "status", "podIP") or any(
        "state" in each and "waiting" not in each["state"] for each in statuses
    ):
        line.reach("sandbox and volumes ready", now)
    mains = get_list(pod, "status", "containerStatuses")
    if mains and all("running" in get_object(each, "state") for each in mains):
        line.reach("containers started", now)

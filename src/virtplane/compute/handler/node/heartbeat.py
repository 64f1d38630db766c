"""The node's heartbeat: whether guests can be scheduled to it, and whether they run with KVM."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable
from pathlib import Path

from kubecore.client import Client
from kubecore.json import JsonObject, get_object
from kubecore.objects.times import now_rfc3339
from kubecore.resources import NODES
from kubecore.runtime import EventRecorder
from virtplane.api.labels import CPU_MANAGER, CPU_MANAGER_OLD, HEARTBEAT, SCHEDULABLE
from virtplane.compute.handler.api import FAILURES, in_time
from virtplane.compute.handler.node.kvm import KvmVerdict
from virtplane.compute.handler.troubles import Trouble

logger = logging.getLogger(__name__)

_INTERVAL_SECONDS = 60.0
_JITTER = 1.2
_RETRY_SECONDS = 1.0
_CPU_MANAGER_STATE = "cpu_manager_state"
_CONDITION = "KubeVirtHardwareVirtualization"


def labels(*, schedulable: bool, dedicates_cpus: bool = False) -> dict[str, str]:
    """The labels that say whether guests can be scheduled to the node, and whether they can have CPUs of
    their own there.
    """
    verdict, manager = "true" if schedulable else "false", "true" if dedicates_cpus else "false"
    return {SCHEDULABLE: verdict, CPU_MANAGER: manager, CPU_MANAGER_OLD: manager}


def dedicates_cpus(kubelet_root: Path) -> bool:
    """Whether the kubelet gives containers CPUs that no others use: its CPU manager's policy is static."""
    try:
        found = json.loads((kubelet_root / _CPU_MANAGER_STATE).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("policyName") == "static"


def condition(verdict: KvmVerdict, now: str) -> JsonObject:
    """The node condition that says how guests run here."""
    if verdict.usable:
        reason, message = "KVMWorks", "guests run with KVM"
    else:
        reason, message = "KVMUnusable", f"guests run under emulation: {verdict.why}"
    return {
        "type": _CONDITION,
        "status": "True" if verdict.usable else "False",
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


class Heartbeat:
    """Writes the node's heartbeat. `is_ready`: whether guests can be scheduled here; `dedicates_cpus`:
    whether they can have CPUs of their own.
    """

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        node_name: str,
        verdict: KvmVerdict,
        is_ready: Callable[[], bool],
        dedicates_cpus: Callable[[], bool] = lambda: False,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._node_name = node_name
        self._verdict = verdict
        self._is_ready = is_ready
        self._dedicates_cpus = dedicates_cpus
        self._announced = False
        message = "The node's labels cannot be written; trying again. New guests have to wait."
        self._trouble = Trouble(logger, message, node=node_name)

    async def run(self) -> None:
        """Write heartbeats until cancelled; the last one marks the node as not schedulable for guests."""
        try:
            while True:
                ready = self._is_ready()
                steady = await self._try_beat(schedulable=ready) and ready
                pause = _INTERVAL_SECONDS * random.uniform(1.0, _JITTER) if steady else _RETRY_SECONDS
                await asyncio.sleep(pause)
        except asyncio.CancelledError:
            await self._try_beat(schedulable=False)
            raise

    async def _try_beat(self, *, schedulable: bool) -> bool:
        try:
            await self._beat(schedulable=schedulable)
        except FAILURES as error:
            self._trouble.met(error)
            return False
        self._trouble.over()
        return True

    async def _beat(self, *, schedulable: bool) -> None:
        now = now_rfc3339()
        metadata = {
            "labels": labels(schedulable=schedulable, dedicates_cpus=self._dedicates_cpus()),
            "annotations": {HEARTBEAT: now},
        }
        patch = {"metadata": metadata}
        node = await in_time(self._client.patch(NODES, self._node_name, patch, type="strategic"))
        if self._condition_differs(node):
            status = {"status": {"conditions": [condition(self._verdict, now)]}}
            await in_time(
                self._client.patch(NODES, self._node_name, status, type="strategic", subresource="status")
            )
        if not self._announced and not self._verdict.usable:
            self._announced = True
            node.setdefault("kind", "Node")
            node.setdefault("apiVersion", "v1")
            self._recorder.event(
                node, "Warning", "KVMUnusable", f"guests run under emulation: {self._verdict.why}"
            )

    def _condition_differs(self, node: JsonObject) -> bool:
        wanted = condition(self._verdict, "")
        for existing in get_object(node, "status").get("conditions", ()):
            if existing.get("type") == _CONDITION:
                return any(existing.get(key) != wanted[key] for key in ("status", "reason", "message"))
        return True

"""The node's part in live migrations, which moves simulated guests.

virt-handler does not move guests yet; until it does, this actor does what the controllers count on.
"""

from __future__ import annotations

import random
from typing import Any

from tests.simulation.world import Containers, World

from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.times import now_rfc3339
from kubecore.patch.guarded import guarded_patch
from kubecore.runtime import DONE, Controller, Key, Manager, RequeueAfter, Result
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES as VMIS
from virtplane.compute.handler.decisions import Migratability

_NODE_LABEL = "kubevirt.io/nodeName"


def migratability(vmi: VirtualMachineInstance, *, emulation: bool) -> Migratability:
    """Every simulated guest can be moved."""
    del vmi, emulation
    return Migratability("LiveMigration")


class Mover:
    """Looks at every instance; acts on those whose migration begins or ends on its node."""

    def __init__(
        self, client: Client, manager: Manager, node: str, world: World, chance: random.Random
    ) -> None:
        self._client = client
        self._node = node
        self._world = world
        self._chance = chance
        self._instances = manager.informer(VMIS)
        self.controller = Controller(f"mover-{node}", self._reconcile, workers=2, max_delay=10.0)
        self.controller.watch(self._instances)

    async def _reconcile(self, key: Key) -> Result:
        vmi = self._instances.get(*key)
        state = get_object(vmi, "status", "migrationState")
        if vmi is None or not state.get("migrationUid") or get_str(vmi, "status", "phase") != "Running":
            return DONE
        if state.get("completed"):
            self._let_go(vmi, state)
            return DONE
        target = self._launcher(state.get("targetPod"), state.get("targetNode"))
        if self._node == state.get("targetNode") and not state.get("targetNodeAddress") and target:
            await self._write(vmi, targetNodeAddress=f"10.0.0.{self._node[-1]}")
        if self._node != state.get("sourceNode"):
            return DONE
        return await self._send(vmi, state, target)

    async def _send(self, vmi: JsonObject, state: JsonObject, target: Containers | None) -> Result:
        source = self._guest(vmi)
        has_moved = target is not None and target in self._world.guests()
        if has_moved:
            await self._finish(vmi, state)
        elif self._has_left(vmi):  # and what it went to has ended since
            await self._write(vmi, "Failed", completed=True, failed=True, endTimestamp=now_rfc3339())
        elif not state.get("targetNodeAddress"):
            return DONE
        elif source is None or target is None or self._is_over(state):
            await self._give_up(vmi, state)
        elif not state.get("startTimestamp"):
            await self._write(vmi, startTimestamp=now_rfc3339())
            return RequeueAfter(self._chance.uniform(0.5, 10.0))
        elif self._world.has_trouble and self._chance.random() < 0.1:
            await self._give_up(vmi, state)
        else:
            self._world.move(source, target)
            await self._finish(vmi, state)
        return DONE

    def _is_over(self, state: JsonObject) -> bool:
        """Whether the migration is given up, or has failed before and the cache does not show it yet."""
        return bool(state.get("abortRequested")) or state["migrationUid"] in self._world.failed_moves

    async def _give_up(self, vmi: JsonObject, state: JsonObject) -> None:
        """The guest stays; a migration that has failed on its node is not gone on with."""
        self._world.failed_moves.add(state["migrationUid"])
        await self._write(vmi, completed=True, failed=True, endTimestamp=now_rfc3339())

    async def _finish(self, vmi: JsonObject, state: JsonObject) -> None:
        """The guest is there: it belongs to the other node now."""
        new = deep_copy(vmi)
        new["status"]["nodeName"] = state["targetNode"]
        meta.set_label(new, _NODE_LABEL, state["targetNode"])
        now = now_rfc3339()
        new["status"]["migrationState"] |= {
            "completed": True,
            "startTimestamp": state.get("startTimestamp", now),
            "endTimestamp": now,
            "targetNodeDomainReadyTimestamp": now,
        }
        _plug(new)
        await self._patch(vmi, new)

    def _let_go(self, vmi: JsonObject, state: JsonObject) -> None:
        """The launcher that a guest has left ends, and the one that waited for it in vain."""
        for each in list(self._world.pods.values()):
            launcher = each.launcher
            if launcher is None or launcher.vmi_uid != meta.uid(vmi) or each.node != self._node:
                continue
            has_left = launcher.domain is not None and launcher.domain.reason == "Migrated"
            waits_in_vain = bool(state.get("failed")) and each.key[1] == state.get("targetPod")
            if has_left or (waits_in_vain and launcher.domain is None):
                self._world.end(each, 0)

    def _has_left(self, vmi: JsonObject) -> bool:
        launchers = [each.launcher for each in self._world.pods.values() if each.node == self._node]
        own = [each for each in launchers if each is not None and each.vmi_uid == meta.uid(vmi)]
        return any(each.domain is not None and each.domain.reason == "Migrated" for each in own)

    def _guest(self, vmi: JsonObject) -> Containers | None:
        found = self._world.guests(f"{meta.namespace(vmi)}/{meta.name(vmi)}")
        return next((each for each in found if each.node == self._node), None)

    def _launcher(self, name: Any, node: Any) -> Containers | None:
        return next(
            (
                each
                for each in self._world.pods.values()
                if each.key[1] == name and each.node == node and each.exit_code is None
            ),
            None,
        )

    async def _write(self, vmi: JsonObject, phase: str = "", **state: Any) -> None:
        new = deep_copy(vmi)
        if phase:
            new["status"]["phase"] = phase
        new["status"]["migrationState"] |= state
        await self._patch(vmi, new)

    async def _patch(self, old: JsonObject, new: JsonObject) -> None:
        operations = guarded_patch(old, new, ("metadata", "labels"), ("status",))
        try:
            await self._client.patch(VMIS, meta.name(old), operations, meta.namespace(old), type="json")
        except StatusError as error:
            if error.code != 404:
                raise


def _plug(vmi: JsonObject) -> None:
    """What was to be changed by moving the guest has been."""
    status = vmi["status"]
    topology = status.get("currentCPUTopology")
    if topology:
        topology["sockets"] = get_object(vmi, "spec", "domain", "cpu").get("sockets", 1)
    done = ("HotVCPUChange", "HotMemoryChange")
    status["conditions"] = [item for item in meta.conditions(vmi) if item["type"] not in done]

"""Node agents: they run pods as a kubelet does, and say that they live."""

from __future__ import annotations

import asyncio
import random

from tests.simulation.world import Containers, World, is_gated

from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.times import now_micro, now_rfc3339
from kubecore.resources import LEASES, NODES, PODS
from kubecore.runtime import DONE, Controller, Key, Manager, RequeueAfter, Result

LEASE_NAMESPACE = "kube-node-lease"
_ROOM = {
    "cpu": "64",
    "memory": "512Gi",
    "ephemeral-storage": "512Gi",
    "pods": "110",
    **{f"devices.kubevirt.io/{name}": "1k" for name in ("kvm", "tun", "vhost-net")},
}


def node_object(name: str) -> JsonObject:
    """A node as its agent registers it."""
    return {
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
        },
        "spec": {},
        "status": {
            "allocatable": _ROOM,
            "capacity": _ROOM,
            "conditions": [_ready()],
        },
    }


def _ready() -> JsonObject:
    now = now_rfc3339()
    return {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


class NodeAgent:
    """Runs the pods that are bound to its node."""

    def __init__(self, name: str, world: World, chance: random.Random) -> None:
        self.name = name
        self._world = world
        self._chance = chance

    async def run(self, client: Client) -> None:
        """The program of the process."""
        life = _Life(self.name, self._world, self._chance, client)
        await life.manager.run()


class _Life:
    """What one life of the process knows."""

    def __init__(self, name: str, world: World, chance: random.Random, client: Client) -> None:
        self._name = name
        self._world = world
        self._chance = chance
        self._client = client
        self._due: dict[str, float] = {}
        self.manager = Manager(client)
        self._pods = self.manager.informer(PODS, field_selector=f"spec.nodeName={name}")
        self._controller = Controller(f"kubelet-{name}", self._reconcile, workers=4, max_delay=10.0)
        self._controller.watch(self._pods)
        for containers in world.pods.values():
            if containers.node == name:
                self._controller.enqueue(containers.key)
        world.node_listeners[name] = self._controller.enqueue
        self.manager.add(self._controller)
        self.manager.add_runnable("lease", self._beat)

    async def _reconcile(self, key: Key) -> Result:
        pod = self._pods.get(*key)
        for containers in [each for each in self._world.pods.values() if each.key == key]:
            if containers.node == self._name and (pod is None or meta.uid(pod) != containers.uid):
                self._world.forget(containers)
        if pod is None:
            return DONE
        found = self._world.pods.get(meta.uid(pod))
        if meta.is_being_deleted(pod):
            return await self._stop(pod, found)
        if get_str(pod, "status", "phase") in ("Succeeded", "Failed"):
            return DONE
        if found is None:
            wait = self._wait(f"start {meta.uid(pod)}", self._chance.uniform(0.2, 2.0))
            if wait > 0:
                return RequeueAfter(wait)
            found = self._world.start(pod, self._name)
        await self._report(pod, found)
        if found.is_job and found.exit_code is None:
            wait = self._wait(f"job {found.uid}", self._chance.uniform(1.0, 20.0))
            if wait > 0:
                return RequeueAfter(wait)
            is_good = not self._world.has_trouble or self._chance.random() < 0.8
            self._world.end(found, 0 if is_good else 1)
        return DONE

    def _wait(self, what: str, seconds: float) -> float:
        """Seconds that are left of a time that began when it was first asked for."""
        now = asyncio.get_running_loop().time()
        due = self._due.setdefault(what, now + seconds)
        return due - now

    async def _stop(self, pod: JsonObject, found: Containers | None) -> Result:
        """End the containers within the pod's grace period, then let the pod go."""
        if found is not None and found.exit_code is None:
            self._world.terminate(found)
            grace: float = get_int(pod, "metadata", "deletionGracePeriodSeconds")
            if found.launcher is None:
                grace = min(grace, self._chance.uniform(0.1, 3.0))
            wait = self._wait(f"stop {found.uid}", grace)
            if wait > 0:
                return RequeueAfter(wait)
            self._world.end(found, 137)
        if found is not None:
            await self._report(pod, found)
        try:
            await self._client.delete(
                PODS, meta.name(pod), meta.namespace(pod), grace_period_seconds=0, uid=meta.uid(pod)
            )
        except StatusError as error:
            if error.code not in (404, 409):
                raise
        return DONE

    async def _report(self, pod: JsonObject, found: Containers) -> None:
        status = _status(pod, found)
        present = get_object(pod, "status")
        if all(present.get(key) == value for key, value in status.items() if key != "conditions") and all(
            (meta.get_condition(pod, item["type"]) or {}).get("status") == item["status"]
            for item in status["conditions"]
        ):
            return
        try:
            await self._client.patch(
                PODS,
                meta.name(pod),
                {"metadata": {"uid": meta.uid(pod)}, "status": status},
                meta.namespace(pod),
                type="strategic",
                subresource="status",
            )
        except StatusError as error:
            if error.code != 404:
                raise

    async def _beat(self) -> None:
        while True:
            try:
                await self._renew()
                await self._stay_ready()
            except (StatusError, ConnectionFailed):
                await asyncio.sleep(1.0)
                continue
            await asyncio.sleep(10.0)

    async def _renew(self) -> None:
        spec = {"holderIdentity": self._name, "leaseDurationSeconds": 40, "renewTime": now_micro()}
        try:
            await self._client.patch(LEASES, self._name, {"spec": spec}, LEASE_NAMESPACE, type="merge")
        except StatusError as error:
            if error.code != 404:
                raise
            lease = {"metadata": {"name": self._name, "namespace": LEASE_NAMESPACE}, "spec": spec}
            await self._client.create(LEASES, lease)

    async def _stay_ready(self) -> None:
        node = await self._client.get(NODES, self._name)
        if not meta.is_condition_true(node, "Ready"):
            status = {"status": {"conditions": [_ready()]}}
            await self._client.patch(NODES, self._name, status, type="strategic", subresource="status")


def _status(pod: JsonObject, found: Containers) -> JsonObject:
    now = now_rfc3339()
    is_running = found.exit_code is None
    phase = "Running" if is_running else "Failed" if found.exit_code else "Succeeded"
    state = {"running": {}} if is_running else {"terminated": {"exitCode": found.exit_code}}
    containers = [
        {
            "name": item["name"],
            "ready": is_running,
            "state": state,
            "resources": get_object(item, "resources"),
        }
        for item in get_list(pod, "spec", "containers")
    ]
    ready = is_running and not is_gated(pod)
    conditions = [
        {"type": kind, "status": str(value), "lastTransitionTime": now}
        for kind, value in (("PodScheduled", True), ("ContainersReady", is_running), ("Ready", ready))
    ]
    for condition in conditions:
        known = meta.get_condition(pod, str(condition["type"])) or {}
        if known.get("status") == condition["status"]:
            condition["lastTransitionTime"] = known.get("lastTransitionTime", now)
    return {"phase": phase, "containerStatuses": containers, "conditions": conditions}

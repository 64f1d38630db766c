"""What users want, and what they do while things go wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from tests.simulation.faults import Note
from tests.simulation.server import SimulatedApi
from tests.simulation.world import World

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.structs import decode
from kubecore.resources import ResourceType
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.apiserver.subresources import lifecycle
from virtplane.compute.handler.libvirtd.calls import DomainState

NAMESPACE = "lab"
DRAIN = {"key": "kubevirt.io/drain", "effect": "NoSchedule"}
STRATEGIES = ("Always", "Manual", "RerunOnFailure", "Halted", "Once")
SCALABLE = (
    resources.REPLICA_SETS,
    resources.DEPLOYMENTS,
    resources.STATEFUL_SETS,
    kinds.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS,
    kinds.VIRTUAL_MACHINE_POOLS,
)
WORKLOADS = (*SCALABLE, resources.DAEMON_SETS, resources.JOBS)


def instance_spec(chance: random.Random) -> JsonObject:
    """The spec of a small instance that can be migrated."""
    return {
        "domain": {
            "cpu": {"sockets": 1, "cores": 1, "threads": 1},
            "devices": {"interfaces": [{"name": "default", "masquerade": {}}]},
            "memory": {"guest": "128Mi"},
            "resources": {},
        },
        "networks": [{"name": "default", "pod": {}}],
        "evictionStrategy": "LiveMigrate",
        "terminationGracePeriodSeconds": chance.choice([0, 5, 30]),
    }


def machine(name: str, chance: random.Random) -> JsonObject:
    """A virtual machine with some run strategy."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"vm": name}},
        "spec": {
            "runStrategy": chance.choice(STRATEGIES[:4]),
            "template": {"metadata": {"labels": {"vm": name}}, "spec": instance_spec(chance)},
        },
    }


def workload(kind: ResourceType, chance: random.Random) -> JsonObject:
    """An object that owns pods, instances or machines, complete as the server's defaults make it."""
    name = kind.plural[:12]
    labels = {"app": name}
    template: JsonObject = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "restartPolicy": "Never" if kind == resources.JOBS else "Always",
            "terminationGracePeriodSeconds": 5,
            "schedulerName": "default-scheduler",
        },
    }
    count = chance.randint(1, 3)
    spec: JsonObject = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
    if kind == resources.DEPLOYMENTS:
        spec |= {
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": 600,
        }
    elif kind == resources.STATEFUL_SETS:
        spec |= {
            "serviceName": name,
            "podManagementPolicy": "OrderedReady",
            "updateStrategy": {"type": "OnDelete"},
        }
    elif kind == resources.DAEMON_SETS:
        template["spec"]["tolerations"] = [{"operator": "Exists", "effect": "NoSchedule"}]
        spec = {"selector": spec["selector"], "template": template, "updateStrategy": {"type": "OnDelete"}}
    elif kind == resources.JOBS:
        spec = {
            "completions": count,
            "parallelism": chance.randint(1, 2),
            "backoffLimit": 50,
            "selector": spec["selector"],
            "template": template,
        }
    elif kind == kinds.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS:
        spec["template"] = {"metadata": {"labels": labels}, "spec": instance_spec(chance)}
    elif kind == kinds.VIRTUAL_MACHINE_POOLS:
        machine_spec = {
            "runStrategy": "Always",
            "template": {"metadata": {"labels": labels}, "spec": instance_spec(chance)},
        }
        spec = {
            "replicas": count,
            "selector": {"matchLabels": labels},
            "virtualMachineTemplate": {"metadata": {"labels": labels}, "spec": machine_spec},
        }
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": spec,
    }


def old_snapshot(vm: JsonObject) -> JsonObject:
    """A snapshot from the time when the cluster still served volume snapshots."""
    return {
        "metadata": {
            "name": "old",
            "namespace": NAMESPACE,
            "finalizers": ["snapshot.kubevirt.io/vmsnapshot-protection"],
        },
        "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": meta.name(vm)}},
        "status": {"phase": "Succeeded"},
    }


def is_drained(node: JsonObject) -> bool:
    """Whether guests are to leave the node."""
    return any(item["key"] == DRAIN["key"] for item in get_list(node, "spec", "taints"))


Decide = Callable[[JsonObject, VirtualMachineInstance | None], lifecycle.Patch | None]
"""From a machine and its instance to what a request changes, as virt-api decides it."""


class Users:
    """Act on the cluster without faults: what they asked for and were granted must come true."""

    def __init__(
        self, api: SimulatedApi, world: World, client: Client, chance: random.Random, note: Note
    ) -> None:
        self._api = api
        self._world = world
        self._client = client
        self._chance = chance
        self._note = note
        self.wanted: list[JsonObject] = []
        """Machines that users make, and may make again."""
        self._actions: list[tuple[float, Callable[[], Awaitable[str]]]] = [
            (4, self._start),
            (4, self._stop),
            (2, self._restart),
            (2, self._switch),
            (1, self._delete_machine),
            (3, self._make_machine),
            (3, self._migrate),
            (1, self._cancel_migration),
            (1, self._delete_instance),
            (1, self._delete_pod),
            (2, self._drain),
            (2, self._undrain),
            (2, self._resize),
            (2, self._scale),
            (1, self._delete_workload),
            (1, self._delete_snapshot),
            (1, self._guest_powers_off),
            (1, self._guest_crashes),
            (1, self._update_product),
        ]

    async def begin(self) -> None:
        """Make the machines and workloads of this seed."""
        self.wanted = [machine(f"vm{number}", self._chance) for number in range(self._chance.randint(1, 3))]
        for vm in self.wanted:
            await self._make(vm)
        if self._chance.random() < 0.3:
            await self._client.create(kinds.VIRTUAL_MACHINE_SNAPSHOTS, old_snapshot(self.wanted[0]))
        for kind in self._chance.sample(WORKLOADS, self._chance.randint(0, 3)):
            await self._client.create(kind, workload(kind, self._chance))

    async def act(self) -> None:
        """Do one thing by chance."""
        weights = [weight for weight, _ in self._actions]
        (chosen,) = self._chance.choices([action for _, action in self._actions], weights)
        try:
            said = await chosen()
        except StatusError as error:
            said = f"{chosen.__name__.strip('_')}: {error.message}"
        if said:
            self._note(f"user: {said}")

    async def _make(self, vm: JsonObject) -> None:
        """Make a machine, and where that is for the user to say, start it before anybody has looked at it."""
        await self._client.create(kinds.VIRTUAL_MACHINES, vm)
        if get_str(vm, "spec", "runStrategy") == "Manual":
            await asyncio.sleep(self._chance.uniform(0.0, 0.03))
            await self._ask(meta.name(vm), lambda vm, vmi: lifecycle.start(vm, vmi, paused=False))

    async def end(self) -> None:
        """Leave at least two nodes for guests; one that stays drained must become empty of them."""
        drained = [node for node in self._api.list(resources.NODES) if is_drained(node)]
        spare = len(self._api.list(resources.NODES)) - 2
        for node in drained[spare:]:
            await self._set_drained(node, drained=False)

    def _any(self, kind: ResourceType) -> JsonObject | None:
        found = self._api.list(kind, NAMESPACE)
        return self._chance.choice(found) if found else None

    def _any_machine(self) -> JsonObject | None:
        """One that no pool keeps."""
        vm = self._any(kinds.VIRTUAL_MACHINES)
        return vm if vm is not None and meta.controller_of(vm) is None else None

    async def _update_product(self) -> str:
        """New launchers have another image; the operator has rolled it out."""
        tag = str(self._chance.randint(1, 3))
        name = "kubevirt"
        changed = await self._client.patch(
            kinds.KUBEVIRTS, name, {"spec": {"imageTag": tag}}, name, type="merge"
        )
        seen = {"status": {"observedGeneration": meta.generation(changed)}}
        await self._client.patch(kinds.KUBEVIRTS, name, seen, name, type="merge", subresource="status")
        return f"update to launcher:{tag}"

    async def _request(self, decide: Decide, word: str) -> str:
        vm = self._any_machine()
        if vm is None:
            return ""
        await self._ask(meta.name(vm), decide)
        return f"{word} {meta.name(vm)}"

    async def _ask(self, name: str, decide: Decide) -> None:
        vm = self._api.get(kinds.VIRTUAL_MACHINES, name, NAMESPACE) or {}
        vmi = self._api.get(kinds.VIRTUAL_MACHINE_INSTANCES, name, NAMESPACE)
        patch = decide(vm, decode(VirtualMachineInstance, vmi) if vmi is not None else None)
        if patch is not None:
            await self._client.patch(
                kinds.VIRTUAL_MACHINES,
                name,
                list(patch.operations),
                NAMESPACE,
                type="json",
                subresource="status" if patch.target == "status" else None,
            )

    async def _start(self) -> str:
        return await self._request(lambda vm, vmi: lifecycle.start(vm, vmi, paused=False), "start")

    async def _stop(self) -> str:
        return await self._request(lambda vm, vmi: lifecycle.stop(vm, vmi, grace_seconds=None), "stop")

    async def _restart(self) -> str:
        return await self._request(lifecycle.restart, "restart")

    async def _switch(self) -> str:
        vm = self._any_machine()
        if vm is None:
            return ""
        strategy = self._chance.choice(STRATEGIES)
        await self._merge(kinds.VIRTUAL_MACHINES, vm, {"spec": {"runStrategy": strategy}})
        return f"{meta.name(vm)} has run strategy {strategy}"

    async def _delete_machine(self) -> str:
        return await self._delete(kinds.VIRTUAL_MACHINES)

    async def _delete_instance(self) -> str:
        return await self._delete(kinds.VIRTUAL_MACHINE_INSTANCES)

    async def _delete_pod(self) -> str:
        return await self._delete(resources.PODS)

    async def _delete_snapshot(self) -> str:
        return await self._delete(kinds.VIRTUAL_MACHINE_SNAPSHOTS)

    async def _delete_workload(self) -> str:
        kind = self._chance.choice(WORKLOADS)
        policy = self._chance.choice(["Background", "Foreground"])
        return await self._delete(kind, propagation_policy=policy)

    async def _cancel_migration(self) -> str:
        return await self._delete(kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS)

    async def _delete(self, kind: ResourceType, **options: Any) -> str:
        found = self._any(kind)
        if found is None or meta.is_being_deleted(found):
            return ""
        await self._client.delete(kind, meta.name(found), NAMESPACE, **options)
        return f"delete {kind.kind} {meta.name(found)}"

    async def _make_machine(self) -> str:
        for vm in self.wanted:
            if self._api.get(kinds.VIRTUAL_MACHINES, meta.name(vm), NAMESPACE) is None:
                await self._make(machine(meta.name(vm), self._chance))
                return f"make {meta.name(vm)} again"
        return ""

    async def _migrate(self) -> str:
        vmi = self._any(kinds.VIRTUAL_MACHINE_INSTANCES)
        if vmi is None or get_str(vmi, "status", "phase") != "Running":
            return ""
        migration = {
            "metadata": {
                "generateName": "move-",
                "namespace": NAMESPACE,
                "finalizers": ["kubevirt.io/migrationJobFinalize"],
            },
            "spec": {"vmiName": meta.name(vmi)},
        }
        created = await self._client.create(kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS, migration)
        return f"migrate {meta.name(vmi)} by {meta.name(created)}"

    async def _drain(self) -> str:
        node = self._chance.choice(self._api.list(resources.NODES))
        await self._set_drained(node, drained=True)
        return f"drain {meta.name(node)}"

    async def _undrain(self) -> str:
        node = self._chance.choice(self._api.list(resources.NODES))
        await self._set_drained(node, drained=False)
        return f"undrain {meta.name(node)}"

    async def _set_drained(self, node: JsonObject, *, drained: bool) -> None:
        kept = [item for item in get_list(node, "spec", "taints") if item["key"] != DRAIN["key"]]
        taints = [*kept, *([DRAIN] if drained else [])]
        if taints != get_list(node, "spec", "taints"):
            await self._merge(resources.NODES, node, {"spec": {"taints": taints}})

    async def _resize(self) -> str:
        vm = self._any_machine()
        if vm is None:
            return ""
        sockets = self._chance.randint(1, 3)
        cpu = {"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": sockets}}}}}}
        await self._merge(kinds.VIRTUAL_MACHINES, vm, cpu)
        return f"{meta.name(vm)} has {sockets} sockets"

    async def _scale(self) -> str:
        found = self._any(self._chance.choice(SCALABLE))
        if found is None:
            return ""
        kind = next(kind for kind in SCALABLE if kind.kind == found["kind"])
        count = self._chance.randint(0, 3)
        await self._merge(kind, found, {"spec": {"replicas": count}})
        return f"{kind.kind} {meta.name(found)} has {count} replicas"

    async def _guest_powers_off(self) -> str:
        return self._set_guest(DomainState("Shutoff", "Shutdown"), "powers off")

    async def _guest_crashes(self) -> str:
        return self._set_guest(DomainState("Crashed", "Panicked"), "crashes")

    def _set_guest(self, state: DomainState, word: str) -> str:
        guests = self._world.guests()
        if not guests:
            return ""
        chosen = self._chance.choice(guests)
        self._world.set_domain(chosen, state)
        assert chosen.launcher is not None
        return f"guest {chosen.launcher.vm} {word}"

    async def _merge(self, kind: ResourceType, obj: JsonObject, patch: JsonObject) -> None:
        namespace = get_object(obj, "metadata").get("namespace")
        await self._client.patch(kind, meta.name(obj), patch, namespace, type="merge")

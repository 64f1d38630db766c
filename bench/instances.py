"""What virt-controller spends on an instance: memory of its caches, time to look at one that needs nothing.

``python -m bench.instances [--instances N]``. The API server is in memory; every instance runs, with five
volumes, a launcher, claims and managed fields. Needs no root.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from bench.figures import machine, say
from kubecore import resources
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.runtime import EventRecorder, Manager
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.vmi.reconciler import VmiController
from virtplane.compute.launcherpod.inputs import Images

_KINDS = [value for value in vars(kinds).values() if isinstance(value, ResourceType)]
_VMIS, _VMS = kinds.VIRTUAL_MACHINE_INSTANCES, kinds.VIRTUAL_MACHINES
_NOW = "2026-11-22T12:00:00Z"
_VOLUMES = ("root", "data", "logs", "cloud", "scratch")
_ROUNDS = 5


def managed_fields(*managers: str) -> list[JsonObject]:
    """Managed fields, as many as a virtual machine has."""
    fields: JsonObject = {
        f"f:{key}": {".": {}, "f:name": {}, "f:value": {}} for key in "abcdefghijklmnopqrst"
    }
    return [
        {"manager": by, "operation": "Update", "apiVersion": "kubevirt.io/v1", "fieldsV1": fields}
        for by in managers
    ]


def instance(number: int) -> JsonObject:
    """A running instance, as large as those of a cluster are."""
    name = f"guest-{number:05}"
    claims = [
        {"name": item, "persistentVolumeClaim": {"claimName": f"{name}-{item}"}} for item in _VOLUMES[:3]
    ]
    volumes = [*claims, {"name": "cloud", "cloudInitNoCloud": {"userData": "#cloud-config\npassword: x\n"}}]
    disks = [{"name": item, "disk": {"bus": "virtio"}} for item in _VOLUMES]
    return {
        "metadata": {
            "name": name,
            "namespace": f"tenant-{number % 20}",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "creationTimestamp": _NOW,
            "labels": {"app": "guest", "kubevirt.io/nodeName": f"node-{number % 50}"},
            "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"],
            "managedFields": managed_fields("virt-api", "virt-controller", "virt-handler"),
        },
        "spec": {
            "architecture": "amd64",
            "domain": {
                "cpu": {"cores": 1, "sockets": 2, "threads": 1, "maxSockets": 8, "model": "host-model"},
                "memory": {"guest": "1Gi", "maxGuest": "4Gi"},
                "machine": {"type": "q35"},
                "firmware": {"uuid": f"10000000-0000-0000-0000-{number:012}"},
                "features": {"acpi": {"enabled": True}},
                "resources": {"requests": {"memory": "1Gi"}},
                "devices": {"disks": disks, "interfaces": [{"name": "default", "masquerade": {}}], "rng": {}},
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [*volumes, {"name": "scratch", "emptyDisk": {"capacity": "1Gi"}}],
        },
        "status": {
            "phase": "Running",
            "nodeName": f"node-{number % 50}",
            "conditions": [
                {"type": type, "status": "True", "lastProbeTime": None, "lastTransitionTime": _NOW}
                for type in ("LiveMigratable", "StorageLiveMigratable", "AgentConnected")
            ],
            "interfaces": [{"name": "default", "mac": "02:00:00:00:00:01", "ipAddresses": ["10.0.0.1"]}],
            "currentCPUTopology": {"cores": 1, "sockets": 2, "threads": 1},
            "memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestRequested": "1Gi"},
            "guestOSInfo": {"id": "fedora", "name": "Fedora Linux", "version": "43", "machine": "x86_64"},
            "volumeStatus": [{"name": item, "target": f"vd{item[0]}"} for item in _VOLUMES],
        },
    }


def virtual_machine(number: int) -> JsonObject:
    """A virtual machine with the template and the status of such an instance."""
    vmi = instance(number)
    labels = vmi["metadata"]["labels"]
    statuses = [{"name": item, "enabled": item in _VOLUMES[:3]} for item in _VOLUMES]
    return {
        "metadata": {**vmi["metadata"], "managedFields": managed_fields("kubectl", "virt-controller")},
        "spec": {"runStrategy": "Always", "template": {"metadata": {"labels": labels}, "spec": vmi["spec"]}},
        "status": {
            "conditions": vmi["status"]["conditions"],
            "created": True,
            "printableStatus": "Running",
            "ready": True,
            "runStrategy": "Always",
            "volumeSnapshotStatuses": statuses,
        },
    }


def surroundings(vmi: JsonObject) -> Iterable[tuple[ResourceType, JsonObject]]:
    """The launcher and the claims of an instance."""
    name, namespace, node = meta.name(vmi), meta.namespace(vmi), vmi["status"]["nodeName"]
    labels = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": meta.uid(vmi)}
    owner = meta.new_controller_ref(vmi, _VMIS)
    metadata = {"name": f"virt-launcher-{name}", "namespace": namespace, "labels": labels}
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "compute", "ready": True, "state": {"running": {}}}],
    }
    spec = {"nodeName": node, "containers": [{"name": "compute", "image": "launcher:1"}]}
    yield (
        resources.PODS,
        {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": spec, "status": status},
    )
    for item in _VOLUMES[:3]:
        bound = {"phase": "Bound", "capacity": {"storage": "10Gi"}}
        claim = {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "fast"}
        metadata = {"name": f"{name}-{item}", "namespace": namespace}
        yield resources.PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata, "spec": claim, "status": bound}


def size(objects: Iterable[Any]) -> int:
    """Bytes of all objects and of what they hold, what they share counted once."""
    seen: set[int] = set()
    waiting, total = list(objects), 0
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        total += sys.getsizeof(value)
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple)):
            waiting += value
        elif isinstance(value, msgspec.Struct):
            waiting += [getattr(value, name) for name in value.__struct_fields__]
    return total


async def _nothing() -> None:
    await asyncio.Event().wait()


async def _measure(instances: int) -> None:
    server = MemoryApi(_KINDS, whole=[_VMIS])
    for number in range(instances):
        vmi = server.put(_VMIS, instance(number))
        server.put(_VMS, virtual_machine(number))
        for kind, obj in surroundings(vmi):
            server.put(kind, obj)
    client = server.client()
    recorder = EventRecorder(client, "bench")
    manager = Manager(client)
    cluster = Cluster(client, manager, recorder, Images("launcher:1", "sidecar:1"))
    cluster.prepare()
    controller = VmiController(cluster).controller
    manager.add_runnable("nothing", _nothing)
    task = asyncio.create_task(manager.run())
    await manager.wait_started()
    keys = [(f"tenant-{number % 20}", f"guest-{number:05}") for number in range(instances)]
    asked = -1
    while asked != len(server.requests):  # until nothing is left to write
        asked = len(server.requests)
        for key in keys:
            await controller._reconcile(key)
        await asyncio.sleep(1)
    say(machine())
    say(f"{instances} instances")
    say(f"cached: {size(cluster.vmis.list()) / instances / 1000:.1f} kB for each")
    say(f"a cached virtual machine: {size(cluster.vms.list()) / instances / 1000:.1f} kB")
    started = time.process_time()
    for _ in range(_ROUNDS):
        for key in keys:
            await controller._reconcile(key)
    spent = time.process_time() - started
    say(f"one reconcile: {spent / _ROUNDS / instances * 1e6:.0f} us of processor time")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await client.close()


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instances", type=int, default=500)
    logging.disable(logging.WARNING)
    asyncio.run(_measure(parser.parse_args().instances))


if __name__ == "__main__":
    main()

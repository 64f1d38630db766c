"""What becomes of the disks of machines that a pool gives up."""

from __future__ import annotations

import pytest
from tests.support.controllers import running_controllers, until

from kubecore import resources
from kubecore.client import Request
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.compute.launcherpod.inputs import Images

pytestmark = pytest.mark.looptime

_KINDS = [value for value in vars(kinds).values() if isinstance(value, ResourceType)]
_POOLS, _VMS = kinds.VIRTUAL_MACHINE_POOLS, kinds.VIRTUAL_MACHINES
_DISKS = (kinds.DATA_VOLUMES, resources.PERSISTENT_VOLUME_CLAIMS)


def _server() -> MemoryApi:
    return MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])


def _pool(preservation: str, strategy: str = "proactive") -> JsonObject:
    template = {"spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}}}
    spec: JsonObject = {"replicas": 1, "selector": {}, "virtualMachineTemplate": template}
    if preservation:
        spec["scaleInStrategy"] = {strategy: {"statePreservation": preservation}}
    return {"metadata": {"name": "pool", "namespace": "ns"}, "spec": spec}


async def _scaled_in(server: MemoryApi, pool: JsonObject) -> None:
    """Make the pool's machine with a disk of each kind, then scale the pool to nothing."""
    server.put(_POOLS, pool)
    await until(lambda: server.list(_VMS, "ns"))
    (vm,) = server.list(_VMS, "ns")
    for kind in _DISKS:
        owners = [meta.new_controller_ref(vm, _VMS)]
        metadata = {"name": "disk-0", "namespace": "ns", "ownerReferences": owners}
        server.put(kind, {"metadata": metadata, "spec": {}})
    small = deep_copy(server.get(_POOLS, "pool", "ns") or {})
    small["spec"]["replicas"] = 0
    server.put(_POOLS, small)


def _owners(server: MemoryApi) -> list[int]:
    return [len(meta.owner_references(server.list(kind, "ns")[0])) for kind in _DISKS]


@pytest.mark.parametrize(
    ("preservation", "strategy", "owners"),
    [
        ("Offline", "proactive", [0, 0]),
        ("Online", "proactive", [0, 0]),
        ("Offline", "opportunistic", [0, 0]),
        ("Disabled", "proactive", [1, 1]),
        ("", "", [1, 1]),
    ],
)
async def test_disks_stay_where_the_pool_says_so(preservation: str, strategy: str, owners: list[int]) -> None:
    """Those that have no owner left are not collected with their machine."""
    server = _server()
    images = Images("launcher:1", "sidecar:1")
    async with running_controllers(server, images, frozenset({kinds.DATA_VOLUMES})):
        await _scaled_in(server, _pool(preservation, strategy))
        await until(lambda: not server.list(_VMS, "ns"))
        assert _owners(server) == owners


async def test_a_machine_whose_disk_cannot_be_kept_stays() -> None:
    server = _server()

    def refuse(request: Request) -> StatusError | None:
        is_disk = request.method == "PATCH" and "/datavolumes/" in request.path
        return StatusError(403, "Forbidden", "not now") if is_disk else None

    images = Images("launcher:1", "sidecar:1")
    async with running_controllers(server, images, frozenset({kinds.DATA_VOLUMES})):
        server.reactions.append(refuse)
        await _scaled_in(server, _pool("Offline"))
        await until(lambda: meta.get_condition(server.get(_POOLS, "pool", "ns") or {}, "ReplicaFailure"))
        assert not meta.is_being_deleted(server.list(_VMS, "ns")[0])
        server.reactions.clear()
        await until(lambda: not server.list(_VMS, "ns"))
        assert _owners(server) == [0, 0]

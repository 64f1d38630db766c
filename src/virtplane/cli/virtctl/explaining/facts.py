"""Reads what the status of a machine depends on, with the rights of who asks; what may not be read is left
out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects import meta, times
from kubecore.objects.structs import decode
from kubecore.resources import ResourceType
from virtplane.api import labels
from virtplane.api import resources as api
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import claim_name
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cli.virtctl.explaining import room
from virtplane.deletions.explaining import wait_of
from virtplane.deletions.reading import Situation
from virtplane.deletions.waits import Wait

_UNREADABLE = (403, 404)


@dataclass(frozen=True, slots=True)
class Facts:
    """A machine and what it depends on."""

    vm: VirtualMachine
    instance: VirtualMachineInstance | None = None
    pod: JsonObject | None = None
    """The newest of its launchers."""
    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    data_volumes: Mapping[str, DataVolume] = field(default_factory=dict)
    warnings: Mapping[str, str] = field(default_factory=dict)
    """The newest warning about each object that waits, by its uid."""
    deletion: Wait | None = None
    """What it waits for where it is being deleted."""
    nodes: tuple[room.Node, ...] = ()
    """Read for a pod without a node; none where they may not be read."""

    @property
    def volumes(self) -> list[tuple[int, str]]:
        """Places in the template's volumes, and their claims."""
        found = enumerate(map(claim_name, self.vm.spec.instance.volumes))
        return [(index, name) for index, name in found if name]


async def gather(client: Client, namespace: str, name: str) -> Facts:
    """The facts about one machine. Raises StatusError where the machine itself cannot be read."""
    document = await client.get(api.VIRTUAL_MACHINES, name, namespace)
    vm = decode(VirtualMachine, document)
    found = await _found(client, api.VIRTUAL_MACHINE_INSTANCES, name, namespace)
    instance = decode(VirtualMachineInstance, found) if found is not None else None
    pod = await _launcher(client, instance) if instance is not None else None
    claims, data_volumes = await _disks(client, vm, namespace)
    waiting = [each.metadata.uid for each in claims.values() if each.status.phase != "Bound"]
    if pod is not None and get_str(pod, "status", "phase") == "Pending":
        waiting.append(meta.uid(pod))
    return Facts(
        vm,
        instance,
        pod,
        claims,
        data_volumes,
        await _warnings(client, namespace, waiting),
        await deletion(client, api.VIRTUAL_MACHINES, document),
        await _nodes(client) if is_unschedulable(pod) else (),
    )


async def deletion(client: Client, kind: ResourceType, document: JsonObject) -> Wait | None:
    """What a deleted object waits for; None where it is not being deleted. Raises StatusError."""
    if not meta.is_being_deleted(document):
        return None
    return await wait_of(Situation(client, kind, document, times.now()))


def is_unschedulable(pod: JsonObject | None) -> bool:
    """Whether the scheduler has found no node for the pod."""
    condition = meta.get_condition(pod, "PodScheduled") if pod is not None else None
    return condition is not None and condition.get("status") == "False"


async def _disks(
    client: Client, vm: VirtualMachine, namespace: str
) -> tuple[dict[str, PersistentVolumeClaim], dict[str, DataVolume]]:
    claims: dict[str, PersistentVolumeClaim] = {}
    data_volumes: dict[str, DataVolume] = {}
    for name in filter(None, map(claim_name, vm.spec.instance.volumes)):
        claim = await _found(client, resources.PERSISTENT_VOLUME_CLAIMS, name, namespace)
        if claim is not None:
            claims[name] = decode(PersistentVolumeClaim, claim)
        data_volume = await _found(client, api.DATA_VOLUMES, name, namespace)
        if data_volume is not None:
            data_volumes[name] = decode(DataVolume, data_volume)
    return claims, data_volumes


async def _found(client: Client, kind: ResourceType, name: str, namespace: str) -> JsonObject | None:
    try:
        return await client.get(kind, name, namespace)
    except StatusError as error:
        if error.code not in _UNREADABLE:
            raise
        return None


async def _listed(
    client: Client, kind: ResourceType, namespace: str | None = None, labelled: str = "", having: str = ""
) -> list[JsonObject]:
    try:
        return get_list(await client.list(kind, namespace, labelled, having), "items")
    except StatusError as error:
        if error.code not in _UNREADABLE:
            raise
        return []


async def _launcher(client: Client, instance: VirtualMachineInstance) -> JsonObject | None:
    selector = f"{labels.CREATED_BY}={instance.metadata.uid},kubevirt.io=virt-launcher"
    found = await _listed(client, resources.PODS, instance.metadata.namespace, selector)
    return max(found, key=meta.creation_timestamp, default=None)


async def _warnings(client: Client, namespace: str, uids: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for uid in uids:
        selector = f"involvedObject.uid={uid},type=Warning"
        events = await _listed(client, resources.EVENTS, namespace, having=selector)
        newest = max(events, key=_last_seen, default=None)
        if newest is not None:
            found[uid] = get_str(newest, "message").strip()
    return found


def _last_seen(event: JsonObject) -> str:
    return get_str(event, "lastTimestamp") or get_str(event, "eventTime")


async def _nodes(client: Client) -> tuple[room.Node, ...]:
    documents = await _listed(client, resources.NODES)
    return room.nodes(documents, await _listed(client, resources.PODS) if documents else ())

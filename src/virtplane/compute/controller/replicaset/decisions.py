"""The next actions of a replica set of instances: pure decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from kubecore.objects.structs import decode, part
from virtplane.api import resources as kinds
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.replicaset import VirtualMachineInstanceReplicaSet
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.cluster.objects import described
from virtplane.compute.controller import replicas
from virtplane.compute.controller.vmi.phases import FINAL_PHASES

BURST = 250
"""Instances made or deleted in one step."""
_KIND = kinds.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS


@dataclass(frozen=True, slots=True)
class Step:
    """The number of instances to create, and the instances to delete."""

    create: int = 0
    delete: tuple[VirtualMachineInstance, ...] = ()


def is_finished(vmi: VirtualMachineInstance) -> bool:
    """Whether an instance no longer counts: its phase is final or Unknown, or its pod is terminating."""
    if vmi.status.phase in (*FINAL_PHASES, "Unknown"):
        return True
    return any(item.type == "Ready" and item.reason == "PodTerminating" for item in vmi.status.conditions)


def active(instances: Sequence[VirtualMachineInstance]) -> list[VirtualMachineInstance]:
    """The instances that count as replicas."""
    return [vmi for vmi in instances if not is_finished(vmi) and not vmi.metadata.is_being_deleted]


def wanted(replica_set: VirtualMachineInstanceReplicaSet) -> int:
    """The wanted number of instances (1 by default)."""
    return 1 if replica_set.spec.replicas is None else replica_set.spec.replicas


def next_step(
    replica_set: VirtualMachineInstanceReplicaSet, instances: Sequence[VirtualMachineInstance]
) -> Step:
    """The instances to create and delete; none while the set is paused or being deleted."""
    if replica_set.metadata.is_being_deleted or replica_set.spec.paused:
        return Step()
    finished = [vmi for vmi in instances if is_finished(vmi) and not vmi.metadata.is_being_deleted]
    living = active(instances)
    missing = wanted(replica_set) - len(living)
    if missing >= 0:
        return Step(min(missing, BURST), tuple(finished[:BURST]))
    surplus = sorted(living, key=_expendable)[: min(-missing, BURST)]
    return Step(0, (*finished, *surplus))


def _expendable(vmi: VirtualMachineInstance) -> tuple[bool, str]:
    """The order of deletion: instances that do not run yet, then the youngest."""
    return vmi.status.phase == "Running", _reversed(vmi.metadata.creation_timestamp or "")


def _reversed(moment: str) -> str:
    return "".join(chr(255 - ord(letter)) for letter in moment)


def new_instance(replica_set: VirtualMachineInstanceReplicaSet, written: JsonObject) -> JsonObject:
    """An instance from the set's template; the spec is copied from the set's document `written`."""
    spec = part(written, VirtualMachineInstanceReplicaSet, lambda item: item.spec.template.spec)
    template = decode(ObjectMeta, replica_set.spec.template.metadata or {})
    created: JsonObject = {
        "generateName": template.generate_name or replica_set.metadata.name,
        "namespace": replica_set.metadata.namespace,
        "ownerReferences": [meta.new_controller_ref(described(replica_set), _KIND)],
    }
    for key, entries in (("labels", template.labels), ("annotations", template.annotations)):
        if entries:
            created[key] = dict(entries)
    return {
        "apiVersion": kinds.VIRTUAL_MACHINE_INSTANCES.api_version,
        "kind": "VirtualMachineInstance",
        "metadata": created,
        "spec": deep_copy(spec),
    }


def next_status(
    replica_set: VirtualMachineInstanceReplicaSet,
    instances: Sequence[VirtualMachineInstance],
    selector: str,
    failure: tuple[str, str] | None,
) -> JsonObject:
    """The set's status; `failure` is reason and message of a failed action."""
    living = active(instances)
    return replicas.next_status(
        replica_set.status,
        replicas=len(living),
        ready=sum(is_true(vmi.status.conditions, "Ready") for vmi in living),
        selector=selector,
        failure=failure,
        pause=("Paused", "Controller got paused") if replica_set.spec.paused else None,
    )

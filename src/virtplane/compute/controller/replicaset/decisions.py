"""What a replica set of instances does next: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.json import JsonObject, deep_copy, get_bool, get_int, get_object, get_str
from kubecore.objects import meta
from virtplane.api import resources as kinds
from virtplane.compute.controller import replicas
from virtplane.compute.controller.vmi.phases import is_final

BURST = 250
"""Instances made or deleted in one step."""
_KIND = kinds.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS


@dataclass(frozen=True, slots=True)
class Step:
    """How many instances to make, and which to delete."""

    create: int = 0
    delete: tuple[JsonObject, ...] = ()


def is_finished(vmi: JsonObject) -> bool:
    """Whether an instance counts no more: it has ended, or nobody knows what it does."""
    if is_final(vmi) or get_str(vmi, "status", "phase") == "Unknown":
        return True
    ready = meta.get_condition(vmi, "Ready")
    return ready is not None and ready.get("reason") == "PodTerminating"


def active(instances: list[JsonObject]) -> list[JsonObject]:
    """The instances that count."""
    return [vmi for vmi in instances if not is_finished(vmi) and not meta.is_being_deleted(vmi)]


def wanted(replica_set: JsonObject) -> int:
    """How many instances there should be (one when not said)."""
    return get_int(replica_set, "spec", "replicas", default=1)


def next_step(replica_set: JsonObject, instances: list[JsonObject]) -> Step:
    """What brings the instances in line; nothing while paused or being deleted."""
    if meta.is_being_deleted(replica_set) or get_bool(replica_set, "spec", "paused"):
        return Step()
    finished = [vmi for vmi in instances if is_finished(vmi) and not meta.is_being_deleted(vmi)]
    living = active(instances)
    missing = wanted(replica_set) - len(living)
    if missing >= 0:
        return Step(min(missing, BURST), tuple(finished[:BURST]))
    surplus = sorted(living, key=_expendable)[: min(-missing, BURST)]
    return Step(0, (*finished, *surplus))


def _expendable(vmi: JsonObject) -> tuple[bool, str]:
    """Guests that do not run yet go first, then the youngest."""
    return get_str(vmi, "status", "phase") == "Running", _reversed(meta.creation_timestamp(vmi))


def _reversed(moment: str) -> str:
    return "".join(chr(255 - ord(letter)) for letter in moment)


def new_instance(replica_set: JsonObject) -> JsonObject:
    """An instance from the set's template."""
    template = get_object(replica_set, "spec", "template")
    metadata = get_object(template, "metadata")
    base = get_str(metadata, "generateName") or meta.name(replica_set)
    created: JsonObject = {
        "generateName": base,
        "namespace": meta.namespace(replica_set),
        "ownerReferences": [meta.new_controller_ref(replica_set, _KIND)],
    }
    for key in ("labels", "annotations"):
        if metadata.get(key):
            created[key] = dict(metadata[key])
    return {
        "apiVersion": kinds.VIRTUAL_MACHINE_INSTANCES.api_version,
        "kind": "VirtualMachineInstance",
        "metadata": created,
        "spec": deep_copy(get_object(template, "spec")),
    }


def next_status(
    replica_set: JsonObject, instances: list[JsonObject], selector: str, failure: tuple[str, str] | None
) -> JsonObject:
    """The set's status; `failure` is reason and message of what could not be done."""
    living = active(instances)
    return replicas.next_status(
        replica_set,
        replicas=len(living),
        ready=sum(meta.is_condition_true(vmi, "Ready") for vmi in living),
        selector=selector,
        failure=failure,
        paused=("Paused", "Controller got paused"),
    )

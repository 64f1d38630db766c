"""The status of pools and replica sets."""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from virtplane.api.kubevirt_v1.replicaset import VirtualMachineInstanceReplicaSetStatus
from virtplane.api.pool_v1beta1.pool import VirtualMachinePoolStatus
from virtplane.cluster import conditions
from virtplane.cluster.objects import condition_documents


def next_status(
    present: VirtualMachineInstanceReplicaSetStatus | VirtualMachinePoolStatus | None,
    *,
    replicas: int,
    ready: int,
    selector: str,
    failure: tuple[str, str] | None,
    pause: tuple[str, str] | None,
) -> JsonObject:
    """The owner's status, from the `present` one (pure).

    `failure` and `pause` are reason and message of what could not be done and of a pause, if there is one.
    """
    status: JsonObject = encode(present) if present is not None else {}
    for key, value in (("replicas", replicas), ("readyReplicas", ready), ("labelSelector", selector)):
        if value:
            status[key] = value
        else:
            status.pop(key, None)
    known = condition_documents(present.conditions if present is not None else ())
    for type, why in (("ReplicaFailure", failure), ("ReplicaPaused", pause)):
        if why is None:
            conditions.drop(known, type)
        else:
            conditions.put(known, conditions.new_condition(type, "True", *why))
    status.pop("conditions", None)
    return {**status, "conditions": known} if known else status

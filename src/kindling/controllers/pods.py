"""Facts about pods that several controllers need, and making pods from templates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import orjson

from kubecore.json import JsonObject, deep_copy, get_int, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.times import parse_time
from kubecore.resources import ResourceType

_HASH_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""The letters and digits of generated hashes: no vowels, so that no words come out."""
_COST = re.compile("0|-[0-9]{1,100}|[1-9][0-9]{0,100}")


def is_active(pod: JsonObject) -> bool:
    """Whether the pod has not ended and is not being deleted."""
    return not is_finished(pod) and not meta.is_being_deleted(pod)


def is_finished(pod: JsonObject) -> bool:
    """Whether the pod has ended, well or not."""
    return get_str(pod, "status", "phase") in ("Succeeded", "Failed")


def is_ready(pod: JsonObject) -> bool:
    """Whether the condition Ready is true."""
    return meta.is_condition_true(pod, "Ready")


def ready_since(pod: JsonObject) -> datetime | None:
    """When the pod became ready; None when it is not ready, or the time is unknown."""
    condition = meta.get_condition(pod, "Ready")
    if condition is None or condition.get("status") != "True":
        return None
    text = condition.get("lastTransitionTime")
    return parse_time(text) if text else None


def is_available(pod: JsonObject, min_ready_seconds: int, now: datetime) -> bool:
    """Whether the pod has been ready for long enough."""
    if not is_ready(pod):
        return False
    if min_ready_seconds == 0:
        return True
    since = ready_since(pod)
    return since is not None and since + timedelta(seconds=min_ready_seconds) <= now


def seconds_until_available(pod: JsonObject, min_ready_seconds: int, now: datetime) -> float | None:
    """Seconds until a ready pod is available; None when time alone does not make it available."""
    since = ready_since(pod)
    if since is None or min_ready_seconds == 0:
        return None
    remaining = (since + timedelta(seconds=min_ready_seconds) - now).total_seconds()
    return remaining if remaining > 0 else None


def restarts(pod: JsonObject) -> int:
    """The largest restart count of the pod's containers."""
    statuses = get_object(pod, "status").get("containerStatuses") or []
    return max((get_int(status, "restartCount") for status in statuses), default=0)


def from_template(
    template: Mapping[str, Any],
    owner: JsonObject,
    resource: ResourceType,
    labels: Mapping[str, str] | None = None,
) -> JsonObject:
    """The pod that `owner` makes from a pod template, named by the server from the owner's name."""
    metadata = get_object(template, "metadata")
    pod_metadata: JsonObject = {
        "generateName": f"{meta.name(owner)}-",
        "namespace": meta.namespace(owner),
        "labels": {**get_object(metadata, "labels"), **(labels or {})},
        "ownerReferences": [meta.new_controller_ref(owner, resource)],
    }
    annotations = get_object(metadata, "annotations")
    if annotations:
        pod_metadata["annotations"] = dict(annotations)
    if metadata.get("finalizers"):
        pod_metadata["finalizers"] = list(metadata["finalizers"])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": pod_metadata,
        "spec": deep_copy(get_object(template, "spec")),
    }


def hash_of(*parts: Any) -> str:
    """A short hash of JSON values, the same for equal values whatever the order of their keys."""
    value = 0x811C9DC5
    for part in parts:
        for byte in orjson.dumps(part, option=orjson.OPT_SORT_KEYS):
            value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(_HASH_ALPHABET[ord(digit) % len(_HASH_ALPHABET)] for digit in str(value))


def deletion_rank(pod: JsonObject, related_on_node: int, now: datetime) -> tuple[object, ...]:
    """Sort key: the pods to delete first when scaling down.

    Unassigned before assigned, pending before running, unready before ready, low deletion cost before high
    (``controller.kubernetes.io/pod-deletion-cost``), crowded nodes first, then what became ready last
    (by powers of two of its age), restarts most often, and is youngest.
    """
    phase_rank = {"Pending": 0, "Unknown": 1, "Running": 2}
    since = ready_since(pod)
    created = parse_time(meta.creation_timestamp(pod)) if meta.creation_timestamp(pod) else now
    return (
        bool(get_str(pod, "spec", "nodeName")),
        phase_rank.get(get_str(pod, "status", "phase"), 1),
        is_ready(pod),
        _deletion_cost(pod),
        -related_on_node,
        _age_bucket(since, now),
        -restarts(pod),
        _age_bucket(created, now),
        meta.uid(pod),
    )


def _deletion_cost(pod: JsonObject) -> int:
    """The cost that the pod's annotation says; 0 if that is no number of 32 bits in its usual form."""
    text = meta.annotations(pod).get("controller.kubernetes.io/pod-deletion-cost", "0")
    cost = int(text) if _COST.fullmatch(text) else 0
    return cost if -(2**31) <= cost < 2**31 else 0


def _age_bucket(moment: datetime | None, now: datetime) -> int:
    """Ages are compared by powers of two, so that small differences between old pods do not count."""
    if moment is None:
        return 0
    return max(0, int((now - moment).total_seconds())).bit_length()

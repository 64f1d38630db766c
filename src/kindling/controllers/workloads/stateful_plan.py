"""What a StatefulSet needs next: pods by ordinal and their claims, one step at a time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kindling.controllers import pods as pod_facts
from kindling.controllers.volumes import claim_templates
from kindling.controllers.workloads import revisions
from kindling.controllers.workloads.rollout import scaled
from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import STATEFUL_SETS

REVISION_LABEL = "controller-revision-hash"
HASH_LABEL = "controller.kubernetes.io/hash"
POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"


def ordinal(owner: JsonObject, pod: JsonObject) -> int:
    """The ordinal in a pod's name; -1 for pods of other names."""
    parent, _, number = meta.name(pod).rpartition("-")
    return int(number) if parent == meta.name(owner) and number.isdigit() else -1


def numbers(owner: JsonObject) -> range:
    """The ordinals that should exist."""
    start = get_int(owner, "spec", "ordinals", "start")
    return range(start, start + get_int(owner, "spec", "replicas", default=1))


def is_parallel(owner: JsonObject) -> bool:
    """Whether pods need not wait for each other."""
    return get_str(owner, "spec", "podManagementPolicy") == "Parallel"


def partition(owner: JsonObject) -> int:
    """Pods below this ordinal keep the current revision."""
    return get_int(owner, "spec", "updateStrategy", "rollingUpdate", "partition")


def revision_of(pod: JsonObject) -> str:
    """The name of the revision a pod was made from."""
    return meta.labels(pod).get(REVISION_LABEL, "")


def claim_name(template: JsonObject, pod_name: str) -> str:
    """The name of a pod's own claim."""
    return f"{meta.name(template)}-{pod_name}"


def claims(owner: JsonObject, pod_name: str) -> list[JsonObject]:
    """The claims that a pod should have."""
    result = []
    for template in get_list(owner, "spec", "volumeClaimTemplates"):
        labels = {**meta.labels(template), **get_object(owner, "spec", "selector", "matchLabels")}
        metadata: JsonObject = {
            "name": claim_name(template, pod_name),
            "namespace": meta.namespace(owner),
            "labels": labels,
        }
        if meta.annotations(template):
            metadata["annotations"] = dict(meta.annotations(template))
        result.append(claim_templates.claim(template, metadata))
    return result


def pod(owner: JsonObject, number: int, revision: JsonObject) -> JsonObject:
    """The pod with that ordinal, made from the template of `revision`."""
    name = f"{meta.name(owner)}-{number}"
    labels = {
        REVISION_LABEL: meta.name(revision),
        POD_NAME_LABEL: name,
        POD_INDEX_LABEL: str(number),
    }
    made = pod_facts.from_template(revisions.template_of(revision), owner, STATEFUL_SETS, labels)
    made["metadata"]["name"] = name
    spec = made["spec"]
    spec["hostname"] = name
    if get_str(owner, "spec", "serviceName"):
        spec["subdomain"] = get_str(owner, "spec", "serviceName")
    templates = get_list(owner, "spec", "volumeClaimTemplates")
    own = {meta.name(template) for template in templates}
    volumes = [volume for volume in get_list(spec, "volumes") if volume["name"] not in own]
    volumes += [
        {
            "name": meta.name(template),
            "persistentVolumeClaim": {"claimName": claim_name(template, name)},
        }
        for template in templates
    ]
    if volumes:
        spec["volumes"] = volumes
    return made


@dataclass(slots=True)
class Step:
    """The actions of one sync. The next ones wait until the caches show these."""

    create: list[int] = field(default_factory=list)
    delete: list[JsonObject] = field(default_factory=list)
    failed: list[JsonObject] = field(default_factory=list)
    """Pods that ended and are replaced by pods of the same name."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.create or self.delete or self.failed)


def plan(owner: JsonObject, pods: Sequence[JsonObject], update: str, now: datetime) -> Step:
    """The next step towards `update`, the name of the newest revision."""
    step = Step()
    if meta.is_being_deleted(owner):
        return step
    by_number = {ordinal(owner, found): found for found in pods}
    if _blocked_by_replicas(owner, by_number, step, now):
        return step
    if _blocked_by_condemned(owner, by_number, step, now):
        return step
    if get_str(owner, "spec", "updateStrategy", "type") != "OnDelete" and step.is_empty:
        _plan_update(owner, by_number, step, update, now)
    return step


def _blocked_by_replicas(
    owner: JsonObject, by_number: dict[int, JsonObject], step: Step, now: datetime
) -> bool:
    ordered = not is_parallel(owner)
    for number in numbers(owner):
        found = by_number.get(number)
        if found is None:
            step.create.append(number)
            if ordered:
                return True
        elif pod_facts.is_finished(found) and not meta.is_being_deleted(found):
            step.failed.append(found)
            if ordered:
                return True
        elif ordered and (meta.is_being_deleted(found) or not _is_healthy(owner, found, now)):
            return True
    return False


def _blocked_by_condemned(
    owner: JsonObject, by_number: dict[int, JsonObject], step: Step, now: datetime
) -> bool:
    wanted = numbers(owner)
    condemned = [found for number, found in sorted(by_number.items()) if number not in wanted]
    unhealthy = [found for found in condemned if not _is_healthy(owner, found, now)]
    for found in reversed(condemned):
        if is_parallel(owner):
            if not meta.is_being_deleted(found):
                step.delete.append(found)
            continue
        if meta.is_being_deleted(found):
            return True
        if not _is_healthy(owner, found, now) and found is not unhealthy[0]:
            return True
        step.delete.append(found)
        return True
    return False


def _plan_update(
    owner: JsonObject, by_number: dict[int, JsonObject], step: Step, update: str, now: datetime
) -> None:
    """Replace the pods of old revisions from the highest ordinal down, up to maxUnavailable at a time."""
    rolling = get_object(owner, "spec", "updateStrategy", "rollingUpdate")
    allowed = max(1, scaled(rolling.get("maxUnavailable", 1), len(numbers(owner)), round_up=False))
    wanted = [number for number in numbers(owner) if number >= partition(owner)]
    unavailable = sum(
        not _is_healthy(owner, by_number[number], now) for number in wanted if number in by_number
    )
    for number in reversed(wanted):
        found = by_number.get(number)
        if found is None:
            return
        healthy = _is_healthy(owner, found, now)
        if revision_of(found) == update or meta.is_being_deleted(found):
            if not healthy and unavailable >= allowed:
                return
            continue
        if healthy and unavailable >= allowed:
            return
        step.delete.append(found)
        unavailable += healthy
        if unavailable >= allowed:
            return


def _is_healthy(owner: JsonObject, found: JsonObject, now: datetime) -> bool:
    min_ready = get_int(owner, "spec", "minReadySeconds")
    return (
        get_str(found, "status", "phase") == "Running"
        and not meta.is_being_deleted(found)
        and pod_facts.is_available(found, min_ready, now)
    )


def uses_current(owner: JsonObject, number: int) -> bool:
    """Whether a new pod of that ordinal gets the current revision instead of the update revision."""
    start = numbers(owner).start
    if get_str(owner, "spec", "updateStrategy", "type") == "OnDelete":
        return False
    return number < max(start, partition(owner))


def status(
    owner: JsonObject, pods: Sequence[JsonObject], current: str, update: str, now: datetime
) -> JsonObject:
    """The status; when all pods are new and ready, the newest revision becomes the current one."""
    min_ready = get_int(owner, "spec", "minReadySeconds")
    living = [found for found in pods if get_str(found, "status", "phase")]
    ready = [
        found
        for found in living
        if get_str(found, "status", "phase") == "Running" and pod_facts.is_ready(found)
    ]
    available = [found for found in ready if pod_facts.is_available(found, min_ready, now)]
    staying = [found for found in living if not meta.is_being_deleted(found)]
    of_current = sum(revision_of(found) == current for found in staying)
    of_update = sum(revision_of(found) == update for found in staying)
    wanted = len(numbers(owner))
    rolling = get_str(owner, "spec", "updateStrategy", "type") != "OnDelete"
    if rolling and current != update and of_update == len(living) == len(ready) == wanted:
        current, of_current = update, of_update
    result: JsonObject = {
        "observedGeneration": meta.generation(owner),
        "replicas": len(living),
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": get_int(owner, "status", "collisionCount"),
        "availableReplicas": len(available),
    }
    for name, count in (
        ("readyReplicas", len(ready)),
        ("currentReplicas", of_current),
        ("updatedReplicas", of_update),
    ):
        if count:
            result[name] = count
    return result

"""On which nodes a DaemonSet should run, and which pods to create and delete. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kindling.controllers import pods as pod_facts
from kindling.controllers.workloads.rollout import scaled
from kindling.scheduler import node_rules
from kubecore.json import JsonObject, deep_copy, get_int, get_list, get_object, get_str
from kubecore.objects import meta

HASH_LABEL = "controller-revision-hash"
GENERATION_LABEL = "pod-template-generation"

_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_HOST_NETWORK_TOLERATED = ("node.kubernetes.io/network-unavailable", "NoSchedule")


def pod_spec(daemon_set: JsonObject, node: str = "") -> JsonObject:
    """The spec of a daemon pod: the template's with the tolerations of daemons, tied to `node`."""
    spec = deep_copy(get_object(daemon_set, "spec", "template", "spec"))
    wanted = [*_TOLERATED, *([_HOST_NETWORK_TOLERATED] if spec.get("hostNetwork") else [])]
    tolerations = list(get_list(spec, "tolerations"))
    for key, effect in wanted:
        tolerations = [
            entry for entry in tolerations if (entry.get("key"), entry.get("effect")) != (key, effect)
        ]
        tolerations.append({"key": key, "operator": "Exists", "effect": effect})
    spec["tolerations"] = tolerations
    if node:
        spec["affinity"] = _tied_to(get_object(spec, "affinity"), node)
    return spec


def _tied_to(affinity: JsonObject, node: str) -> JsonObject:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    requirement = {"key": "metadata.name", "operator": "In", "values": [node]}
    node_affinity = dict(get_object(affinity, "nodeAffinity"))
    terms = get_list(get_object(node_affinity, required), "nodeSelectorTerms") or [{}]
    node_affinity[required] = {
        "nodeSelectorTerms": [{**term, "matchFields": [requirement]} for term in terms]
    }
    return {**affinity, "nodeAffinity": node_affinity}


def target_node(pod: JsonObject) -> str:
    """The node that a daemon pod is bound to or targets by its affinity."""
    name = get_str(pod, "spec", "nodeName")
    if name:
        return name
    required = get_object(
        pod, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    for term in get_list(required, "nodeSelectorTerms"):
        for entry in get_list(term, "matchFields"):
            if entry.get("key") == "metadata.name" and len(entry.get("values") or []) == 1:
                return str(entry["values"][0])
    return ""


def should_run(daemon_set: JsonObject, node: JsonObject) -> tuple[bool, bool]:
    """Whether a daemon pod should run on the node, and whether one already there may continue."""
    pod: JsonObject = {"spec": pod_spec(daemon_set)}
    wanted = get_str(pod, "spec", "nodeName")
    if wanted and wanted != meta.name(node):
        return False, False
    if not node_rules.matches_affinity(pod, node):
        return False, False
    taints = get_list(node, "spec", "taints")
    if node_rules.untolerated(pod, taints, ("NoExecute",)):
        return False, False
    return node_rules.untolerated(pod, taints, ("NoSchedule",)) is None, True


@dataclass(slots=True)
class Work:
    """Nodes that need a pod, pods to delete, and failed pods (reported in an event)."""

    create: list[str] = field(default_factory=list)
    delete: list[JsonObject] = field(default_factory=list)
    failed: list[JsonObject] = field(default_factory=list)


def plan(
    daemon_set: JsonObject, nodes: Sequence[JsonObject], pods: Mapping[str, Sequence[JsonObject]]
) -> Work:
    """Which pods to create and delete; `pods` are the set's pods by node, including nodes that do not exist
    any more.
    """
    work = Work()
    surge = max_surge(daemon_set, nodes)
    for node in nodes:
        name = meta.name(node)
        here = list(pods.get(name, ()))
        run, stay = should_run(daemon_set, node)
        if not stay:
            work.delete += [pod for pod in here if not meta.is_being_deleted(pod)]
            continue
        failed = [pod for pod in here if get_str(pod, "status", "phase") == "Failed"]
        work.failed += failed
        work.delete += [pod for pod in failed if not meta.is_being_deleted(pod)]
        living = [pod for pod in here if pod not in failed and not meta.is_being_deleted(pod)]
        if run and not living and len(here) == len(failed):
            work.create.append(name)
        elif len(living) > 1 and surge == 0:
            keep_first = sorted(living, key=lambda pod: (not get_str(pod, "spec", "nodeName"), _age(pod)))
            work.delete += keep_first[1:]
    known = {meta.name(node) for node in nodes}
    for name, strays in pods.items():
        if name not in known:
            # Pods for deleted nodes that were never bound; pod garbage collection deletes those that were.
            work.delete += [
                pod
                for pod in strays
                if not get_str(pod, "spec", "nodeName") and not meta.is_being_deleted(pod)
            ]
    return work


def _age(pod: JsonObject) -> str:
    return meta.creation_timestamp(pod)


def is_updated(pod: JsonObject, digest: str, generation: int) -> bool:
    """Whether the pod was made from the present template."""
    labels = meta.labels(pod)
    return labels.get(HASH_LABEL) == digest or labels.get(GENERATION_LABEL) == str(generation)


def template_generation(daemon_set: JsonObject) -> int:
    """The template generation, which is kept as an annotation for old clients."""
    text = meta.annotations(daemon_set).get("deprecated.daemonset.template.generation", "")
    return int(text) if text.isdigit() else meta.generation(daemon_set)


def max_unavailable(daemon_set: JsonObject, nodes: Sequence[JsonObject]) -> int:
    """How many nodes may be without a working pod during an update."""
    rolling = get_object(daemon_set, "spec", "updateStrategy", "rollingUpdate")
    desired = sum(should_run(daemon_set, node)[0] for node in nodes)
    amount = scaled(rolling.get("maxUnavailable", 1), desired, round_up=True)
    return amount if amount or max_surge(daemon_set, nodes) else 1


def max_surge(daemon_set: JsonObject, nodes: Sequence[JsonObject]) -> int:
    """How many nodes may have an old and a new pod during an update."""
    rolling = get_object(daemon_set, "spec", "updateStrategy", "rollingUpdate")
    desired = sum(should_run(daemon_set, node)[0] for node in nodes)
    return scaled(rolling.get("maxSurge", 0), desired, round_up=True)


def plan_update(
    daemon_set: JsonObject,
    nodes: Sequence[JsonObject],
    pods: Mapping[str, Sequence[JsonObject]],
    digest: str,
    now: datetime,
) -> Work:
    """Which old pods may be deleted now and (with surge) which nodes may get a new pod beside the old one."""
    work = Work()
    generation = template_generation(daemon_set)
    min_ready = get_int(daemon_set, "spec", "minReadySeconds")
    unavailable_budget = max_unavailable(daemon_set, nodes)
    surge_budget = max_surge(daemon_set, nodes)
    unavailable = 0
    replaceable: list[JsonObject] = []
    surge_nodes: list[str] = []
    for node in nodes:
        if not should_run(daemon_set, node)[0]:
            continue
        here = [pod for pod in pods.get(meta.name(node), ()) if pod_facts.is_active(pod)]
        new = [pod for pod in here if is_updated(pod, digest, generation)]
        old = [pod for pod in here if pod not in new]
        available_new = any(pod_facts.is_available(pod, min_ready, now) for pod in new)
        available_old = any(pod_facts.is_available(pod, min_ready, now) for pod in old)
        if surge_budget:
            if old and (available_new or not available_old):
                work.delete += old if new else []
            if new and old and not available_new:
                surge_budget -= 1
            elif old and not new:
                surge_nodes.append(meta.name(node))
            continue
        if not (available_new or available_old):
            unavailable += 1
            work.delete += old
        elif old:
            replaceable += old
    work.delete += replaceable[: max(0, unavailable_budget - unavailable)] if not surge_budget else []
    work.create += surge_nodes[: max(0, surge_budget)]
    return work


def status(
    daemon_set: JsonObject,
    nodes: Sequence[JsonObject],
    pods: Mapping[str, Sequence[JsonObject]],
    digest: str,
    now: datetime,
) -> JsonObject:
    """The status of the set."""
    counts = dict.fromkeys(("current", "misscheduled", "desired", "ready", "updated", "available"), 0)
    generation = template_generation(daemon_set)
    min_ready = get_int(daemon_set, "spec", "minReadySeconds")
    for node in nodes:
        run, _ = should_run(daemon_set, node)
        here = sorted((pod for pod in pods.get(meta.name(node), ())), key=_age)
        if not run:
            counts["misscheduled"] += bool(here)
            continue
        counts["desired"] += 1
        if not here:
            continue
        counts["current"] += 1
        ready = [pod for pod in here if pod_facts.is_ready(pod)]
        counts["ready"] += bool(ready)
        counts["available"] += any(pod_facts.is_available(pod, min_ready, now) for pod in ready)
        counts["updated"] += any(is_updated(pod, digest, generation) for pod in here)
    result: JsonObject = {
        "currentNumberScheduled": counts["current"],
        "numberMisscheduled": counts["misscheduled"],
        "desiredNumberScheduled": counts["desired"],
        "numberReady": counts["ready"],
        "observedGeneration": meta.generation(daemon_set),
    }
    for name, count in (
        ("updatedNumberScheduled", counts["updated"]),
        ("numberAvailable", counts["available"]),
        ("numberUnavailable", counts["desired"] - counts["available"]),
    ):
        if count:
            result[name] = count
    for kept in ("collisionCount", "conditions"):
        if kept in get_object(daemon_set, "status"):
            result[kept] = daemon_set["status"][kept]
    return result

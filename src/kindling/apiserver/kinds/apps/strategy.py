"""Workloads: replication controllers, replica sets, deployments, stateful and daemon sets, revisions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from kindling.apiserver.kinds.core.pods.defaults import default_claim_spec, default_pod_spec
from kindling.apiserver.kinds.core.pods.warnings import name_warning, template_warnings
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStatusStrategy, BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition, ScalePaths, scale_subresource
from kubecore.json import JsonObject, get_int, get_object
from kubecore.resources import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)

from . import validation

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


class WorkloadStrategy(BuiltinStrategy):
    """What all kinds with a pod template in spec.template share."""

    def complete(self, obj: JsonObject) -> None:
        """Defaults of the template, then the kind's own."""
        template = get_object(obj, "spec", "template")
        if "spec" in template:
            default_pod_spec(template["spec"])
        self.complete_spec(obj["spec"])

    def complete_spec(self, spec: JsonObject) -> None:
        """The kind's own defaults."""

    def warnings(self, ctx: RequestContext, obj: JsonObject, old: JsonObject | None) -> list[str]:
        """The warnings of the pod template, if it has changed."""
        template = p.template_of(obj)
        if old is not None:
            return template_warnings(template, ("spec", "template"), p.template_of(old))
        return name_warning(obj) + template_warnings(template, ("spec", "template"))


class ReplicationControllerStrategy(WorkloadStrategy):
    """The oldest of them; selector and labels default to the template's labels."""

    default_propagation = "Orphan"
    rules = Rules(validation.validate_replication_controller, status=validation.validate_replica_set_counts)

    def complete(self, obj: JsonObject) -> None:
        """Selector and labels from the template; one replica."""
        super().complete(obj)
        labels = get_object(obj, "spec", "template", "metadata", "labels")
        if labels:
            if not obj["spec"].get("selector"):
                obj["spec"]["selector"] = dict(labels)
            if not obj["metadata"].get("labels"):
                obj["metadata"]["labels"] = dict(labels)
        obj["spec"].setdefault("replicas", 1)

    def selectable_fields(self, obj: JsonObject) -> Mapping[str, str]:
        """The number of pods there are."""
        return {"status.replicas": str(get_int(obj, "status", "replicas"))}


class ReplicaSetStrategy(WorkloadStrategy):
    """Keeps a number of equal pods."""

    rules = Rules(
        validation.validate_replica_set,
        update=validation.selector_kept(validation.validate_replica_set),
        status=validation.validate_replica_set_counts,
    )

    def complete_spec(self, spec: JsonObject) -> None:
        """Default to one replica."""
        spec.setdefault("replicas", 1)


class DeploymentStrategy(WorkloadStrategy):
    """Pods that are updated through one ReplicaSet after the other."""

    rules = Rules(
        validation.validate_deployment,
        update=validation.selector_kept(validation.validate_deployment),
        status=validation.validate_deployment_counts,
    )

    def complete_spec(self, spec: JsonObject) -> None:
        """Default to one replica, rolling updates of 25 %, ten revisions and a deadline of ten minutes."""
        spec.setdefault("replicas", 1)
        strategy = spec.setdefault("strategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def generation_changed(self, new: JsonObject, old: JsonObject) -> bool:
        """Changed annotations count as well: they are copied to the replica sets."""
        if (new["metadata"].get("annotations") or {}) != (old["metadata"].get("annotations") or {}):
            return True
        return super().generation_changed(new, old)


class DeploymentStatusStrategy(BuiltinStatusStrategy):
    """``/status`` of a deployment, whose labels the controller must not undo."""

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Keep the labels, too."""
        super().prepare_for_update(ctx, new, old)
        new["metadata"].pop("labels", None)
        if labels := get_object(old, "metadata", "labels"):
            new["metadata"]["labels"] = dict(labels)


class StatefulSetStrategy(WorkloadStrategy):
    """Pods with stable names and volumes."""

    rules = Rules(
        validation.validate_stateful_set,
        update=validation.validate_stateful_set_update,
        status=validation.validate_stateful_counts,
    )

    def complete_spec(self, spec: JsonObject) -> None:
        """Default to one replica, ordered pods, ten revisions and claims that are retained."""
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec.setdefault("updateStrategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
        retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        retention.setdefault("whenDeleted", "Retain")
        retention.setdefault("whenScaled", "Retain")
        spec.setdefault("replicas", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        for claim in spec.get("volumeClaimTemplates") or ():
            claim.setdefault("apiVersion", "v1")
            claim.setdefault("kind", "PersistentVolumeClaim")
            default_claim_spec(claim["spec"])
            claim["status"].setdefault("phase", "Pending")


class DaemonSetStrategy(WorkloadStrategy):
    """A pod on every node."""

    rules = Rules(
        validation.validate_daemon_set,
        update=validation.selector_kept(validation.validate_daemon_set),
        status=validation.validate_daemon_counts,
    )

    def complete_spec(self, spec: JsonObject) -> None:
        """Default to rolling updates, one node at a time, and ten revisions."""
        strategy = spec.setdefault("updateStrategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """The first generation of the template."""
        super().prepare_for_create(ctx, obj)
        _set_template_generation(obj, 1)

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Count up the template's generation when the template changed."""
        super().prepare_for_update(ctx, new, old)
        before = _template_generation(old)
        changed = p.template_of(new) != p.template_of(old)
        _set_template_generation(new, before + 1 if changed else before)


def _template_generation(obj: JsonObject) -> int:
    text = get_object(obj, "metadata", "annotations").get(TEMPLATE_GENERATION, "0")
    return int(text) if str(text).isdigit() else 0


def _set_template_generation(obj: JsonObject, generation: int) -> None:
    annotations = {**get_object(obj, "metadata", "annotations"), TEMPLATE_GENERATION: str(generation)}
    obj["metadata"]["annotations"] = annotations


class RevisionStrategy(BuiltinStrategy):
    """A stored state of a stateful or daemon set; its data never changes."""

    metadata_checks = (1, 1)
    has_status = False
    tracks_generation = False
    rules = Rules(validation.validate_revision, immutable=("data",))


def _ready(obj: JsonObject) -> str:
    return f"{get_int(obj, 'status', 'readyReplicas')}/{get_int(obj, 'spec', 'replicas')}"


def _selector(obj: JsonObject) -> str:
    """Those of replication controllers are maps of labels."""
    selector = get_object(obj, "spec").get("selector")
    is_map = isinstance(selector, dict) and not selector.keys() & {"matchLabels", "matchExpressions"}
    return p.format_labels(selector) if is_map else p.format_selector(selector)


def _controller(obj: JsonObject) -> str:
    controller = p.NONE
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            group = owner.get("apiVersion", "").rpartition("/")[0]
            suffix = f".{group}" if group else ""
            controller = f"{owner.get('kind', '').lower()}{suffix}/{owner.get('name', '')}"
    return controller


def _integer(name: str, path: str) -> p.Column:
    return p.plain(name, path, kind="integer", absent=0)


_TEMPLATE = p.template_columns()
_REPLICATED = p.Table(
    p.NAME,
    _integer("Desired", "spec.replicas"),
    _integer("Current", "status.replicas"),
    _integer("Ready", "status.readyReplicas"),
    p.AGE,
    *_TEMPLATE,
    p.wide("Selector", _selector),
)
_DEPLOYMENT = p.Table(
    p.NAME,
    p.plain("Ready", _ready),
    p.plain("Up-to-date", "status.updatedReplicas", absent=0),
    p.plain("Available", "status.availableReplicas", absent=0),
    p.AGE,
    *_TEMPLATE,
    p.SELECTOR,
)
_STATEFUL = p.Table(p.NAME, p.plain("Ready", _ready), p.AGE, *_TEMPLATE)
_DAEMON = p.Table(
    p.NAME,
    _integer("Desired", "status.desiredNumberScheduled"),
    _integer("Current", "status.currentNumberScheduled"),
    _integer("Ready", "status.numberReady"),
    _integer("Up-to-date", "status.updatedNumberScheduled"),
    _integer("Available", "status.numberAvailable"),
    p.plain(
        "Node Selector",
        lambda obj: p.format_labels(get_object(p.template_of(obj), "spec").get("nodeSelector")),
    ),
    p.AGE,
    *_TEMPLATE,
    p.SELECTOR,
)
_REVISION = p.Table(
    p.NAME, p.plain("Controller", _controller), p.plain("Revision", "revision", absent=0), p.AGE
)


def definitions() -> list[ResourceDefinition]:
    """All workload kinds, and controller revisions."""
    workload = partial(builtin, categories=("all",))
    scale = scale_subresource(ScalePaths(selector="spec.selector", validate=validation.validate_scale))
    scaled = partial(workload, subresources=(scale,))
    deployments = DeploymentStrategy()
    return [
        scaled(
            REPLICATION_CONTROLLERS,
            ReplicationControllerStrategy(),
            short=("rc",),
            table=_REPLICATED,
            fields=("status.replicas",),
        ),
        builtin(CONTROLLER_REVISIONS, RevisionStrategy(), table=_REVISION),
        workload(DAEMON_SETS, DaemonSetStrategy(), short=("ds",), table=_DAEMON),
        scaled(
            DEPLOYMENTS,
            deployments,
            short=("deploy",),
            table=_DEPLOYMENT,
            status=DeploymentStatusStrategy(deployments),
        ),
        scaled(REPLICA_SETS, ReplicaSetStrategy(), short=("rs",), table=_REPLICATED),
        scaled(STATEFUL_SETS, StatefulSetStrategy(), short=("sts",), table=_STATEFUL),
    ]

"""Pods, their subresources, and pod templates as objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindling.apiserver.kinds.encoding import wire
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import (
    BuiltinStatusStrategy,
    BuiltinStrategy,
    action_schema,
    builtin,
    labels_of,
)
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition, Subresource
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.times import now_rfc3339
from kubecore.resources import PODS, ResourceType

from .binding import bind
from .defaults import adopt_apparmor_annotations, default_pod, default_pod_spec
from .eviction import evict
from .placement import merge_label_keys
from .qos import qos_class
from .status import pod_status_warnings, validate_pod_status_update
from .table import POD_TABLE
from .update import (
    validate_ephemeral_containers_update,
    validate_pod_update,
    validate_resize,
)
from .validation import validate_pod, validate_template
from .warnings import pod_warnings, template_warnings

POD_TEMPLATES = ResourceType("", "v1", "podtemplates", "PodTemplate")
BINDINGS = ResourceType("", "v1", "bindings", "Binding")
GATED = "Scheduling is blocked due to non-empty scheduling gates"


class PodStrategy(BuiltinStrategy):
    """Pods: gates and quality of service on creation, graceful deletion, few mutable fields."""

    metadata_checks = (1, 1)
    returns_deleted_object = True
    rules = Rules(
        validate_pod,
        update=validate_pod_update,
        status=validate_pod_status_update,
        warnings=pod_warnings,
        status_warnings=pod_status_warnings,
    )

    def complete(self, obj: JsonObject) -> None:
        """See ``defaults``."""
        default_pod(obj)

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """Set phase Pending, the QoS class, and the condition of pods with scheduling gates."""
        spec = obj["spec"]
        status: JsonObject = {"phase": "Pending", "qosClass": qos_class(spec)}
        if spec.get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": now_rfc3339(),
                    "reason": "SchedulingGated",
                    "message": GATED,
                }
            ]
        obj["status"] = status
        obj["metadata"]["generation"] = 1
        _repair_grace_period(obj)
        adopt_apparmor_annotations(obj)
        merge_label_keys(obj)

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Keep the status."""
        super().prepare_for_update(ctx, new, old)
        _repair_grace_period(new)

    def selectable_fields(self, obj: JsonObject) -> Mapping[str, str]:
        """Placement and state."""
        fields = labels_of(obj, *POD_FIELDS)
        fields["spec.hostNetwork"] = "true" if get_object(obj, "spec").get("hostNetwork") else "false"
        return fields

    def grace_period(self, ctx: RequestContext, obj: JsonObject, requested: int | None) -> int | None:
        """The requested or the pod's own period; none where no container can be running."""
        period = requested
        if period is None:
            period = get_object(obj, "spec").get("terminationGracePeriodSeconds", 30)
        if not get_str(obj, "spec", "nodeName") or get_str(obj, "status", "phase") in ("Failed", "Succeeded"):
            period = 0
        return 1 if period < 0 else period


def _repair_grace_period(obj: JsonObject) -> None:
    # Pods stored before this field was validated may have negative periods; they count as the minimum of 1.
    if obj["spec"].get("terminationGracePeriodSeconds", 0) < 0:
        obj["spec"]["terminationGracePeriodSeconds"] = 1


POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)


class PodStatusStrategy(BuiltinStatusStrategy):
    """Writes of the status by the kubelet: spec and deletion fields are kept."""

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Only metadata and status change; the quality-of-service class is fixed."""
        super().prepare_for_update(ctx, new, old)
        status = new.setdefault("status", {})
        quality = get_str(old, "status", "qosClass")
        if quality and not status.get("qosClass"):
            status["qosClass"] = quality
        if new["metadata"].get("deletionTimestamp") is None:
            new["metadata"].pop("deletionGracePeriodSeconds", None)


class _PodPartStrategy(BuiltinStrategy):
    """A subresource that writes one part of the spec of a pod."""

    def __init__(self, main: PodStrategy) -> None:
        self.main = main

    @property
    def schema(self) -> Any:  # type: ignore[override]
        """The pods' own."""
        return self.main.schema

    def complete(self, obj: JsonObject) -> None:
        """As pods."""
        default_pod(obj)

    def selectable_fields(self, obj: JsonObject) -> Mapping[str, str]:
        """As pods."""
        return self.main.selectable_fields(obj)


class EphemeralContainersStrategy(_PodPartStrategy):
    """``/ephemeralcontainers``: adds debugging containers to a running pod."""

    rules = Rules(update=validate_ephemeral_containers_update)

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Take over spec.ephemeralContainers only."""
        added = get_object(new, "spec").get("ephemeralContainers")
        new["spec"] = dict(old["spec"])
        new["spec"].pop("ephemeralContainers", None)
        if added:
            new["spec"]["ephemeralContainers"] = added
        new["status"] = old.get("status", {})


class ResizeStrategy(_PodPartStrategy):
    """``/resize``: changes cpu and memory of running containers."""

    rules = Rules(update=validate_resize)

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Take over resources and resize policies only."""
        wanted = new.get("spec") or {}
        spec = {**old["spec"]}
        for field in ("containers", "initContainers"):
            if field not in spec:
                continue
            by_name = {container.get("name"): container for container in get_list(wanted, field)}
            spec[field] = [
                _resized(container, by_name.get(container.get("name"))) for container in spec[field]
            ]
        if "resources" in wanted:
            spec["resources"] = wanted["resources"]
        new["spec"] = spec
        new["status"] = old.get("status", {})


def _resized(container: JsonObject, wanted: JsonObject | None) -> JsonObject:
    if wanted is None:
        return container
    changed = {**container, "resources": wanted.get("resources", {})}
    if "resizePolicy" in wanted:
        changed["resizePolicy"] = wanted["resizePolicy"]
    return changed


class BindingStrategy(BuiltinStrategy):
    """The older way to bind a pod: a body without a subresource. Never stored."""

    has_status = False
    tracks_generation = False


def _template_warnings(obj: JsonObject, old: JsonObject | None) -> list[str]:
    return template_warnings(get_object(obj, "template"), ("template",))


class PodTemplateStrategy(BuiltinStrategy):
    """A stored pod template."""

    has_status = False
    rules = Rules(f.document(f.part("template", validate_template)), warnings=_template_warnings)
    allow_create_on_update = True
    returns_deleted_object = True

    def complete(self, obj: JsonObject) -> None:
        """The template's pod spec."""
        default_pod_spec(get_object(obj, "template").setdefault("spec", wire.empty(self.schema, "spec")))


_TEMPLATE_TABLE = p.Table(
    p.NAME,
    p.plain("Containers", lambda obj: p.containers(get_object(obj, "template"))[0]),
    p.plain("Images", lambda obj: p.containers(get_object(obj, "template"))[1]),
    p.plain("Pod Labels", lambda obj: p.format_labels(get_object(obj, "template", "metadata", "labels"))),
)
_CONNECT = ("create", "get")
_PROXY = ("create", "delete", "get", "patch", "update")


def definitions() -> list[ResourceDefinition]:
    """Pods and pod templates."""
    strategy = PodStrategy()
    parts = ("get", "patch", "update")
    subresources = (
        Subresource("attach", "PodAttachOptions", _CONNECT, connect=True),
        Subresource(
            "binding", "Binding", ("create",), action=bind, schema=action_schema("", "v1", "Binding")
        ),
        Subresource("ephemeralcontainers", "Pod", parts, strategy=EphemeralContainersStrategy(strategy)),
        Subresource(
            "eviction",
            "Eviction",
            ("create",),
            group="policy",
            version="v1",
            action=evict,
            schema=action_schema("policy", "v1", "Eviction"),
            older_versions=("v1beta1",),
        ),
        Subresource("exec", "PodExecOptions", _CONNECT, connect=True),
        Subresource("log", "Pod", ("get",), connect=True),
        Subresource("portforward", "PodPortForwardOptions", _CONNECT, connect=True),
        Subresource("proxy", "PodProxyOptions", _PROXY, connect=True),
        Subresource("resize", "Pod", parts, strategy=ResizeStrategy(strategy)),
    )
    pods = builtin(
        PODS,
        strategy,
        short=("po",),
        categories=("all",),
        table=POD_TABLE,
        subresources=subresources,
        fields=POD_FIELDS,
        status=PodStatusStrategy(strategy),
    )
    bindings = builtin(BINDINGS, BindingStrategy(), verbs=("create",))
    bindings.virtual = bind
    return [pods, bindings, builtin(POD_TEMPLATES, PodTemplateStrategy(), table=_TEMPLATE_TABLE)]

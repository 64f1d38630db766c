"""``pods/NAME/binding``: assigns a pod to a node."""

from __future__ import annotations

from collections.abc import Iterator

from kindling.apiserver.registry.context import RequestContext
from kubecore import errors
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import FieldError, FieldPath, not_supported, required
from kubecore.objects.meta import set_condition
from kubecore.objects.times import now_rfc3339
from kubecore.resources import PODS

SUCCESS: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def validate_binding(binding: JsonObject) -> Iterator[FieldError]:
    """Only nodes are bound to, by name."""
    kind = get_str(binding, "target", "kind")
    if kind not in ("", "Node"):
        yield not_supported(FieldPath("target", "kind"), kind, ["Node", "<empty>"])
    if not get_str(binding, "target", "name"):
        yield required(FieldPath("target", "name"))


async def bind(ctx: RequestContext, binding: JsonObject) -> JsonObject:
    """Write the node's name into the pod, once. Raises Conflict, Invalid, NotFound."""
    name = get_str(binding, "metadata", "name")
    if ctx.name and name != ctx.name:
        raise errors.bad_request("name in URL does not match name in Binding object")
    problems = list(validate_binding(binding))
    if problems:
        raise errors.invalid("Binding", "", name, problems)
    node = get_str(binding, "target", "name")

    def assign(pod: JsonObject) -> JsonObject:
        _check_assignable(pod, binding, name)
        pod["spec"]["nodeName"] = node
        annotations = get_object(binding, "metadata", "annotations")
        if annotations:
            pod["metadata"]["annotations"] = {**get_object(pod, "metadata", "annotations"), **annotations}
        status = pod.setdefault("status", {})
        status.pop("nominatedNodeName", None)
        set_condition(status.setdefault("conditions", []), "PodScheduled", "True", now=now_rfc3339())
        for condition in status["conditions"]:
            condition.setdefault("lastProbeTime", None)
        return pod

    await ctx.objects.modify(PODS, ctx.namespace, name, assign, dry_run=ctx.dry_run)
    return dict(SUCCESS)


def _check_assignable(pod: JsonObject, binding: JsonObject, name: str) -> None:
    uid = get_str(binding, "metadata", "uid")
    actual = get_str(pod, "metadata", "uid")
    if uid and uid != actual:
        raise errors.conflict(
            "pods/binding",
            name,
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}",
        )
    if get_str(pod, "metadata", "deletionTimestamp"):
        raise errors.conflict(
            "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host"
        )
    assigned = get_str(pod, "spec", "nodeName")
    if assigned:
        raise errors.conflict("pods/binding", name, f'pod {name} is already assigned to node "{assigned}"')
    if get_list(pod, "spec", "schedulingGates"):
        raise errors.conflict("pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")

"""The scale subresource: autoscaling/v1 Scale as a view of any object that counts replicas."""

from __future__ import annotations

from typing import Any

from kubecore import errors
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import fields
from kubecore.objects.fields import FieldError
from kubecore.objects.selectors import SelectorError, from_label_selector_object, label_selector_of_map
from kubecore.schema.model import Schema
from kubecore.schema.pruning import prune

from ..kinds.schemas.builtin import builtin_schemas
from . import decoding, managed, object_meta, patches
from .context import RequestContext
from .definition import ResourceDefinition, ScalePaths, Subresource
from .go_types import type_error
from .preconditions import wrong_uid
from .writes import Change


def _paths(subresource: Subresource) -> ScalePaths:
    if subresource.scale is None:
        raise errors.method_not_allowed()
    return subresource.scale


def read_path(obj: JsonObject, path: str) -> Any:
    """The value at a dotted path (a leading dot is allowed), or None."""
    value: Any = obj
    for key in path.strip(".").split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def write_path(obj: JsonObject, path: str, value: Any) -> None:
    """Set the value at a dotted path, making objects on the way."""
    *parents, last = path.strip(".").split(".")
    here = obj
    for key in parents:
        child = here.get(key)
        if not isinstance(child, dict):
            child = here[key] = {}
        here = child
    here[last] = value


def view(
    definition: ResourceDefinition, subresource: Subresource, obj: JsonObject, *, must_exist: bool = False
) -> JsonObject:
    """The Scale of an object. With `must_exist` a custom resource without replicas is an error (500)."""
    paths = _paths(subresource)
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    spec: JsonObject = {}
    replicas = read_path(obj, paths.spec_replicas)
    if replicas is None and must_exist and definition.custom:
        raise errors.internal(f'the spec replicas field ".{paths.spec_replicas}" does not exist')
    if replicas:
        spec["replicas"] = replicas
    status: JsonObject = {"replicas": read_path(obj, paths.status_replicas) or 0}
    selector = _selector_text(read_path(obj, paths.selector)) if paths.selector else ""
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": spec,
        "status": status,
    }


def _selector_text(selector: Any) -> str:
    if isinstance(selector, str):
        return selector
    if not isinstance(selector, dict):
        return ""
    try:
        if selector.keys() & {"matchLabels", "matchExpressions"}:
            return str(from_label_selector_object(selector))
        return str(label_selector_of_map(selector))
    except SelectorError:
        return ""


def check_body(ctx: RequestContext, scale: JsonObject, raw: bytes = b"") -> None:
    """Refuse a body that no Scale can be read from (400); unknown fields are refused or told."""
    problem = _wrong_type(scale, raw) or _unknown_fields(ctx, scale)
    if problem:
        raise errors.bad_request(f'Scale in version "v1" cannot be handled as a Scale: {problem}')


def _unknown_fields(ctx: RequestContext, scale: JsonObject) -> str:
    """Warn of fields that a Scale does not have; for a strict request the error about them."""
    strictness = ctx.options.get("fieldValidation") or "Warn"
    problems = [f"unknown field {fields.go_quote(path)}" for path in prune(scale, _schema())]
    if strictness == "Strict" and problems:
        return decoding.strict_error(problems)
    for problem in problems if strictness == "Warn" else ():
        ctx.warn(problem)
    return ""


def _schema() -> Schema:
    return builtin_schemas().kind("autoscaling", "v1", "Scale")


def _wrong_type(scale: JsonObject, raw: bytes = b"", *, restored: bool = False) -> str:
    return type_error(scale, _schema(), raw, restored=restored)


def _apply(
    definition: ResourceDefinition,
    subresource: Subresource,
    ctx: RequestContext,
    current: JsonObject,
    scale: JsonObject,
) -> JsonObject:
    """The object with the replicas of a Scale."""
    name = ctx.name
    sent = scale.get("metadata") or {}
    if sent.get("name") and sent["name"] != name:
        raise object_meta.other_name(sent["name"], name)
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    problems: list[FieldError] = []
    if not definition.custom and (not isinstance(replicas, int) or replicas < 0):
        problems.append(fields.invalid("spec.replicas", replicas, "must be greater than or equal to 0"))
    if problems:
        raise errors.invalid("Scale", "autoscaling", name, problems)
    metadata = current["metadata"]
    if sent.get("uid") and sent["uid"] != metadata["uid"]:
        raise wrong_uid(definition, ctx, str(sent["uid"]), metadata["uid"])
    if sent.get("resourceVersion") and sent["resourceVersion"] != metadata["resourceVersion"]:
        raise errors.conflict(definition.resource, name)
    write_path(current, _paths(subresource).spec_replicas, replicas)
    return current


def replacement(
    definition: ResourceDefinition, subresource: Subresource, ctx: RequestContext, scale: JsonObject
) -> Change:
    """The object after a PUT of its Scale."""

    async def change(current: JsonObject | None) -> JsonObject:
        if current is None:
            raise errors.not_found(definition.resource, ctx.name)
        before = deep_copy(current)
        new = _apply(definition, subresource, ctx, current, scale)
        managed.track_write(definition, before, new, ctx, subresource)
        return new

    return change


def patched(
    definition: ResourceDefinition, subresource: Subresource, ctx: RequestContext, patch_type: str, raw: bytes
) -> Change:
    """The object after a PATCH of its Scale."""

    async def change(current: JsonObject | None) -> JsonObject:
        if current is None:
            raise errors.not_found(definition.resource, ctx.name)
        before = view(definition, subresource, current)
        after = await ctx.run(patches.patched_document, patch_type, raw, before, definition)
        problem = _wrong_type(after, restored=patch_type == "strategic")
        problem = problem or _unknown_fields(ctx, after)
        if problem:
            raise patches.not_restorable(patch_type, raw, after, problem)
        if after["metadata"].get("resourceVersion") == before["metadata"]["resourceVersion"]:
            after["metadata"].pop("resourceVersion")
        original = deep_copy(current)
        new = _apply(definition, subresource, ctx, current, after)
        await ctx.run(managed.track_write, definition, original, new, ctx, subresource)
        return new

    return change


def applied(
    definition: ResourceDefinition,
    subresource: Subresource,
    ctx: RequestContext,
    scale: JsonObject,
    *,
    force: bool,
) -> Change:
    """The object after a server-side apply of its Scale, which owns only the replicas."""
    resource = definition.resource

    async def change(current: JsonObject | None) -> JsonObject:
        if current is None:
            raise errors.not_found(resource, ctx.name)
        configuration: JsonObject = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": ctx.name, "namespace": ctx.namespace},
        }
        replicas = (scale.get("spec") or {}).get("replicas")
        if replicas is not None:
            write_path(configuration, _paths(subresource).spec_replicas, replicas)
        new = managed.applied(definition, current, configuration, ctx, force=force, subresource=subresource)
        return _apply(definition, subresource, ctx, new, scale)

    return change

"""PATCH requests: the patch's body turned into a change of the current object."""

from __future__ import annotations

import orjson
import yaml

from kubecore import errors, yaml_text
from kubecore.json import JsonObject, deep_copy, get_str
from kubecore.objects.fields import go_quote
from kubecore.objects.goformat import json_type
from kubecore.patch.jsonpatch import JsonPatchError, apply_json_patch, decode_json_patch
from kubecore.patch.mergepatch import apply_merge_patch, decode_merge_patch
from kubecore.patch.strategic import decode_strategic_patch, invalid_patch, strategic_merge
from kubecore.repeated_fields import (
    duplicate_fields,
    has_odd_members,
    in_operations,
    may_repeat_fields,
)

from ..kinds.schemas.builtin import builtin_schemas
from . import decoding, managed, object_meta
from .context import RequestContext
from .definition import ResourceDefinition
from .go_json import syntax_error
from .go_numbers import restore_numbers
from .go_types import type_error
from .writes import Change, Target


def patched_document(
    patch_type: str, raw: bytes, current: JsonObject, definition: ResourceDefinition
) -> JsonObject:
    """The current object after a JSON, merge or strategic merge patch. Raises StatusError."""
    try:
        patch = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        problem = syntax_error(raw) or str(error)
        ends_early = problem == "unexpected end of JSON input" and patch_type != "merge"
        prefix = "" if ends_early else "error decoding patch: "
        raise errors.bad_request(prefix + problem) from error
    if patch_type == "json":
        try:
            result = apply_json_patch(current, decode_json_patch(patch))
        except JsonPatchError as error:
            raise error.rejected() from error
    elif patch_type == "merge":
        result = apply_merge_patch(current, decode_merge_patch(patch))
    else:
        result = strategic_merge(current, decode_strategic_patch(patch), definition.schema)
        # Such a patch works on the structure of the kind, which cannot become another one.
        result |= {"apiVersion": current.get("apiVersion"), "kind": current.get("kind")}
        return dict(restore_numbers(deep_copy(result), definition.schema))
    if not isinstance(result, dict):
        raise errors.bad_request("the patched document is not an object")
    return deep_copy(result)


def change(target: Target, ctx: RequestContext, patch_type: str, raw: bytes) -> Change:
    """The function that applies a JSON, merge or strategic merge patch to the current object."""
    definition = target.definition
    strictness = str(ctx.options.get("fieldValidation") or "Warn")

    def patched(current: JsonObject) -> JsonObject:
        new = patched_document(patch_type, raw, current, definition)
        if definition.custom and not new.get("apiVersion"):
            raise errors.internal("Object 'apiVersion' is missing in 'object has no apiVersion field'")
        if not new.get("apiVersion"):
            raise _without_version(patch_type, raw, new, strictness, ctx)
        new.setdefault("kind", definition.resource.kind)
        restored = patch_type == "strategic"
        problem = decoding.wrong_type(definition, new, restored=restored) or _foreign_kind(definition, new)
        if problem:
            raise not_restorable(patch_type, raw, new, problem)
        check_identity(definition, ctx, new)
        complaints = _complaints(patch_type, raw) if strictness != "Ignore" else []
        if strictness == "Warn":
            for complaint in complaints:
                ctx.warn(complaint)
        text = orjson.dumps(new).decode() if strictness == "Strict" and definition.schema is not None else ""
        try:
            decoding.complete(definition, new, (), strictness, ctx)
        except decoding.StrictDecodingError as error:
            raise _strictly_invalid(patch_type, raw, text, [*complaints, *error.problems]) from error
        if complaints and strictness == "Strict":
            raise _strictly_invalid(patch_type, raw, raw.decode(), complaints)
        managed.track_write(definition, current, new, ctx, target.subresource)
        return new

    async def apply(current: JsonObject | None) -> JsonObject:
        if current is None:
            raise errors.not_found(definition.resource, ctx.name)
        return await ctx.run(patched, current)

    return apply


def _without_version(
    patch_type: str, raw: bytes, new: JsonObject, strictness: str, ctx: RequestContext
) -> errors.StatusError:
    """The refusal of an outcome without apiVersion: it is read as the internal form, which knows no field."""
    unknown = sorted(new.keys() - {"kind", "apiVersion"})
    problems = [f"unknown field {go_quote(field)}" for field in unknown]
    if strictness == "Strict" and problems:
        return _strictly_invalid(patch_type, raw, orjson.dumps(new).decode(), problems)
    for problem in problems if strictness == "Warn" else ():
        ctx.warn(problem)
    return object_meta.nameless(ctx.name)


def _complaints(patch_type: str, raw: bytes) -> list[str]:
    """What strict decoding has against the text of a patch, which is JSON."""
    patch = orjson.loads(raw)
    may_repeat = may_repeat_fields(raw, orjson.dumps(patch))
    if patch_type == "json":
        return in_operations(raw) if may_repeat or has_odd_members(patch) else []
    if not may_repeat:
        return []
    return [f"duplicate field {go_quote(path)}" for path in duplicate_fields(raw)]


def _strictly_invalid(patch_type: str, raw: bytes, text: str, problems: list[str]) -> errors.StatusError:
    """422 for a patch that strict decoding refuses, or its outcome (`text`)."""
    shown = orjson.loads(raw) if patch_type == "strategic" else text
    return invalid_patch(shown, decoding.strict_error(problems))


def _foreign_kind(definition: ResourceDefinition, new: JsonObject) -> str:
    """The error of a patch that changes the kind of the object; empty if it does not."""
    resource = definition.resource
    kind, api_version = str(new["kind"]), str(new["apiVersion"])
    if (kind, api_version) == (resource.kind, resource.api_version) or definition.custom:
        return ""  # a custom resource of another kind is refused by its validation
    problem = decoding.foreign_kind(kind, api_version, resource.api_version, resource.kind)
    if problem.startswith("converting"):
        group, _, version = api_version.rpartition("/")
        return type_error(new, builtin_schemas().kind(group, version, kind)) or problem
    return problem


def not_restorable(patch_type: str, raw: bytes, new: JsonObject, problem: str) -> errors.StatusError:
    """The refusal of a patch whose outcome is no object of the kind."""
    return invalid_patch(
        orjson.loads(raw) if patch_type == "strategic" else orjson.dumps(new).decode(), problem
    )


def applying(
    target: Target, ctx: RequestContext, configuration: JsonObject, repeated: list[str], *, force: bool
) -> Change:
    """The function that applies `configuration` by server-side apply (and creates a missing object)."""
    definition = target.definition
    strictness = str(ctx.options.get("fieldValidation") or "Warn")
    check_applied(definition, ctx, configuration)

    def applied(current: JsonObject | None) -> JsonObject:
        if current is None and target.subresource is not None:
            raise errors.not_found(definition.resource, ctx.name)
        wanted = deep_copy(configuration)
        new = managed.applied(definition, current, wanted, ctx, force=force, subresource=target.subresource)
        new["metadata"].setdefault("name", ctx.name)
        if definition.resource.namespaced:
            new["metadata"]["namespace"] = ctx.namespace
        check_identity(definition, ctx, new)
        if repeated and strictness == "Strict":
            problem = decoding.in_yaml(repeated, strictness)[0]
            message = f"error strict decoding YAML: error converting YAML to JSON: {problem}"
            raise errors.bad_request(message)
        if strictness == "Warn":
            for warning in repeated:
                ctx.warn(warning)
        check_convertible(definition, new)
        decoding.complete(definition, new, (), strictness, ctx)
        return new

    async def apply(current: JsonObject | None) -> JsonObject:
        return await ctx.run(applied, current)

    return apply


def check_convertible(definition: ResourceDefinition, new: JsonObject) -> None:
    """The applied document must become a struct of its kind (500): it is converted, not decoded."""
    if definition.custom:
        return
    problem = decoding.wrong_type(definition, new, restored=True)
    if problem:
        api_version, kind = definition.resource.api_version, definition.resource.kind
        shown = f"{api_version if '/' in api_version else f'/{api_version}'}, Kind={kind}"
        place = f"{get_str(new, 'metadata', 'namespace')}/{get_str(new, 'metadata', 'name')}"
        raise errors.plain_internal(
            f"failed to convert new object ({place}; {shown}) to proper version: "
            f"unable to convert unstructured object to {shown}: {problem}"
        )


def decode_applied(raw: bytes) -> tuple[JsonObject, list[str]]:
    """(document, complaints about repeated keys) of an apply request's YAML. Raises StatusError (400)."""
    try:
        document, repeated = yaml_text.read(raw)
    except yaml.YAMLError as error:
        raise errors.bad_request(
            f"error decoding YAML: error converting YAML to JSON: {yaml_text.message(error)}"
        ) from error
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise errors.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
            f"{json_type(document)} into Go value of type map[string]interface {{}}"
        )
    return document, repeated


def check_applied(definition: ResourceDefinition, ctx: RequestContext, configuration: JsonObject) -> None:
    """Check metadata of an applied configuration (400)."""
    metadata = configuration.get("metadata")
    if not isinstance(metadata, dict):
        metadata = configuration["metadata"] = {}
    metadata.setdefault("name", ctx.name)
    if isinstance(metadata["name"], str) and metadata["name"] != ctx.name:
        raise object_meta.other_name(metadata["name"], ctx.name)
    object_meta.check_namespace(metadata, ctx.namespace)
    kind, api_version = configuration.get("kind") or "", configuration.get("apiVersion") or ""
    if kind != definition.resource.kind or api_version != definition.resource.api_version:
        group, _, version = str(api_version).rpartition("/")
        raise errors.bad_request(f"invalid object type: {group}/{version}, Kind={kind}")


def check_identity(definition: ResourceDefinition, ctx: RequestContext, new: JsonObject) -> None:
    """A patch must not rename or move the object (400)."""
    metadata = new.get("metadata")
    if not isinstance(metadata, dict):
        metadata = new["metadata"] = {}
    object_meta.check_name(metadata.get("name"), ctx.name)
    if ctx.namespace and not metadata.get("namespace"):
        metadata["namespace"] = ctx.namespace
    if not definition.resource.namespaced:
        metadata.pop("namespace", None)
    else:
        object_meta.check_namespace(metadata, ctx.namespace)

"""PATCH requests: the patch's body turned into a change of the current object."""

from __future__ import annotations

import orjson

from kubecore import errors
from kubecore.json import JsonObject, deep_copy
from kubecore.patch import (
    JsonPatchError,
    apply_json_patch,
    apply_merge_patch,
    decode_json_patch,
    decode_merge_patch,
    decode_strategic_patch,
    strategic_merge,
)

from . import decoding, managed
from .context import RequestContext
from .definition import ResourceDefinition
from .writes import Change, Target


def patched_document(
    patch_type: str, raw: bytes, current: JsonObject, definition: ResourceDefinition
) -> JsonObject:
    """The current object after a JSON, merge or strategic merge patch. Raises StatusError."""
    try:
        patch = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        from ..http.go_json import syntax_error  # noqa: PLC0415 - the wire's words, needed only on failure

        raise errors.bad_request(f"error decoding patch: {syntax_error(raw) or error}") from error
    if patch_type == "json":
        try:
            result = apply_json_patch(current, decode_json_patch(patch))
        except JsonPatchError as error:
            raise error.rejected() from error
    elif patch_type == "merge":
        result = apply_merge_patch(current, decode_merge_patch(patch))
    else:
        result = strategic_merge(current, decode_strategic_patch(patch), definition.schema)
    if not isinstance(result, dict):
        raise errors.bad_request("the patched document is not an object")
    return deep_copy(result)


def change(target: Target, ctx: RequestContext, patch_type: str, raw: bytes) -> Change:
    """What a patch request makes of the current object."""
    definition = target.definition
    strictness = str(ctx.options.get("fieldValidation") or "Warn")

    async def apply(current: JsonObject | None) -> JsonObject:
        if current is None:
            raise errors.not_found(definition.resource, ctx.name)
        new = patched_document(patch_type, raw, current, definition)
        check_identity(ctx, new)
        decoding.complete(definition, new, (), strictness, ctx)
        managed.track_write(definition, current, new, ctx, target.subresource)
        return new

    return apply


def check_identity(ctx: RequestContext, new: JsonObject) -> None:
    """A patch must not rename or move the object (400)."""
    metadata = new.get("metadata")
    if not isinstance(metadata, dict):
        metadata = new["metadata"] = {}
    name = metadata.get("name")
    if name != ctx.name:
        raise errors.bad_request(
            f"the name of the object ({name or ''}) does not match the name on the URL ({ctx.name})"
        )
    if (metadata.get("namespace") or "") != ctx.namespace:
        raise errors.bad_request(
            f"the namespace of the object ({metadata.get('namespace') or ''}) does not match the namespace "
            f"on the URL ({ctx.namespace})"
        )

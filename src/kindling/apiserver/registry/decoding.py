"""From a decoded document to an object of its kind: unknown fields, wrong types, defaults."""

from __future__ import annotations

from collections.abc import Sequence

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects import fields
from kubecore.schema.model import Schema
from kubecore.schema.pruning import prune

from . import go_types
from .context import RequestContext
from .definition import ResourceDefinition

_META_FIELDS = ("apiVersion", "kind", "metadata")


def complete(
    definition: ResourceDefinition,
    document: JsonObject,
    duplicates: Sequence[str],
    strictness: str,
    ctx: RequestContext,
    raw: bytes = b"",
) -> None:
    """Check types, prune and default `document` in place. Raises StatusError (400).

    `strictness` is Strict (unknown and repeated fields are an error), Warn or Ignore. `raw` is the body.
    """
    problem = wrong_type(definition, document, raw)
    if problem:
        kind, version = definition.resource.kind, fields.go_quote(definition.resource.version)
        raise errors.bad_request(f"{kind} in version {version} cannot be handled as a {kind}: {problem}")
    if not isinstance(document.get("metadata"), dict) and document.get("metadata") is None:
        document["metadata"] = {}
    unknown = prune(document, definition.schema) if definition.schema is not None else []
    if (unknown or duplicates) and strictness != "Ignore":
        # Repeated fields are found while decoding, unknown ones after it.
        problems = [f"duplicate field {fields.go_quote(path)}" for path in duplicates]
        problems += [f"unknown field {fields.go_quote(path)}" for path in unknown]
        report(definition, problems, strictness, ctx)
    default(definition, document)


def wrong_type(definition: ResourceDefinition, document: JsonObject, raw: bytes = b"") -> str:
    """The complaint about a value of a wrong type in a built-in object; empty when there is none."""
    if definition.custom or definition.schema is None:
        return ""
    return go_types.type_error(document, definition.schema, raw)


def default(definition: ResourceDefinition, document: JsonObject) -> None:
    """Apply the kind's defaults; an empty list of managed fields, by which clients clear them, survives."""
    metadata = document["metadata"]
    entries = metadata.get("managedFields") if isinstance(metadata, dict) else None
    definition.strategy.default(document)
    if isinstance(entries, list):
        document["metadata"]["managedFields"] = entries


def report(
    definition: ResourceDefinition, problems: Sequence[str], strictness: str, ctx: RequestContext
) -> None:
    """Refuse (Strict) or warn about what strict decoding found."""
    if strictness == "Strict":
        text = f"strict decoding error: {', '.join(problems)}"
        kind = definition.resource.kind
        version = fields.go_quote(definition.resource.version)
        raise errors.bad_request(f"{kind} in version {version} cannot be handled as a {kind}: {text}")
    for problem in problems:
        ctx.warn(problem)


def prune_body(schema: Schema, document: JsonObject) -> None:
    """Drop unknown fields of a subresource's body."""
    prune(document, schema)

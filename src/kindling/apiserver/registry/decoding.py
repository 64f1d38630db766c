"""From a decoded document to an object of its kind: unknown fields, wrong types, defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubecore import errors
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import fields
from kubecore.repeated_fields import in_order
from kubecore.schema.defaulting import default as schema_defaults
from kubecore.schema.metadata import OBJECT_META
from kubecore.schema.model import Schema, SchemaSet
from kubecore.schema.pruning import prune

from ..kinds.schemas.builtin import builtin_schemas
from . import go_types
from .context import RequestContext
from .definition import ResourceDefinition

_SCHEME = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"
_UNSERVED = frozenset({("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition")})
"""Versions that Kubernetes' types know though no server serves them."""
_META_FIELDS = ("apiVersion", "kind", "metadata")
_META_NAME = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_OBJECT_META = Schema({"$ref": _META_NAME}, SchemaSet({_META_NAME: OBJECT_META}))


class StrictDecodingError(errors.StatusError):
    """Unknown or repeated fields in a request that is strict about them (400); patches say it otherwise."""

    def __init__(self, definition: ResourceDefinition, problems: Sequence[str]) -> None:
        kind, version = definition.resource.kind, fields.go_quote(definition.resource.version)
        message = f"{kind} in version {version} cannot be handled as a {kind}: {strict_error(problems)}"
        super().__init__(400, errors.BAD_REQUEST, message)
        self.problems = problems


def strict_error(problems: Sequence[str]) -> str:
    """All complaints of strict decoding in one text."""
    return f"strict decoding error: {', '.join(problems)}"


def complete(
    definition: ResourceDefinition,
    document: JsonObject,
    duplicates: Sequence[str],
    strictness: str,
    ctx: RequestContext,
    raw: bytes = b"",
    repeated_keys: Sequence[str] = (),
) -> None:
    """Check types, prune and default `document` in place. Raises StatusError (400).

    `strictness` is Strict (unknown and repeated fields are an error), Warn or Ignore. `raw` is the body,
    `duplicates` are paths in it, `repeated_keys` what is said of repeated keys in YAML.
    """
    problem = wrong_type(definition, document, raw)
    if problem:
        kind, version = definition.resource.kind, fields.go_quote(definition.resource.version)
        raise errors.bad_request(f"{kind} in version {version} cannot be handled as a {kind}: {problem}")
    if not isinstance(document.get("metadata"), dict) and document.get("metadata") is None:
        document["metadata"] = {}
    unknown = prune(document, definition.schema) if definition.schema is not None else []
    if (unknown or duplicates or repeated_keys) and strictness != "Ignore":
        problems = in_yaml(repeated_keys, strictness)
        if raw and not definition.custom:
            problems += in_order(raw, duplicates, unknown)
        else:
            # For custom resources, repeated fields are found while decoding, unknown ones afterwards.
            problems += [f"duplicate field {fields.go_quote(path)}" for path in duplicates]
            problems += [f"unknown field {fields.go_quote(path)}" for path in unknown]
        report(definition, problems, strictness, ctx)
    default(definition, document)


def in_yaml(repeated_keys: Sequence[str], strictness: str) -> list[str]:
    """Complaints about repeated keys: all in one error, or a warning for each."""
    if not repeated_keys or strictness != "Strict":
        return list(repeated_keys)
    return ["yaml: unmarshal errors:\n  " + "\n  ".join(repeated_keys)]


def report_other_version(
    definition: ResourceDefinition, document: JsonObject, strictness: str, ctx: RequestContext
) -> None:
    """Name the fields that a custom resource does not have in the version that the body claims.

    The body is going to be refused for its version, but decoding comes first.
    """
    sent = str(document.get("apiVersion") or "")
    if sent == definition.resource.api_version or strictness == "Ignore":
        return
    schema = definition.versions.get(sent)
    unknown = prune(deep_copy(document), schema) if schema is not None else []
    if schema is None:
        unknown = [key for key in document if key not in _META_FIELDS]
    if unknown:
        report(definition, [f"unknown field {fields.go_quote(path)}" for path in unknown], strictness, ctx)


def wrong_type(
    definition: ResourceDefinition, document: JsonObject, raw: bytes = b"", *, restored: bool = False
) -> str:
    """The complaint about a value of a wrong type; empty when there is none. `restored`: see ``type_error``.

    Of custom resources only the metadata has Go types; validation speaks about the rest.
    """
    if definition.schema is None:
        return ""
    if definition.custom:
        metadata = document.get("metadata")
        return go_types.type_error(metadata, _OBJECT_META) if isinstance(metadata, dict) else ""
    return go_types.type_error(document, definition.schema, raw, restored=restored)


def foreign_kind(sent_kind: str, sent_version: str, api_version: str, kind: str) -> str:
    """Why an object of `sent_kind` is not of `kind`; empty if it is only another version of it."""
    if (sent_version, sent_kind) in _UNSERVED:
        return ""
    group, _, version = sent_version.rpartition("/")
    try:
        builtin_schemas().name_of(group, version, sent_kind)
    except KeyError:
        quoted = f"{fields.go_quote(sent_kind)} is registered for version {fields.go_quote(sent_version)}"
        return f'no kind {quoted} in scheme "{_SCHEME}"'
    expected = api_version.rpartition("/")[0]
    if (sent_kind, group) == (kind, expected):
        return ""
    internal = expected.partition(".")[0] or "core"
    return f"converting ({version}.{sent_kind}) to ({internal}.{kind}): unknown conversion"


def default(definition: ResourceDefinition, document: JsonObject) -> None:
    """Apply the kind's defaults; an empty list of managed fields, by which clients clear them, survives."""
    metadata = document["metadata"]
    entries = metadata.get("managedFields") if isinstance(metadata, dict) else None
    definition.strategy.default(document)
    if isinstance(entries, list):
        document["metadata"]["managedFields"] = entries


def redefault(definition: ResourceDefinition) -> Callable[[JsonObject], None]:
    """What brings an object into form again after a plugin of admission changed it."""

    def again(document: JsonObject) -> None:
        problem = wrong_type(definition, document)
        if problem:
            raise errors.internal(problem)
        if definition.schema is not None:
            prune(document, definition.schema)
        if definition.custom and definition.schema is not None:
            # A null that a webhook wrote is refused; one that a client wrote was dropped before.
            schema_defaults(document, definition.schema, keeps_nulls=True)
        else:
            default(definition, document)

    return again


def report(
    definition: ResourceDefinition, problems: Sequence[str], strictness: str, ctx: RequestContext
) -> None:
    """Refuse (Strict) or warn about what strict decoding found."""
    if strictness == "Strict":
        raise StrictDecodingError(definition, problems)
    for problem in problems:
        ctx.warn(problem)


def prune_body(schema: Schema, document: JsonObject) -> None:
    """Drop unknown fields of a subresource's body."""
    prune(document, schema)

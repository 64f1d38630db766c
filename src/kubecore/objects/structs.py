"""Documents read as structs: decoded once, then read by field; a misspelt field fails the type checker.

A struct is a read-only view. Nothing writes a struct back as a whole object: fields unknown to the struct
would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from kubecore import json
from kubecore.json import JsonObject, get_str

Struct = TypeVar("Struct", bound=msgspec.Struct)


class UnfitDocument(ValueError):
    """A document cannot be decoded as a struct."""

    def __init__(
        self,
        kind: str,
        namespace: str,
        name: str,
        path: str,
        problem: str,
        document: Mapping[str, Any] | None = None,
    ) -> None:
        """`path` leads to the field (``spec.domain.cpu.cores``); it is empty for the whole document."""
        whose = " ".join(part for part in (kind, "/".join(filter(None, (namespace, name)))) if part)
        super().__init__(": ".join(part for part in (whose, path, problem) if part))
        self.kind = kind
        self.namespace = namespace
        self.name = name
        self.path = path
        self.problem = problem
        self.document = document or {}
        """What was to be decoded, for whoever needs but its metadata."""


def decode(struct: type[Struct], document: Mapping[str, Any]) -> Struct:
    """`document` as a `struct`. Fields that the struct does not know are passed over. Raises UnfitDocument.

    As for the API server, null is the same as absent, and 1.0 is a whole number.
    """
    try:
        return msgspec.convert(document, struct)
    except msgspec.ValidationError:
        pass  # Nearly every document decodes directly: only documents that do not are normalized first.
    try:
        return msgspec.convert(_plain(document), struct)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise UnfitDocument(
            get_str(document, "kind") or struct.__name__,
            get_str(document, "metadata", "namespace"),
            get_str(document, "metadata", "name"),
            path.strip(".`"),
            problem,
            document,
        ) from error


def readable(struct: type[Struct], documents: Iterable[Mapping[str, Any]]) -> Iterator[Struct]:
    """Decode `documents`, leaving out those that do not fit, for callers that must not fail because of
    one.
    """
    for document in documents:
        try:
            yield decode(struct, document)
        except UnfitDocument:
            continue  # The controller of that object reports it.


def encode(value: msgspec.Struct) -> JsonObject:
    """`value` as a JSON object, without empty lists (and without fields unknown to its type)."""
    document: JsonObject = json.decode(msgspec.json.encode(value))
    return document


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value

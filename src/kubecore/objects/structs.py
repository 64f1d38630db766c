"""Documents read as structs: decoded once, then read by field; a misspelt field fails the type checker.

A struct is a read-only view. Nothing writes a struct back as a whole object: fields unknown to the struct
would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

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


def part(document: Mapping[str, Any], struct: type[Struct], choose: Callable[[Struct], object]) -> JsonObject:
    """The object in a document of `struct` that `choose` leads to, as it is written; an empty one for none.

    `choose` goes through members (``lambda vm: vm.spec.template``): a misspelt one fails the type checker.
    """
    found: JsonObject | None = _at(document, struct, choose)
    return {} if found is None else found


def parts(document: Mapping[str, Any], struct: type[Struct], choose: Callable[[Struct], object]) -> list[Any]:
    """The list in a document of `struct` that `choose` leads to, as it is written; an empty one for none."""
    found: list[Any] | None = _at(document, struct, choose)
    return [] if found is None else found


def _at(document: Mapping[str, Any], struct: type[Struct], choose: Callable[[Struct], object]) -> Any:
    place = choose(cast("Struct", _Place(document, struct)))
    return place.value if isinstance(place, _Place) else None


class _Place:
    """A place in a document, with the type that is written there; its members are places, too."""

    __slots__ = ("struct", "value")

    def __init__(self, value: Any, struct: type[msgspec.Struct] | None) -> None:
        self.value = value
        self.struct = struct

    def __getattr__(self, name: str) -> _Place:
        if self.struct is None or name not in _members(self.struct):
            raise AttributeError(f"{self.struct} has no member {name}")
        key, struct = _members(self.struct)[name]
        return _Place(self.value.get(key) if isinstance(self.value, Mapping) else None, struct)


@cache
def _members(struct: type[msgspec.Struct]) -> Mapping[str, tuple[str, type[msgspec.Struct] | None]]:
    """The members of a struct by name: how they are written, and their struct where they are of one."""
    return {
        field.name: (field.encode_name, _struct_in(field.type)) for field in msgspec.structs.fields(struct)
    }


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    if get_origin(kind) in (Annotated, Union, UnionType):
        return next((found for item in get_args(kind) if (found := _struct_in(item))), None)
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value

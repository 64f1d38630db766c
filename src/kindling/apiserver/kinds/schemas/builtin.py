"""The built-in kinds' schemas, parsed from the file of definitions at their first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from kubecore.json import JsonObject
from kubecore.schema.model import Schema, SchemaSet

from .data_file import PREFIX, DataFile, SchemasMissing

__all__ = ["BuiltinSchemas", "PublishedDefinitions", "SchemasMissing", "builtin_schemas"]


class _LazyDefinitions(dict[str, JsonObject]):
    """Definitions that are parsed at their first use."""

    def __init__(self, file: DataFile) -> None:
        super().__init__()
        self._file = file

    def __missing__(self, name: str) -> JsonObject:
        raw = self[name] = self._file.plain(name)
        return raw

    def __contains__(self, name: object) -> bool:
        return name in self._file

    def __iter__(self) -> Iterator[str]:
        return iter(self._file)

    def __len__(self) -> int:
        return len(self._file)


class PublishedDefinitions(Mapping[str, JsonObject]):
    """Described definitions for OpenAPI documents: some root definitions and all they refer to.

    Nothing is kept: each look-up parses anew; callers cache the documents that they make.
    """

    def __init__(self, schemas: BuiltinSchemas, roots: tuple[str, ...]) -> None:
        self._schemas = schemas
        self._roots = roots
        self._names: tuple[str, ...] | None = None

    def __getitem__(self, name: str) -> JsonObject:
        return self._schemas.described(name)

    def __iter__(self) -> Iterator[str]:
        if self._names is None:
            self._names = self._schemas.closure(self._roots)
        return iter(self._names)

    def __len__(self) -> int:
        return len(tuple(iter(self)))


class BuiltinSchemas(SchemaSet):
    """The definitions of the data file: views for use (without descriptions), raw ones for publishing."""

    def __init__(self, file: DataFile) -> None:
        super().__init__({})
        self._file = file
        self._definitions = _LazyDefinitions(file)

    def schema(self, name: str) -> Schema:
        """The one shared view of the definition called `name`, which knows its name (KeyError when none)."""
        found = self._schemas.get(name)
        if found is None:
            found = self._schemas[name] = Schema({"$ref": PREFIX + name}, self)
        return found

    def name_of(self, group: str, version: str, kind: str) -> str:
        """The definition of a kind (KeyError when there is none)."""
        return self._file.kinds[f"{group}/{version}/{kind}"]

    def kind(self, group: str, version: str, kind: str) -> Schema:
        """The schema of a kind (KeyError when there is none)."""
        return self.schema(self.name_of(group, version, kind))

    def described(self, name: str) -> JsonObject:
        """A fresh copy of the definition with its descriptions."""
        return self._file.described(name)

    def closure(self, roots: tuple[str, ...]) -> tuple[str, ...]:
        """`roots` and all definitions which they refer to, in the order they are reached."""
        found: dict[str, None] = {}
        pending = list(reversed(roots))
        while pending:
            name = pending.pop()
            if name not in found:
                found[name] = None
                pending.extend(_references(self._file.plain(name)))
        return tuple(found)

    def published(self, *roots: str) -> PublishedDefinitions:
        """The described definitions of `roots` and of all they refer to."""
        return PublishedDefinitions(self, roots)


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        target = node.get("$ref")
        if isinstance(target, str):
            yield target.rsplit("/", 1)[-1]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


@cache
def builtin_schemas() -> BuiltinSchemas:
    """The definitions of this installation; the data file is made when absent. Raises SchemasMissing."""
    try:
        return BuiltinSchemas(DataFile.open())
    except (FileNotFoundError, SchemasMissing):
        from .definitions import write  # noqa: PLC0415 - only where the file is made

        write()
    return BuiltinSchemas(DataFile.open())

"""Records: objects of declared types, which expressions read by field and write as ``Name{field: value}``.

They are as the language has the structs of Go: a field that is not set reads as the zero value of its type,
and only ``has`` tells the difference. A literal holds the fields that it names and no others. Records cannot
be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .types import Type, parse_type
from .values import EvaluationError, Uint

_ZERO: Final[Mapping[str, Any]] = {
    "bool": False,
    "int": 0,
    "uint": Uint(0),
    "double": 0.0,
    "string": "",
    "bytes": b"",
}


@dataclass(frozen=True)
class Records:
    """The types of an environment by their full names, each with its fields and the names of their types."""

    types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    container: str = ""
    """Where names of types without a dot are looked for first."""

    def full_name(self, name: str) -> str:
        """The type that a literal names; empty if there is none."""
        inner = f"{self.container}.{name}" if self.container else name
        return next((each for each in (inner, name.removeprefix(".")) if each in self.types), "")

    def field_type(self, record: str, name: str) -> Type | None:
        """The type of a field; None when the record has none of this name."""
        declared = self.types[record].get(name)
        return parse_type(declared) if declared is not None else None


class Record:
    """One value; `fields` are those that are set."""

    __slots__ = ("_records", "fields", "kind")
    __hash__ = None  # type: ignore[assignment]  # as for everything that cannot be compared

    def __init__(self, kind: str, fields: Mapping[str, Any], records: Records) -> None:
        self.kind = kind
        """The full name of its type."""
        self.fields = fields
        self._records = records

    def __str__(self) -> str:
        return self.kind

    def __eq__(self, other: object) -> bool:
        raise EvaluationError("objects cannot be compared")

    def get(self, name: str) -> Any:
        """The value of a field. Raises EvaluationError."""
        if name in self.fields:
            return self.fields[name]
        declared = self._records.field_type(self.kind, name)
        if declared is None:
            raise EvaluationError(f"no such field: {name}")
        return self._zero(declared)

    def _zero(self, declared: Type) -> Any:
        if declared.name in ("list", "map"):
            return [] if declared.name == "list" else {}
        if declared.name in self._records.types:
            return Record(declared.name, {}, self._records)
        return _ZERO.get(declared.name)

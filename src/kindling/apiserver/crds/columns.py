"""Printer columns of custom resources: what ``kubectl get`` shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from kindling.apiserver.kinds.machinery import printing
from kindling.apiserver.registry.definition import TableColumn
from kubecore.json import JsonObject, get_str
from kubecore.objects import fields

from .json_path import JsonPath, JsonPathError

_DESCRIPTION = "Custom resource definition column (in JSONPath format): "
_NAME = TableColumn("Name", "string", "name", "Name must be unique within a namespace.")
_AGE: JsonObject = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


class ColumnTable:
    """The table of a custom resource: its name, and a cell for each additional column."""

    def __init__(self, columns: Sequence[JsonObject]) -> None:
        chosen = [*columns] or [_AGE]
        self.columns: Sequence[TableColumn] = (_NAME, *(_column(each) for each in chosen))
        self._cells = [(str(each.get("type") or ""), _path(str(each.get("jsonPath")))) for each in chosen]

    def cells(self, obj: JsonObject) -> list[Any]:
        """The name and value of each column; None if the value does not have the column's type."""
        return [get_str(obj, "metadata", "name"), *(_cell(kind, path, obj) for kind, path in self._cells)]

    def conditions(self, obj: JsonObject) -> list[JsonObject]:
        """None."""
        return []


def _column(raw: JsonObject) -> TableColumn:
    description = str(raw.get("description") or "") or f"{_DESCRIPTION}{raw.get('jsonPath')}"
    return TableColumn(
        str(raw.get("name") or ""),
        str(raw.get("type") or ""),
        str(raw.get("format") or ""),
        description,
        int(raw.get("priority") or 0),
    )


def _path(text: str) -> JsonPath | None:
    """The compiled path; a path that does not compile shows nothing."""
    try:
        return JsonPath(text)
    except JsonPathError:
        return None


def _cell(kind: str, path: JsonPath | None, obj: JsonObject) -> Any:
    found = path.find(obj) if path is not None else []
    if not found:
        return None
    value = found[0]
    if kind == "string":
        return _text(value)
    if kind == "date":
        return _age(value)
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if kind == "integer" else value


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if value is None:
        return "<nil>"
    if isinstance(value, (dict, list)):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return fields.format_value(value)


def _age(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    return printing.since(value) if printing.moment(value) is not None else "<invalid>"

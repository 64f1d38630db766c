"""Printer columns of custom resources: what ``kubectl get`` shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from kindling.apiserver.kinds.machinery import printing
from kubecore.json import JsonObject
from kubecore.objects import fields

from .json_path import JsonPath, JsonPathError

_DESCRIPTION = "Custom resource definition column (in JSONPath format): "
_AGE: JsonObject = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def column_table(columns: Sequence[JsonObject]) -> printing.Table:
    """The table of a custom resource: its name, and a cell for each additional column.

    The cell is None if the value does not have the column's type.
    """
    return printing.Table(printing.NAME, *map(_column, columns or [_AGE]))


def _column(raw: JsonObject) -> printing.Column:
    kind, path = str(raw.get("type") or ""), _path(str(raw.get("jsonPath")))
    return printing.Column(
        str(raw.get("name") or ""),
        kind,
        str(raw.get("format") or ""),
        str(raw.get("description") or "") or f"{_DESCRIPTION}{raw.get('jsonPath')}",
        int(raw.get("priority") or 0),
        read=lambda obj: _cell(kind, path, obj),
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

"""What expressions give, as JSON documents."""

from __future__ import annotations

import base64
import datetime
from typing import Any

import orjson

from .conversions import text_of
from .sizes import MAX_REQUEST_BYTES
from .values import CALL_TOO_EXPENSIVE, CostExceededError, EvaluationError

_PASSED_ON = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS


def document(value: Any) -> Any:
    """A value as JSON that shares nothing with it: times and durations as text, bytes in base64.

    Lists and maps that hold another twice double with every loop or variable, although they cost little and
    take little memory: only as a document they have their size. Raises CostExceededError for a document of
    more bytes than a request may have, EvaluationError for what JSON cannot have (optional values, keys that
    are numbers).
    """
    try:
        if _least_bytes(value, {}) > MAX_REQUEST_BYTES:
            raise CostExceededError(CALL_TOO_EXPENSIVE)
        return orjson.loads(orjson.dumps(value, default=_as_json, option=_PASSED_ON))
    except RecursionError:
        raise EvaluationError("values are nested too deeply") from None
    except orjson.JSONEncodeError as error:
        raise EvaluationError(f"the value has no form in JSON: {error}") from None


def _least_bytes(value: Any, known: dict[int, int]) -> int:
    """The JSON of a value has at least so many bytes. What occurs often is measured once (`known`, by id)."""
    if isinstance(value, str | bytes):
        return len(value) + 2
    if not isinstance(value, list | dict):
        return 1
    if id(value) not in known:
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        known[id(value)] = 2 + sum(_least_bytes(part, known) for part in parts)
    return known[id(value)]


def _as_json(value: Any) -> str:
    """The text for a value of a type that JSON does not have."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime | datetime.timedelta):
        return text_of(value)
    raise TypeError

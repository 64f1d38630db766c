"""Logging of daemons: one JSON object per line on standard error, or readable text."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Literal, TextIO

import orjson

LogFormat = Literal["json", "text"]

_LEVELS = {"DEBUG": "debug", "INFO": "info", "WARNING": "warning", "ERROR": "error", "CRITICAL": "critical"}
_OWN_ATTRIBUTES = frozenset(
    vars(logging.LogRecord("", 0, "", 0, "", None, None))
    | {"message": None, "asctime": None, "taskName": None}
)


class JsonFormatter(logging.Formatter):
    """``{"level", "timestamp", "component", "logger", "msg", ...}``; `extra` values become fields."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "level": _LEVELS.get(record.levelname, record.levelname.lower()),
            "timestamp": _timestamp(record),
            "component": self._component,
            "logger": record.name,
            "pos": f"{record.filename}:{record.lineno}",
            "msg": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in _OWN_ATTRIBUTES:
                entry[name] = value
        if record.exc_info:
            entry["stacktrace"] = self.formatException(record.exc_info)
        return orjson.dumps(entry, default=str).decode()


class TextFormatter(logging.Formatter):
    """``2026-01-02T03:04:05.678901Z WARNING logger: message`` for people."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{_timestamp(record)} {record.levelname} {record.name}: {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def set_up_logging(
    component: str,
    *,
    level: int | str = logging.INFO,
    form: LogFormat = "json",
    stream: TextIO | None = None,
) -> None:
    """Send all records of this process to `stream` (default: standard error). Replaces earlier handlers."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(component) if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)

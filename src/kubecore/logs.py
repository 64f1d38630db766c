"""Logging of daemons: one JSON object per line on standard error, or readable text.

Components that share a process log under their own names, and each from a level of its own on. What runs
on behalf of one, in its tasks and in the threads and servers that these start, is logged as its own:
a context variable says whose it is.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal, TextIO

import orjson

LogFormat = Literal["json", "text"]

TRACE = 5
"""The level of messages about each request; below ``DEBUG``."""

_component: ContextVar[str] = ContextVar("component", default="")
"""On whose behalf code runs; empty where that is not known, as in threads that are kept for many tasks."""

_LEVELS = {
    f"Level {TRACE}": "debug",
    "DEBUG": "debug",
    "INFO": "info",
    "WARNING": "warning",
    "ERROR": "error",
    "CRITICAL": "critical",
}
_LONGEST = 16 * 1024
"""Characters of a message, of a value and of a stack. Others' words are in them: a few that are as long as an
object may be would push everything else out of a log that is rotated.
"""
_OWN_ATTRIBUTES = frozenset(
    vars(logging.LogRecord("", 0, "", 0, "", None, None))
    | {"message": None, "asctime": None, "taskName": None}
)


@contextmanager
def on_behalf_of(component: str) -> Iterator[None]:
    """What runs in this context, tasks and threads that it starts included, is logged as `component`'s."""
    token = _component.set(component)
    try:
        yield
    finally:
        _component.reset(token)


LOG_LEVELS = "log_levels"
"""The setting of a process that holds its `LogLevels`."""


class LogLevels(logging.Filter):
    """From which level on the records of each component of this process are logged."""

    def __init__(self, component: str, usual: int) -> None:
        """`component` is whose records are those of nobody; `usual` is the level of components that were
        given none.
        """
        super().__init__()
        self._component = component
        self._usual = usual
        self._levels: dict[str, int] = {}

    def of(self, component: str) -> int:
        """The level of `component`."""
        return self._levels.get(component, self._usual)

    def set(self, component: str, level: int) -> None:
        """Log the records of `component` from `level` on."""
        self._levels[component] = level
        # Other loggers have no level: what no component wants is not even made into a record.
        logging.getLogger().setLevel(min(self._usual, *self._levels.values()))

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the component that made the record wants it."""
        return record.levelno >= self.of(_component.get() or self._component)


class JsonFormatter(logging.Formatter):
    """``{"level", "timestamp", "component", "logger", "msg", ...}``; `extra` values become fields."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "level": _LEVELS.get(record.levelname, record.levelname.lower()),
            "timestamp": _timestamp(record),
            "component": _component.get() or self._component,
            "logger": record.name,
            "pos": f"{record.filename}:{record.lineno}",
            "msg": _bounded(record.getMessage()),
        }
        for name, value in vars(record).items():
            if name not in _OWN_ATTRIBUTES:
                entry[name] = _bounded(value) if isinstance(value, str) else value
        if record.exc_info:
            entry["stacktrace"] = _bounded(self.formatException(record.exc_info))
        try:
            return orjson.dumps(entry, default=str).decode()
        except orjson.JSONEncodeError:
            # Names of files that are not UTF-8, numbers of any size: the line is worth more than its speed.
            return json.dumps(entry, default=str)


class TextFormatter(logging.Formatter):
    """``2026-01-02T03:04:05.678901Z WARNING logger: message`` for people."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{_timestamp(record)} {record.levelname} {record.name}: {_bounded(record.getMessage())}"
        if record.exc_info:
            text += "\n" + _bounded(self.formatException(record.exc_info))
        return text


def _bounded(text: str) -> str:
    """The beginning and the end: an exception says last what is wrong."""
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]} ... {text[-half:]}"


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def set_up_logging(
    component: str,
    *,
    level: int = logging.INFO,
    form: LogFormat = "json",
    stream: TextIO | None = None,
) -> LogLevels:
    """Send all records of this process to `stream` (default: standard error). Replaces earlier handlers.

    Gives the levels, which can be changed at any time.
    """
    levels = LogLevels(component, level)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(component) if form == "json" else TextFormatter())
    handler.addFilter(levels)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)
    return levels

"""The lines of daemons' logs."""

from __future__ import annotations

import json
import logging
import re
import sys

import pytest

from kubecore.logs import JsonFormatter, TextFormatter


def _record(level: int = logging.INFO, **extra: object) -> logging.LogRecord:
    record = logging.LogRecord("x", level, "/a/virt_handler.py", 453, "set verbosity to %d", (2,), None)
    vars(record).update(extra)
    return record


@pytest.mark.feature("SUP-10")
def test_a_line_is_an_object_with_component_level_message_place_and_time() -> None:
    entry = json.loads(JsonFormatter("virt-handler").format(_record(kind="Node")))
    assert (entry["component"], entry["level"], entry["msg"]) == (
        "virt-handler",
        "info",
        "set verbosity to 2",
    )
    assert entry["pos"] == "virt_handler.py:453"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", entry["timestamp"])
    assert entry["kind"] == "Node"


@pytest.mark.parametrize("value", ["file \udcff", 1 << 100])
def test_no_value_costs_a_line(value: object) -> None:
    assert json.loads(JsonFormatter("c").format(_record(found=value)))["found"] == value


@pytest.mark.parametrize("formatter", [JsonFormatter("c"), TextFormatter()], ids=["json", "text"])
def test_what_is_logged_of_others_words_is_bounded(formatter: logging.Formatter) -> None:
    record = _record(logging.ERROR, err="e" * 1_000_000)
    record.msg, record.args = "syncing failed: %s", ("x" * 1_000_000,)
    try:
        raise ValueError("v" * 1_000_000)
    except ValueError:
        record.exc_info = sys.exc_info()
    line = formatter.format(record)
    assert len(line) < 100_000
    assert "syncing failed: xxx" in line
    assert "Traceback" in line


def test_an_exception_is_part_of_its_line() -> None:
    record = _record(logging.ERROR)
    try:
        raise ValueError("no")
    except ValueError:
        record.exc_info = sys.exc_info()
    line = JsonFormatter("c").format(record)
    assert "\n" not in line
    assert "ValueError: no" in json.loads(line)["stacktrace"]

"""What guests and tenants call things controls nobody's terminal."""

from __future__ import annotations

import json

import pytest
from tests.unit.virtplane.cli.virtctl.conftest import SUB, FakeServer, Virtctl

from virtplane.cli.virtctl.documents import as_json, as_yaml

_EVIL = "\x1b]0;root\x07\x1b[2J\x9b31m\u202etxt\r"


def controls(text: str) -> set[str]:
    """What a terminal might obey."""
    return {char for char in text if not char.isprintable() and char not in "\n\t"}


def test_errors_with_words_of_a_guest_are_shown_without_control_characters(
    api: FakeServer, virtctl: Virtctl
) -> None:
    path = f"{SUB}/default/virtualmachineinstances/vm/guestosinfo"
    api.refuse("GET", path, 409, f"first {_EVIL}\n\tlast")
    result = virtctl("guestosinfo", "vm")
    assert result.code == 1
    assert controls(result.err) == set()
    assert "first" in result.err and "\n\tlast" in result.err


def test_answers_of_a_guest_are_shown_without_control_characters(api: FakeServer, virtctl: Virtctl) -> None:
    path = f"{SUB}/default/virtualmachineinstances/vm/guestosinfo"
    api.answers["GET", path] = (200, {"hostname": _EVIL})
    result = virtctl("guestosinfo", "vm")
    assert controls(result.out) <= {"\u202e"}
    assert json.loads(result.out)["hostname"] == _EVIL


@pytest.mark.parametrize("written", [as_yaml({_EVIL: _EVIL}), as_json({_EVIL: _EVIL}, indent=1)])
def test_documents_escape_what_terminals_obey(written: str) -> None:
    assert controls(written) <= {"\u202e"}

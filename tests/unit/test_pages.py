"""The pages for users: the commands they show exist, with the options they show."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.pages import PAGES, ROOT, sections

_COMMANDS = [
    (section.page, command) for page in PAGES for section in sections(page) for command in section.commands
]
_OWN = [shlex.split(command)[1:] for _, command in _COMMANDS if command.startswith("./virtplane")]


def test_pages_show_commands() -> None:
    assert {page for page, _ in _COMMANDS} == {path.name for path in PAGES}
    assert "./virtplane up" in {command for _, command in _COMMANDS}


@pytest.mark.parametrize("words", _OWN, ids=" ".join)
def test_every_option_that_a_page_shows_exists(words: list[str]) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "virtplane.cli.main", words[0], "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": f"{ROOT}/src"},
    ).stdout
    for word in words:
        if word.startswith("-"):
            assert word.split("=")[0] in shown


def test_every_page_for_users_that_shows_commands_is_tried() -> None:
    developers = {"conformance.md"}
    assert {path.name for path in (ROOT / "docs").glob("*.md") if sections(path)} - developers == {
        path.name for path in PAGES if path.parent.name == "docs"
    }


def test_the_test_command_of_the_readme_is_what_integration_runs() -> None:
    assert "./virtplane test" in {command for _, command in _COMMANDS}
    assert "./virtplane test" in Path(ROOT / ".ci/run").read_text().splitlines()

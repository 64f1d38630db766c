"""The commands that the pages for users show: lines that are indented, or nothing for anybody to type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_IN_DOCS = ("backup", "data-volumes", "images", "metrics", "vnc-tokens")
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in _IN_DOCS))
"""For users. docs/conformance.md is for developers: its commands need recordings that are not in a clone."""
PROGRAMS = ("./virtplane", "kubectl", "export", ".venv/bin/virtctl")


@dataclass(frozen=True)
class Section:
    """The commands below one heading of a page, in their order."""

    page: str
    heading: str
    commands: tuple[str, ...]


def sections(path: Path) -> list[Section]:
    """The sections of a page that show commands."""
    found: list[Section] = []
    heading = ""
    commands: list[str] = []
    fenced = False
    for line in [*path.read_text().splitlines(), "# end"]:
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and line.startswith("#"):
            if commands:
                found.append(Section(path.name, heading, tuple(commands)))
            heading, commands = line.lstrip("# "), []
        elif not fenced and line.startswith("    ") and line.split()[0] in PROGRAMS:
            commands.append(re.sub(r"\s+# .*", "", line.strip()))
    return found

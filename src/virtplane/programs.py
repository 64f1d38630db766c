"""Finds the project's own programs: next to this Python in its environment, else in PATH."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def own_program(name: str) -> str:
    """The path of the program `name`. Raises FileNotFoundError where it is not installed."""
    beside = Path(sys.executable).with_name(name)
    if beside.is_file():
        return str(beside)
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"the program {name} is neither in {beside.parent} nor on the search path")
    return found

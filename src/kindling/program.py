"""What the user calls this program: other programs run its command line under their own name."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "KINDLING_PROGRAM"
"""Environment variable with the name to use in messages."""


def name() -> str:
    """What users type to run this program."""
    return os.environ.get(VARIABLE) or "kindling"


def command(words: str, state: Path) -> str:
    """What to type to run a command on the cluster in `state`."""
    return f"{name()} {words} --state {state}"

"""Command lines, as users type them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, seconds: float = 60, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command and insist on its success."""
    done = attempt(*command, seconds=seconds, **options)
    assert done.returncode == 0, f"{command} exited {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


def attempt(*command: str | Path, seconds: float = 60, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command, whatever comes of it."""
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        stdin=subprocess.DEVNULL,
        **options,
    )


def program(name: str) -> Path:
    """A console script of this environment."""
    return Path(sys.executable).with_name(name)

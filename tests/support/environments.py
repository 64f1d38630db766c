"""Python environments for programs of others, whose packages those of the tests do not go with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def install_environment(folder: Path, lock: Path, *, seconds: float) -> None:
    """Make an environment with the packages of `lock` in `folder`. Raises CalledProcessError.

    It has no pip of its own, and what is never imported is not compiled: that were two thirds of the time.
    """
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, capture_output=True
    )
    pip = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet"]
    subprocess.run(
        [*pip, "--no-compile", "--no-deps", "--requirement", str(lock)],
        check=True,
        capture_output=True,
        timeout=seconds,
    )

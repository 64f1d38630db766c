"""Running the programs that a build needs."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

_LAST_CHARACTERS = 1500


class BuildError(Exception):
    """The image cannot be built: `what` failed, `why`, and what to `do` about it."""

    def __init__(self, what: str, why: str = "", do: str = "") -> None:
        super().__init__(" ".join(part for part in (what, why, do) if part))
        self.what, self.why, self.do = what, why, do


class NotRoot(BuildError):
    """Only root can build the image."""


def run(
    command: Sequence[str], what: str, do: str = "", *, folder: Path | None = None, given: str = ""
) -> str:
    """Run `command` in `folder`, with the text `given` on its standard input, and return what it prints.

    Raises BuildError with its last words.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, input=given)
    except FileNotFoundError as error:
        raise BuildError(what, f"There is no program {command[0]}.", "Install it, then try again.") from error
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip()[-_LAST_CHARACTERS:]
        raise BuildError(what, f"{command[0]} ended with {done.returncode}: {words}", do)
    return done.stdout

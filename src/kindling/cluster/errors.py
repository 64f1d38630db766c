"""Failures of bringing a cluster up or down, and their exit codes."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of ``kindling``, the same as those of ``virtplane``."""

    OK = 0
    FAILED = 1
    UNUSABLE = 2
    """Wrong arguments (click's own number), or a program or kernel feature is missing on this machine."""
    NOT_PERMITTED = 3


class SetupError(Exception):
    """A step failed; the text says what failed, why, and what the user can do."""

    def __init__(self, what: str, why: str, remedy: str = "", code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(what)
        self.what, self.why, self.remedy, self.code = what, why, remedy, code

    def __str__(self) -> str:
        lines = [f"{self.what}: {self.why}"]
        if self.remedy:
            lines.append(f"What to do: {self.remedy}")
        return "\n".join(lines)

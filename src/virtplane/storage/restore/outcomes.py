"""Why one step of a restore ends before the restore does."""

from __future__ import annotations


class Waits(Exception):
    """The restore must wait; the text says for what."""


class WaitsForStop(Waits):
    """The target is on, and the restore goes on when it is off; the text says how that comes."""


class Errs(Exception):
    """Something is wrong that may be put right; the text says what."""


class Fails(Exception):
    """The restore has failed; the text says why."""

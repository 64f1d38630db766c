"""Errors of an instance's reconcile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SyncError:
    """An error that the condition Synchronized=False shows with its reason and message."""

    reason: str
    message: str
    shows_unschedulable: bool = False
    """Whether users should see the instance as one that cannot be scheduled (a missing claim)."""
    retries: bool = True
    """Whether to look again although nothing changed."""

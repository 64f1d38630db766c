"""Lengths of time as Go writes them (`1h30m`, `300ms`)."""

from __future__ import annotations

from datetime import timedelta

from kubecore.objects.durations import seconds_of


def parse_duration(text: str) -> timedelta:
    """The duration in `text`. Raises ValueError with Go's message if it is invalid."""
    return timedelta(seconds=seconds_of(text))

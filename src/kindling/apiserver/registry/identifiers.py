"""Identifiers of objects and requests: unique, not secret."""

from __future__ import annotations

import random
import uuid


def new_uuid() -> str:
    """A random UUID. The generator is seeded by the system at start and costs no system call each time."""
    return str(uuid.UUID(int=random.getrandbits(128), version=4))

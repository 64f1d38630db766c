"""Identifiers of objects and requests: unique, not secret."""

from __future__ import annotations

import random

_FREE_BITS = ~(0xF << 76 | 0x3 << 62)
_VERSION_AND_VARIANT = 0x4 << 76 | 0x2 << 62


def new_uuid() -> str:
    """A random UUID (RFC 9562, version 4).

    The generator is seeded by the system at start and costs no system call each time. Every request takes one
    or two, so the text is made without an object of ``uuid.UUID``, which takes three times as long.
    """
    text = f"{random.getrandbits(128) & _FREE_BITS | _VERSION_AND_VARIANT:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

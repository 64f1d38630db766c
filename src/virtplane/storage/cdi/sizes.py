"""How much of a volume its file system takes."""

from __future__ import annotations

import math

MIB = 1024 * 1024
BLOCK_BYTES = MIB
"""Images are aligned to it."""


def required_space(overhead: float, image_bytes: int) -> int:
    """The size of a volume whose file system has room for an image; `overhead` is a share of the image."""
    aligned = -(-image_bytes // BLOCK_BYTES) * BLOCK_BYTES
    return math.ceil(aligned * (1 + overhead))


def usable_space(overhead: float, volume_bytes: int) -> int:
    """The size of the largest image that a volume's file system has room for."""
    return math.ceil(volume_bytes / (1 + overhead)) // BLOCK_BYTES * BLOCK_BYTES

"""What virt-controller writes into launcher pods and virt-handler finds there again."""

from __future__ import annotations

QEMU_USER = 107
"""User and group of the launcher's processes, QEMU among them."""


def image_holder(volume: str) -> str:
    """The last argument of the process that holds a container disk's image; it says which volume's."""
    return f"container-disk-{volume}"

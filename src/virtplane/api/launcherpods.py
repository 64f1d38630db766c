"""Conventions for launcher pods shared by virt-controller and virt-handler."""

from __future__ import annotations

QEMU_USER = 107
"""User and group of the launcher's processes, QEMU among them."""

KERNEL_BOOT_VOLUME = "kernel-boot-volume"
"""The volume of the image with a guest's kernel."""

PLUGIN_SOCKETS = "kubevirt-plugin-sockets"
"""The volume with a folder for the socket of each plugin's sidecar."""


def image_holder(volume: str) -> str:
    """The last argument of the process that holds a container disk's image; it says which volume's."""
    return f"container-disk-{volume}"

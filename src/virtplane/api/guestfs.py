"""The image with libguestfs, by what ``virtctl guestfs`` expects of it."""

from __future__ import annotations

from virtplane import __version__

IMAGE = "libguestfs-tools"
"""Its name in the installation's registry, whose tag is the installation's version."""
LOADED_IMAGE = f"virtplane.local/{IMAGE}:v{__version__}"
"""Its name in the embedded cluster, which has no registry."""
APPLIANCE = "/usr/local/lib/guestfs/appliance"
"""The small system that libguestfs starts beside a disk."""
ENTRYPOINT = "/entrypoint.sh"
"""Starts the shell."""

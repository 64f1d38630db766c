"""Where plugins may listen. Pure: paths are compared as texts; whoever opens them follows no links."""

from __future__ import annotations

import posixpath
from pathlib import PurePosixPath

from virtplane.api.paths import PLUGIN_SOCKET_DIR, SHARE_DIR


class SocketError(ValueError):
    """A socket that is not where plugins may have it."""


def is_clean(path: str) -> bool:
    """Whether a path is written in the shortest way: no ``..``, ``.``, or slash too much."""
    return posixpath.normpath(path) == path and not path.startswith("//")


def sidecar_socket(plugin: str, path: str) -> PurePosixPath:
    """A sidecar's socket, below the volume's folder. Raises SocketError."""
    folder = f"{PLUGIN_SOCKET_DIR}/{plugin}/"
    if not is_clean(path) or not path.startswith(folder):
        raise SocketError(f'invalid socket path: socket path "{path}" is outside {folder}')
    return PurePosixPath(path).relative_to(PLUGIN_SOCKET_DIR)


def node_socket(path: str) -> PurePosixPath:
    """The socket of a node hook, below the folder of the node that virt-handler has. Raises SocketError."""
    if not is_clean(path) or not path.startswith(f"{SHARE_DIR}/"):
        raise SocketError(f'socket path "{path}" is outside {SHARE_DIR}/, which virt-handler has of its node')
    return PurePosixPath(path).relative_to(SHARE_DIR)

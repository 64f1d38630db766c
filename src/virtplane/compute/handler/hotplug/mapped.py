"""The block devices that the node's kubelet has given to a pod.

Nodes in a container's file system say nothing of that: an image can bring some of any number, and so can a
root that may make them. The kubelet's own folders, to which no pod can write, have a place for each pod of a
volume. Blocks (runs in a thread).
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

_GLOBAL = ("plugins/kubernetes.io/*/volumeDevices/*", "plugins/kubernetes.io/*/volumeDevices/*/dev")
"""Where the kubelet binds devices for each pod: of local volumes, and of CSI's."""


def devices_of(pod: Path) -> frozenset[int]:
    """The numbers of the devices of the pod with the kubelet's folder `pod`. Raises OSError."""
    return frozenset(filter(None, map(_number, _places(pod))))


def _places(pod: Path) -> Iterator[Path]:
    yield from pod.glob("volumeDevices/*/*")  # links, of which some lead nowhere in this file system
    for pattern in _GLOBAL:
        for folder in pod.parent.parent.glob(pattern):
            yield folder / pod.name


def _number(place: Path) -> int | None:
    try:
        found = place.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_rdev if stat.S_ISBLK(found.st_mode) else None

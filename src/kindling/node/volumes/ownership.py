"""fsGroup: the pod's group owns a volume and may write to it."""

from __future__ import annotations

import os
from pathlib import Path

from kubecore.json import JsonObject, get_object, get_str

_DIRECTORY_BITS = 0o2770
_FILE_BITS = 0o660


def fs_group(pod: JsonObject) -> int | None:
    """spec.securityContext.fsGroup."""
    group = get_object(pod, "spec", "securityContext").get("fsGroup")
    return group if isinstance(group, int) else None


def apply(pod: JsonObject, directory: Path) -> None:
    """Hand `directory` to the pod's group, if it names one (fsGroupChangePolicy is honoured)."""
    group = fs_group(pod)
    if group is None:
        return
    status = directory.lstat()
    policy = get_str(pod, "spec", "securityContext", "fsGroupChangePolicy", default="Always")
    right = status.st_gid == group and status.st_mode & _DIRECTORY_BITS == _DIRECTORY_BITS
    if policy == "OnRootMismatch" and right:
        return
    for root, directories, files in os.walk(directory, topdown=False):
        for name in files:
            _hand_over(Path(root) / name, group, _FILE_BITS)
        for name in directories:
            if (Path(root) / name).is_symlink():
                _hand_over(Path(root) / name, group, _FILE_BITS)
    for root, _, _ in os.walk(directory):
        _hand_over(Path(root), group, _DIRECTORY_BITS)


def _hand_over(path: Path, group: int, bits: int) -> None:
    os.chown(path, -1, group, follow_symlinks=False)
    if not path.is_symlink():
        path.chmod((path.lstat().st_mode & 0o7777) | bits)

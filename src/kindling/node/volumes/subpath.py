"""subPath mounts: a place inside a volume, reached without following links out of it."""

from __future__ import annotations

import os
from pathlib import Path

from kindling.node.pods import identity
from kindling.node.volumes import mounts
from kindling.node.volumes.content import ContentProblem


def prepare(uid: str, volume: str, container: str, index: int, base: Path, relative: str) -> Path:
    """Bind ``base/relative`` to a directory of the pod and return that. Missing parts are made.

    Raises ContentProblem when the path would leave the volume.
    """
    descriptor = _open_inside(base, relative)
    try:
        target = identity.pod_directory(uid) / "volume-subpaths" / volume / container / str(index)
        mounts.unmount(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            target.mkdir(exist_ok=True)
        else:
            target.touch(exist_ok=True)
        mounts.bind(f"/proc/self/fd/{descriptor}", target)
    finally:
        os.close(descriptor)
    return target


def _open_inside(base: Path, relative: str) -> int:
    if relative.startswith("/") or ".." in relative.split("/"):
        raise ContentProblem(f"subPath {relative!r} must stay inside the volume")
    root = base.resolve()
    path = root / relative
    if not path.exists() and not path.is_symlink():
        resolved = path.parent.resolve()
        if resolved != root and root not in resolved.parents:
            raise ContentProblem(f"subPath {relative!r} leaves the volume")
        path.mkdir(parents=True, mode=0o755)
        path.chmod(root.stat().st_mode & 0o7777)
    # Links of config volumes stay inside; what resolves elsewhere is refused. The descriptor pins the result.
    resolved = path.resolve()
    if resolved != root and root not in resolved.parents:
        raise ContentProblem(f"subPath {relative!r} leaves the volume")
    descriptor = os.open(resolved, os.O_PATH | os.O_NOFOLLOW)
    real = Path(f"/proc/self/fd/{descriptor}").readlink()
    if real != root and root not in real.parents:
        os.close(descriptor)
        raise ContentProblem(f"subPath {relative!r} leaves the volume")
    return descriptor

"""The state directory of a cluster: making it, and removing it.

A cluster takes a directory only if it is empty or holds a cluster already, and removes only its own files.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

from kindling.cluster.errors import ExitCode, SetupError
from kindling.node import files
from kubecore import mountinfo

LAYOUT = "instance.json"
_RESTORED = ("apiserver.db", "pki", "token")
"""What an interrupted restore may have left in a directory that holds no cluster yet."""
_NAMES = (
    *_RESTORED,
    "kubeconfig",
    "supervisor.pid",
    "supervised",
    "mount-points",
    "nodes",
    "logs",
    "images",
    "pool.img",
    "merged-kubeconfigs",
    LAYOUT,
)
_TOLERATED = ("lost+found",)
"""A file system of its own has this from the start."""
_CACHE_TAG = "images/CACHEDIR.TAG"
"""Images may be built before there is a cluster; the tag says that whatever is beside it can be removed."""


def make_directory(state: Path) -> None:
    """Make the state directory unless it exists. Raises SetupError if it contains files that are not a
    cluster's.
    """
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o755)
        names = os.listdir(state)  # noqa: PTH208 - names, not paths
    except OSError as error:
        raise _unusable(state, error.strerror or str(error), error) from error
    if LAYOUT in names:
        return
    tolerated = (*_TOLERATED, "images") if (state / _CACHE_TAG).is_file() else _TOLERATED
    foreign = [name for name in names if name not in tolerated and not _is_of(name, (*_RESTORED, LAYOUT))]
    if foreign:
        raise SetupError(
            f"state directory {state}",
            f"it holds other things, {_listed(foreign)}, and no cluster",
            "choose an empty directory or a new one: --state DIR",
            code=ExitCode.UNUSABLE,
        )


def check_removable(state: Path) -> bool:
    """Whether `state` exists and is not empty. Raises SetupError if its files are not a cluster's."""
    try:
        names = os.listdir(state)  # noqa: PTH208 - names, not paths
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unusable(state, error.strerror or str(error), error) from error
    if names and LAYOUT not in names:
        raise SetupError(
            f"state directory {state}",
            "it holds no cluster (no instance.json), so nothing was removed",
            "name the directory that the cluster was started with: --state DIR",
            code=ExitCode.UNUSABLE,
        )
    return bool(names)


def remove(state: Path) -> list[str]:
    """Remove the cluster's files, the layout last, and the directory if it is empty then.

    Returns the names of other files, which stay. Raises SetupError where something is mounted.
    """
    own = [path for path in state.iterdir() if _is_of(path.name, _NAMES)]
    mounted = [point for point in mountinfo.mount_points() if any(point.is_relative_to(path) for path in own)]
    if mounted:
        raise SetupError(
            f"removing {state}", f"{mounted[0]} is a mount point", f"unmount it first: umount {mounted[0]}"
        )
    # The layout is removed last, so that an interrupted removal can be repeated.
    for path in sorted(own, key=lambda path: path.name == LAYOUT):
        if path.is_dir() and not path.is_symlink():
            files.remove_tree(path)
        else:
            path.unlink()
    left = sorted(path.name for path in state.iterdir())
    if not left:
        try:
            state.rmdir()
        except OSError:
            # An empty directory that cannot be removed: a mount point, or in a directory of another owner.
            left = []
    return left


def _is_of(name: str, names: tuple[str, ...]) -> bool:
    """Whether a file name is one of `names`, a companion of one (``-wal``, ``.replaced-…``) or its temporary
    file.
    """
    return any(
        fnmatchcase(name, pattern)
        for own in names
        for pattern in (own, f"{own}-*", f"{own}.replaced-*", f".{own}.*")
    )


def _listed(names: list[str]) -> str:
    shown = sorted(names)[:3]
    return ", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > len(shown) else "")


def _unusable(state: Path, why: str, error: OSError) -> SetupError:
    refused = isinstance(error, PermissionError)
    return SetupError(
        f"state directory {state}",
        why,
        "run this as root, or choose another directory: --state DIR",
        code=ExitCode.NOT_PERMITTED if refused else ExitCode.UNUSABLE,
    )

"""Put a set of files into a volume so that readers see the old set or the new one, never a mix.

Files live in a directory named after the time; ``..data`` links to it and visible names link through
``..data``. An update writes a new directory and renames one link. Programs that watch config maps know this
layout.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kindling.node.files import remove_tree

_DATA = "..data"


@dataclass(frozen=True, slots=True)
class File:
    """One file of a payload. `uid` owns it when given."""

    content: bytes
    mode: int
    uid: int | None = None


def write_payload(directory: Path, payload: Mapping[str, File], group: int | None = None) -> bool:
    """Make `directory` show exactly `payload` (relative path -> file); False when it did already.

    `group` (fsGroup) owns the files and may read them. Raises OSError.
    """
    if _is_current(directory, payload):
        return False
    stamp = datetime.now(UTC).strftime("..%Y_%m_%d_%H_%M_%S.")
    target = Path(tempfile.mkdtemp(prefix=stamp, dir=directory))
    try:
        _write(target, payload, group)
    except BaseException:
        # Whoever wants the volume tries again and again: each time would leave a copy.
        remove_tree(target)
        raise
    link = directory / _DATA
    # The link could point anywhere: remove only directories that this module made, which it recognizes by
    # their name (a time).
    previous = directory / link.readlink().name if link.is_symlink() else None
    temporary = directory / "..data_tmp"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target.name)
    temporary.replace(link)
    _publish(directory, {name.split("/", 1)[0] for name in payload})
    if previous is not None and previous.name.startswith("..2") and previous.is_dir():
        remove_tree(previous)
    return True


def _write(target: Path, payload: Mapping[str, File], group: int | None) -> None:
    target.chmod(0o755)
    for name, file in payload.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        path.write_bytes(file.content)
        path.chmod(file.mode | 0o440 if group is not None else file.mode)
        if group is not None or file.uid is not None:
            os.chown(path, -1 if file.uid is None else file.uid, -1 if group is None else group)


def _publish(directory: Path, names: set[str]) -> None:
    for name in names:
        visible = directory / name
        if not visible.is_symlink():
            visible.symlink_to(f"{_DATA}/{name}")
    for entry in directory.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()


def _is_current(directory: Path, payload: Mapping[str, File]) -> bool:
    link = directory / _DATA
    if not link.is_symlink():
        return False
    base = link.resolve()
    present = {str(path.relative_to(base)) for path in base.rglob("*") if path.is_file()}
    if present != set(payload):
        return False
    return all((base / name).read_bytes() == file.content for name, file in payload.items())

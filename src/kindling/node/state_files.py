"""JSON files in which parts of the agent keep what they must still know after a restart."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TypeVar

import msgspec

_log = logging.getLogger(__name__)

Content = TypeVar("Content")


def read(path: Path, kind: type[Content], consequence: str) -> Content | None:
    """What was kept in a file; None when there is none.

    None also for a damaged file, which the next `write` replaces: its `consequence` is logged. Raises
    OSError.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        _log.error("the state in %s is damaged and dropped (%s): %s", path, error, consequence)
        return None


def write(path: Path, content: object) -> None:
    """Replace a file as a whole, so that an agent which is killed leaves the old one or the new. Raises
    OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_bytes(msgspec.json.encode(content))
    temporary.replace(path)

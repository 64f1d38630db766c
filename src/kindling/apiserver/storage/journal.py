"""The interface of durable storage: an append-only log of revisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

STORAGE_REFUSED = "Storage cannot be used"
"""The message of the API server's last log record when it ends because of a StorageError."""


class Row(NamedTuple):
    """One revision of one object. `value` is the whole encoded object; for a deletion, its last state."""

    revision: int
    bucket: str
    path: str
    deleted: bool
    created_revision: int
    previous_revision: int
    """0 for the first revision of an object."""
    value: bytes


@dataclass(frozen=True, slots=True)
class Loaded:
    """The content of a journal when it is opened: `rows` in order of revision."""

    rows: Iterable[Row]
    compacted_revision: int
    """History up to and including this revision is incomplete."""


class StorageError(Exception):
    """Storage cannot be read or written; the text says what the administrator can do."""


class CorruptStorage(StorageError):
    """A file is damaged. `detail` says what was found."""

    def __init__(self, text: str, detail: str) -> None:
        super().__init__(text)
        self.detail = detail


class StorageLost(StorageError):
    """The content of the disk is unknown after a failed write; only a restart, which reads it, can tell."""


Committed = Callable[[Sequence[Row], BaseException | None], None]
"""Told about each batch in order: durable when the error is None. Called on the event loop."""


class Journal(Protocol):
    """An append-only log. `append` and `forget` only queue; `on_committed` reports."""

    def open(self) -> Loaded:
        """Open (or make) the log and read it. Raises StorageError, also for a corrupt file."""

    def start(self, on_committed: Committed) -> None:
        """Accept writes from now on; call on the event loop that shall hear about them."""

    def append(self, row: Row) -> None:
        """Queue a revision."""

    def forget(self, revisions: Sequence[int], compacted_revision: int) -> None:
        """Queue the removal of superseded revisions."""

    def reset(self) -> None:
        """Accept writes again after a failed batch (whose successors failed with it)."""

    async def close(self) -> None:
        """Write what is queued and close the file."""

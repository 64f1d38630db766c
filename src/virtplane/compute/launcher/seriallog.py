"""The log of the guest's serial console, in files of bounded size.

QEMU appends to its log for as long as the guest talks, and a guest may talk for ever. It writes into a pipe
instead; the launcher keeps what comes out in a file that it replaces when it is full, by the numbers of
libvirt's own log daemon (2 MiB, three older files), which would take two megabytes of memory for each guest.
"""

from __future__ import annotations

import os
import sys

PIPE = "virt-serial0-log"
"""The name that the domain's definition gives the log."""
FILE = "virt-serial0.log"
MAX_BYTES = 2 * 1024 * 1024
BACKUPS = 3
_READ_BYTES = 64 * 1024


class SerialLog:
    """Reads the pipe in `folder` and writes the log files next to it."""

    def __init__(self, folder: str, max_bytes: int = MAX_BYTES) -> None:
        self._pipe = f"{folder}/{PIPE}"
        self._path = f"{folder}/{FILE}"
        self._max_bytes = max_bytes
        self._descriptor = -1
        self._file = -1
        self._size = 0
        self._is_failing = False

    def open(self) -> int:
        """Create the pipe before QEMU creates a file of that name. Returns the descriptor to poll."""
        if os.path.lexists(self._pipe):
            os.unlink(self._pipe)
        os.mkfifo(self._pipe, 0o600)
        # Opened for writing, too, so that the pipe always has a reader and a writer.
        self._descriptor = os.open(self._pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        return self._descriptor

    def collect(self) -> None:
        """Copy the content of the pipe to the file. Bytes that cannot be written are dropped: the guest must
        not block.
        """
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        try:
            self._write(data)
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                sys.stderr.write(
                    "virt-launcher: the guest's serial console is not logged until writing works again:"
                    f" {self._path}: {error.strerror}\n"
                )
            self._is_failing = True
            self._close()

    def _write(self, data: bytes) -> None:
        if self._file < 0:
            self._file = os.open(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640
            )
            self._size = os.fstat(self._file).st_size
        while data:
            if self._size >= self._max_bytes:
                self._rotate()
            written = os.write(self._file, data[: self._max_bytes - self._size])
            self._size += written
            data = data[written:]

    def _rotate(self) -> None:
        self._close()
        # Older ones have the names that libvirt's log daemon gives them.
        names = [self._path, *(f"{self._pipe}.{number}" for number in range(BACKUPS))]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            if os.path.lexists(newer):
                os.rename(newer, older)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        self._size = 0

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

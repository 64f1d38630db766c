"""What libvirt's daemon logs, as lines of JSON on the container's log, like those of the other components.

The daemon writes lines of text, ``TIME: THREAD: LEVEL : FUNCTION:LINE : MESSAGE``, into a pipe. Messages may
have several lines; those after the first are lines of their own.
"""

from __future__ import annotations

import json
import os
import sys

_READ_BYTES = 64 * 1024
_LINE_BYTES = 64 * 1024
"""Longer lines are divided: a message may quote what a guest says."""

_LEVELS = ("debug", "info", "warning", "error")


class DaemonLog:
    """Reads what the daemon writes to `writer`, its standard error."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        self._rest = b""

    def collect(self) -> None:
        """Log what has arrived."""
        try:
            data = self._rest + os.read(self.reader, _READ_BYTES)
        except BlockingIOError:
            return
        *lines, self._rest = data.split(b"\n")
        if len(self._rest) > _LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        entries = [entry(line.decode(errors="replace")) for line in lines if line]
        sys.stderr.write("".join(json.dumps(each, separators=(",", ":")) + "\n" for each in entries))
        sys.stderr.flush()


def entry(line: str) -> dict[str, str]:
    """The fields of one line."""
    found = {"component": "virt-launcher", "level": "info", "subcomponent": "libvirt", "msg": line}
    when, _, after = line.partition(": ")
    thread, _, after = after.partition(": ")
    level, _, after = after.partition(" : ")
    if not thread.isdecimal() or level not in _LEVELS:
        return found
    place, is_told, message = after.partition(" : ")
    found |= {"level": level, "thread": thread, "timestamp": when, "msg": after}
    return found | {"pos": place, "msg": message} if is_told else found

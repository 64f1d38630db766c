"""Which devices a guest was asked to release, so that it is not asked again while it lets them go.

Between QEMU's word that a device has gone and libvirt's own removal of it, another request has libvirt forget
to close the device's file: no QEMU, this one neither, could open it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_AGAIN_SECONDS = 10.0
"""After how long a guest is asked again that says nothing: one that has no driver yet does not hear it."""


class Releases:
    """The requests that are open, by the devices' aliases."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked: dict[str, float] = {}

    def is_open(self, alias: str) -> bool:
        """Whether the guest was asked a moment ago and has not answered."""
        asked = self._asked.get(alias)
        return asked is not None and self._clock() - asked < _AGAIN_SECONDS

    @contextmanager
    def asking(self, alias: str) -> Iterator[None]:
        """The guest is being asked; where that fails, it was not."""
        now = self._clock()
        for known, asked in list(self._asked.items()):
            if now - asked >= _AGAIN_SECONDS:
                self.end(known)  # Its libvirt, which names the devices, may never say that they have gone.
        self._asked[alias] = now
        try:
            yield
        except BaseException:
            self.end(alias)
            raise

    def end(self, alias: str) -> None:
        """The device has gone, or the guest keeps it. May be called in any thread."""
        self._asked.pop(alias, None)

"""Removing what nobody needs any more, in a thread of its own.

Tenants pile up as many files as they like, and removing them takes many minutes: neither the driver's start
nor its calls wait for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from virtplane.storage.hostpath.pool import Pool
from virtplane.storage.hostpath.recovery import tidy
from virtplane.storage.hostpath.reserve import replenish

_log = logging.getLogger(__name__)


class Tidying:
    """The thread, which ends with the process: what it has not removed, the next one removes."""

    def __init__(self, pools: Iterable[Pool]) -> None:
        self._pools = tuple(pools)
        self._wanted = threading.Event()

    def start(self) -> None:
        """Begin, with what an earlier driver left."""
        self.ask()
        threading.Thread(target=self._run, name="csi-tidying", daemon=True).start()

    def ask(self) -> None:
        """There is something to remove."""
        self._wanted.set()

    def _run(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()
            try:
                tidy(self._pools)
                replenish(self._pools)
            except OSError as error:
                _log.error("what nobody needs is not removed, trying again with the next: %s", error)

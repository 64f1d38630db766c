"""passt, which carries the frames of a guest's card as connections of an ordinary user of the pod.

QEMU listens at a socket for whoever takes the other end of the card's cable; ``virt-passt`` connects, and
becomes passt, which ends when QEMU does. When passt fails, it is started again and QEMU accepts the next one:
the guest loses its connections, not its network.
"""

from __future__ import annotations

import os
import time

from virtplane.compute.launcher.settings import program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from virtplane.compute.launcher.settings import Settings

PROGRAM = "virt-passt"
_RESTART_SECONDS = 1.0
_MOST_ARGUMENTS = 32
_LONGEST_ARGUMENT = (1 << 17) - 1
"""Linux takes no longer ones (MAX_ARG_STRLEN, with a zero behind it)."""


class PasstServer:
    """Keeps passt running for the one card of a guest that it can serve."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._command: list[str] = []
        self._pid: int | None = None
        self.restart_at: float | None = None
        """When passt is to be started again; on the monotonic clock."""

    def serve(self, cable: str, arguments: list[str]) -> None:
        """Start passt with `arguments` for the QEMU that listens, or will listen, at the socket `cable`.

        Repeating it does nothing: what runs keeps what it began with.

        Raises ValueError for what are no arguments, FileNotFoundError where the image has no passt.
        """
        if not isinstance(arguments, list) or len(arguments) > _MOST_ARGUMENTS:
            raise ValueError("passt needs a list of arguments")
        if not all(isinstance(word, str) and len(word) <= _LONGEST_ARGUMENT for word in (cable, *arguments)):
            raise ValueError("passt's arguments must be strings that are not too long for Linux")
        if self._command:
            return
        wrapper, server = program(PROGRAM, os.environ.get("PATH", "")), program("passt")
        if wrapper is None or server is None:
            raise FileNotFoundError("passt is not installed in this image")
        log = f"{self._settings.share_directory}/passt.log"
        self._command = [wrapper, cable, server, *arguments, "--log-file", log]
        self.start()

    def start(self) -> None:
        """Start passt, which was asked for, unless it runs."""
        self.restart_at = None
        if self._pid is None:
            self._pid = os.posix_spawn(self._command[0], self._command, os.environ)

    def reaped(self, pid: int) -> bool:
        """Whether the child that ended was passt; it is started again soon."""
        if pid != self._pid:
            return False
        self._pid, self.restart_at = None, time.monotonic() + _RESTART_SECONDS
        return True

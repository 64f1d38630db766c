"""container-disk: keeps the container of an attachment pod, and so its volumes, until the pod is stopped.

Its command line is KubeVirt's: ``--copy-path PATH`` makes a socket at ``PATH.sock``, by which the node finds
the container; ``--no-op`` ends at once. Exit codes: 0 done, 2 wrong arguments.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

from virtplane.compute.launcher.settings import options

_EXIT_USAGE = 2


def hold(path: str) -> None:
    """Listen on a socket at `path` until SIGTERM or SIGINT. Raises OSError."""
    stop = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        if os.path.lexists(path):
            os.unlink(path)
        listener.bind(path)
        listener.listen(1)
        signal.sigwait(stop)
        os.unlink(path)


def main() -> int:
    """Console script ``container-disk``."""
    found = options(sys.argv[1:])
    if "no-op" in found:
        return 0
    if not found.get("copy-path"):
        sys.stderr.write("container-disk: --copy-path is missing\n")
        return _EXIT_USAGE
    hold(f"{found['copy-path']}.sock")
    return 0


if __name__ == "__main__":
    sys.exit(main())

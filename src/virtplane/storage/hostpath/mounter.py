"""``virtplane hostpath-mounter``: mounts the claim that holds a pool where the driver expects the pool.

It runs on the node that the pool is for, with the node's root directory mounted so that its mounts show
there.
A device without a file system gets XFS; one with anything on it is never formatted.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from kubecore.logs import set_up_logging
from virtplane.storage.hostpath import images, mounts

_log = logging.getLogger(__name__)

_SECONDS = 1.0
_NOTHING_FOUND = 2
"""blkid's exit status where a device holds nothing that it knows."""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line; exits with status 2 where it makes no sense."""
    parser = argparse.ArgumentParser(prog="virtplane hostpath-mounter")
    parser.add_argument("--storagePoolPath", required=True, help="the claim: a device or a folder")
    parser.add_argument("--mountPath", required=True, help="where to mount it on the node")
    parser.add_argument("--hostPath", default="/host", help="the node's root directory")
    parser.add_argument("--unmount", action="store_true", help="unmount it and end")
    return parser.parse_args(argv)


def mount_pool(source: Path, target: Path) -> None:
    """Mount the claim at `target` unless something is mounted there. Raises OSError, ProgramFailed."""
    if mounts.is_mounted(target):
        return
    target.mkdir(parents=True, exist_ok=True, mode=0o750)
    if not stat.S_ISBLK(source.stat().st_mode):
        mounts.bind(source, target)
    else:
        mounts.mount_device(source, target, _file_system(source), ())
    _log.info("mounted %s at %s", source, target)


def _file_system(device: Path) -> str:
    """The file system of a device, made if there is nothing on it. Raises OSError, ProgramFailed."""
    command = ["blkid", "-p", "-o", "value", "-s", "TYPE", str(device)]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)
    found = done.stdout.strip()
    is_half_made = found == images.XFS and images.is_half_made(device)
    if is_half_made or (done.returncode == _NOTHING_FOUND and not found):
        images.make_on_device(device, again=is_half_made)
        return images.XFS
    if found not in images.FILE_SYSTEMS:
        raise images.ProgramFailed(f"{device} holds {found or 'something unknown'}, not a file system")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the command; gives the exit status."""
    options = parse(sys.argv[1:] if argv is None else argv)
    set_up_logging("hostpath-mounter")
    os.umask(0o022)
    source = Path(options.storagePoolPath)
    target = Path(options.hostPath) / options.mountPath.lstrip("/")
    if options.unmount:
        mounts.unmount(target)
        return 0
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    # The pool stays mounted when this process ends: volumes in it may be in use.
    while not stopped.wait(_SECONDS):
        try:
            mount_pool(source, target)
        except (OSError, images.ProgramFailed) as error:
            _log.error("%s cannot be mounted at %s, trying again: %s", source, target, error)
    return 0

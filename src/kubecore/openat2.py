"""openat2(2): open a file below a directory, with the kernel restricting how its path is resolved. For
directories that others may write to: no path can change between its check and its use.
"""

from __future__ import annotations

import ctypes
import os

NO_MOUNTS = 0x01
"""Refuse to cross a mount point (EXDEV)."""
NO_MAGIC_LINKS = 0x02
"""Refuse links such as /proc/PID/root (ELOOP)."""
NO_LINKS = 0x04
"""Refuse any symbolic link on the way (ELOOP)."""
BENEATH = 0x08
"""Refuse what leads out of the directory (EXDEV)."""
IN_ROOT = 0x10
"""Take the directory for ``/``: absolute links and ``..`` stay in it."""

_NUMBER = 437
"""Of this system call, the same on every architecture."""

_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_below(directory: int, path: str, flags: int, resolve: int, mode: int = 0) -> int:
    """A descriptor of `path` below the open `directory`. `resolve` combines the constants. Raises OSError."""
    how = _How(flags | os.O_CLOEXEC, mode, resolve)
    name = os.fsencode(path)
    descriptor = _libc.syscall(_NUMBER, directory, name, ctypes.byref(how), ctypes.sizeof(how))
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return int(descriptor)

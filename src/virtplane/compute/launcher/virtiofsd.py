"""virtiofsd: shares a folder with the guest, as the user that it is started as.

Its command line is that of the virtiofsd that newer distributions have, which runs without privileges. The
one that comes with QEMU 7.2 wants to be root and to change its root folder: it becomes root of a user
namespace that contains this one user, so that the guest's root has the rights of the pod's user. It also
wants to leave its groups, which such a namespace does not allow; a filter answers instead of the kernel. It
gets its socket from here, because it would note each of its own in a folder that not every image has.

Exit codes: 2 wrong arguments, 3 no server or no user namespaces; otherwise those of the server.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys

from virtplane.compute.launcher import callfilter
from virtplane.compute.launcher.settings import options

_NEWER_SERVER = "/usr/libexec/virtiofsd"
_QEMU_SERVER = "/usr/lib/qemu/virtiofsd"
_EXIT_USAGE = 2
_EXIT_IMPOSSIBLE = 3

_CLONE_NEWUSER = 0x10000000
_PR_SET_NO_NEW_PRIVS = 38


def server_command(found: dict[str, str], listening: int) -> list[str]:
    """The command line of QEMU's server for options of the other, with a socket that listens already.

    Raises KeyError.
    """
    return [
        _QEMU_SERVER,
        "-f",
        f"--fd={listening}",
        # Otherwise it raises the limit of open files, for which it needs more than this user may.
        "--rlimit-nofile=0",
        "-o",
        f"source={found['shared-dir']},sandbox=chroot,cache={found.get('cache', 'auto')}",
    ]


def listen(path: str) -> int:
    """The descriptor of a socket at `path` that this user alone may connect to. Raises OSError.

    A server that has ended left its socket there, which the next one cannot take.
    """
    if os.path.lexists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o077)
    try:
        listener.bind(path)
    finally:
        os.umask(before)
    listener.listen(1)
    listener.set_inheritable(True)
    return listener.detach()


def become_root_of_own_namespace() -> None:
    """Let this process be root of a user namespace with no other users. Raises OSError."""
    user, group = os.getuid(), os.getgid()
    kernel = ctypes.CDLL(None, use_errno=True)
    callfilter.check(kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    callfilter.check(kernel.unshare(_CLONE_NEWUSER))
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    callfilter.answer_instead(["setgroups"])


def main() -> int:
    """The program ``virtiofsd``: the distribution's newer server, else QEMU's."""
    if os.path.exists(_NEWER_SERVER):
        os.execv(_NEWER_SERVER, [_NEWER_SERVER, *sys.argv[1:]])
    found = options(sys.argv[1:])
    missing = [name for name in ("socket-path", "shared-dir") if name not in found]
    if missing:
        sys.stderr.write(f"virtiofsd: --{missing[0]} is missing\n")
        return _EXIT_USAGE
    try:
        become_root_of_own_namespace()
        # Last: whoever finds the socket may rely on the server.
        command = server_command(found, listen(found["socket-path"]))
        os.execv(command[0], command)
    except (OSError, KeyError) as error:
        sys.stderr.write(
            f"virtiofsd: the folder cannot be shared: {error}. The node must allow user namespaces of users"
            " without privileges (user.max_user_namespaces, AppArmor), and virt-handler must have installed"
            " its seccomp profile\n"
        )
        return _EXIT_IMPOSSIBLE


if __name__ == "__main__":
    sys.exit(main())

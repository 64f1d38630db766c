"""``virt-passt``: waits for QEMU, connects to it, and becomes passt.

passt leaves all but its network behind, in namespaces of its own. Where the pod's seccomp profile refuses
them, the calls are answered instead of made: it then runs confined as all in its container.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
import time

from virtplane.compute.launcher import callfilter
from virtplane.compute.launcher.settings import options

_SIOCGIFADDR = 0x8915
_RETRY_SECONDS = 0.1
_ONE_CLIENT = ("--foreground", "--one-off")
_NAMESPACES = 0x10000000 | 0x08000000 | 0x04000000 | 0x00020000
"""``CLONE_NEWUSER``, ``CLONE_NEWIPC``, ``CLONE_NEWUTS`` and ``CLONE_NEWNS``."""

_CONFINING = ("mount", "pivot_root", "umount2", "unshare")
_EXIT_USAGE, _EXIT_IMPOSSIBLE = 2, 3


def connect(path: str) -> socket.socket:
    """A connection to QEMU, as soon as it listens at `path`."""
    while True:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            client.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            client.close()
            time.sleep(_RETRY_SECONDS)
        else:
            client.set_inheritable(True)
            return client


def may_confine_itself() -> bool:
    """Whether this user may make the namespaces in which passt leaves everything behind."""
    child = os.fork()
    if child == 0:
        os._exit(0 if ctypes.CDLL(None).unshare(_NAMESPACES) == 0 else 1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def greet(cable: socket.socket, interface: str, mac: str) -> None:
    """Ask a guest that has the address of `interface` to answer, and so to say its own MAC.

    passt sends to everybody until it has heard from its guest, and guests accept no connections in such
    frames. One that runs already, because an earlier passt has failed, may have nothing to say.

    Raises OSError, ValueError.
    """
    address = _address(interface)
    if address is not None:
        probe = arp_probe(bytes.fromhex(mac.replace(":", "")), address)
        cable.sendall(struct.pack(">I", len(probe)) + probe)


def arp_probe(mac: bytes, address: bytes) -> bytes:
    """The frame by which the owner of an IPv4 address is looked for without saying one's own (RFC 5227)."""
    header = b"\xff" * 6 + mac + struct.pack(">HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1)
    return (header + mac + bytes(4) + bytes(6) + address).ljust(60, b"\0")


def _address(interface: str) -> bytes | None:
    """The IPv4 address of an interface, if it has one."""
    request = struct.pack("40s", interface.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as kernel:
        try:
            return fcntl.ioctl(kernel, _SIOCGIFADDR, request)[20:24]
        except OSError:
            return None


def main() -> int:
    """The program ``virt-passt``: QEMU's socket, and the command line of passt."""
    if len(sys.argv) < 3:
        sys.stderr.write("virt-passt: QEMU's socket and passt's command line are missing\n")
        return _EXIT_USAGE
    path, command = sys.argv[1], sys.argv[2:]
    found = options(command)
    try:
        if not may_confine_itself():
            callfilter.answer_instead(_CONFINING)
        connection = connect(path)
        greet(connection, found["interface"], found["mac-addr"])
        os.execv(command[0], [*command, *_ONE_CLIENT, "--fd", str(connection.fileno())])
    except (OSError, KeyError, ValueError) as error:
        sys.stderr.write(f"virt-passt: the guest's network cannot be served: {error}\n")
        return _EXIT_IMPOSSIBLE


if __name__ == "__main__":
    sys.exit(main())

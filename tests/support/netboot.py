"""A server from which guests boot: DHCP and HTTP on one link, run by ``python -m tests.support.netboot``.

The link's guests all get one address. What iPXE asks HTTP for is in a folder.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import socket
import struct
import threading
from pathlib import Path

_COOKIE = b"\x63\x82\x53\x63"
_MESSAGE_TYPE, _SERVER, _LEASE_SECONDS, _MASK, _END = 53, 54, 51, 1, 255
_ANSWERS = {1: 2, 3: 5}
"""Types of messages (RFC 2132): a discover is answered by an offer, a request by an acknowledgement."""


def answer(request: bytes, server: str, guest: str, file: str) -> bytes | None:
    """The answer of DHCP to a request (RFC 2131) from a guest that boots from `file`; None for others."""
    kind = _options(request).get(_MESSAGE_TYPE, b"\0")[0]
    if request[:1] != b"\1" or kind not in _ANSWERS:
        return None
    own, given = socket.inet_aton(server), socket.inet_aton(guest)
    fixed = struct.pack(">4B4sHH", 2, 1, 6, 0, request[4:8], 0, 0x8000)
    fixed += bytes(4) + given + own + bytes(4) + request[28:44] + bytes(64) + file.encode().ljust(128, b"\0")
    options = {_MESSAGE_TYPE: bytes([_ANSWERS[kind]]), _SERVER: own, _MASK: b"\xff\xff\xff\0"}
    options[_LEASE_SECONDS] = struct.pack(">I", 3600)
    encoded = b"".join(bytes([code, len(value)]) + value for code, value in options.items())
    return fixed + _COOKIE + encoded + bytes([_END])


def _options(request: bytes) -> dict[int, bytes]:
    found, position = {}, 240
    while position + 1 < len(request) and request[position] != _END:
        if request[position] == 0:
            position += 1
            continue
        code, length = request[position], request[position + 1]
        found[code] = request[position + 2 : position + 2 + length]
        position += 2 + length
    return found


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("link")
    parser.add_argument("server")
    parser.add_argument("guest")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(given.folder))
    pages = http.server.ThreadingHTTPServer((given.server, 8000), handler)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, given.link.encode())
        channel.bind(("", 67))
        file = f"http://{given.server}:8000/boot.ipxe"
        while True:
            reply = answer(channel.recv(2048), given.server, given.guest, file)
            if reply is not None:
                channel.sendto(reply, ("255.255.255.255", 68))


if __name__ == "__main__":
    main()

"""Commands of TPM 2.0 for secrets in its memory that outlasts power, as bytes for ``/dev/tpm0``.

Specification: TPM 2.0 library, part 3, chapters 31.3 (define), 31.7 (write), 31.13 (read).
"""

from __future__ import annotations

import struct

_WITH_SESSIONS = 0x8002
_OWNER = 0x40000001
_EMPTY_PASSWORD = struct.pack(">IIHBH", 9, 0x40000009, 0, 0, 0)
_INDEX = 0x01500001
_SHA256 = 0x000B
_READ_AND_WRITTEN_BY_OWNER = 0x00020002


def define(size: int) -> bytes:
    """Make room for `size` bytes."""
    public = struct.pack(">IHIHH", _INDEX, _SHA256, _READ_AND_WRITTEN_BY_OWNER, 0, size)
    return _command(0x12A, [_OWNER], struct.pack(">HH", 0, len(public)) + public)


def write(secret: bytes) -> bytes:
    """Write all of the room."""
    return _command(0x137, [_OWNER, _INDEX], struct.pack(">H", len(secret)) + secret + bytes(2))


def read(size: int) -> bytes:
    """Read all of the room."""
    return _command(0x14E, [_OWNER, _INDEX], struct.pack(">HH", size, 0))


def _command(code: int, handles: list[int], parameters: bytes) -> bytes:
    rest = b"".join(struct.pack(">I", handle) for handle in handles) + _EMPTY_PASSWORD + parameters
    return struct.pack(">HII", _WITH_SESSIONS, 10 + len(rest), code) + rest


def shell(command: bytes) -> str:
    """The shell command that has ``/dev/tpm0`` obey and prints its answer in hexadecimal digits."""
    escaped = "".join(f"\\x{byte:02x}" for byte in command)
    answer = "dd bs=4096 count=1 <&3 2>/dev/null | hexdump -v -e '1/1 \"%02x\"'"
    # The TPM takes a command in one piece, which the shell's printf divides at its line feeds.
    return f"(exec 3<>/dev/tpm0; printf '{escaped}' >/tmp/command; cat /tmp/command >&3; {answer})"


def result(answer: str) -> tuple[int, bytes]:
    """The code (0 for success) and the parameters of an answer in hexadecimal digits."""
    raw = bytes.fromhex(answer)
    return struct.unpack(">I", raw[6:10])[0], raw[10:]

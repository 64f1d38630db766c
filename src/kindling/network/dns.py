"""DNS messages, as much as answering names of services takes (RFC 1035; pure)."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from dataclasses import dataclass

A, PTR, SRV, AAAA, ANY = 1, 12, 33, 28, 255
_IN = 1
NO_ERROR, SERVER_FAILURE, NAME_ERROR = 0, 2, 3
_TTL_SECONDS = 5


class MalformedMessage(Exception):
    """Bytes that are no DNS query."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a query asks; `raw` is the question section as it came."""

    identifier: int
    recursion: bool
    name: str
    kind: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """One answer: an address, a name (PTR), or (for SRV) port and name."""

    kind: int
    value: str
    port: int = 0


def parse_query(message: bytes) -> Question:
    """The question of a query. Raises MalformedMessage."""
    if len(message) < 12:
        raise MalformedMessage("too short")
    identifier, flags, questions = struct.unpack_from(">HHH", message)
    if flags & 0x8000 or questions != 1:
        raise MalformedMessage("not a query with one question")
    labels = []
    position = 12
    try:
        while size := message[position]:
            if size & 0xC0:
                raise MalformedMessage("compressed question")
            labels.append(message[position + 1 : position + 1 + size].decode("latin-1"))
            position += 1 + size
        kind, _ = struct.unpack_from(">HH", message, position + 1)
    except (IndexError, struct.error) as error:
        raise MalformedMessage("truncated question") from error
    raw = message[12 : position + 5]
    return Question(identifier, bool(flags & 0x0100), ".".join(labels).lower(), kind, raw)


def answer(question: Question, code: int, records: Sequence[Record] = ()) -> bytes:
    """A response with `records`, authoritative."""
    flags = 0x8480 | (0x0100 if question.recursion else 0) | code
    head = struct.pack(">HHHHHH", question.identifier, flags, 1, len(records), 0, 0)
    return head + question.raw + b"".join(_encode(record) for record in records)


def _encode(record: Record) -> bytes:
    if record.kind == A:
        data = ipaddress.IPv4Address(record.value).packed
    elif record.kind == AAAA:
        data = ipaddress.IPv6Address(record.value).packed
    elif record.kind == SRV:
        data = struct.pack(">HHH", 0, 100, record.port) + encode_name(record.value)
    else:
        data = encode_name(record.value)
    # The owner is the question's name, which stands at offset 12.
    return struct.pack(">HHHIH", 0xC00C, record.kind, _IN, _TTL_SECONDS, len(data)) + data


def encode_name(name: str) -> bytes:
    """A name as length-prefixed labels."""
    labels = [label.encode("latin-1") for label in name.rstrip(".").split(".") if label]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"

"""DNS messages, as far as a resolver for services needs them (RFC 1035; pure)."""

from __future__ import annotations

import ipaddress
import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass

A, CNAME, PTR, SRV, AAAA, ANY = 1, 5, 12, 33, 28, 255
_IN = 1
NO_ERROR, SERVER_FAILURE, NAME_ERROR = 0, 2, 3
_TTL_SECONDS = 5
_MAX_LABEL, _MAX_NAME = 63, 255
_MAX_JUMPS = 128
"""Compression pointers of one name, which has fewer labels: thousands that lead to each other take long."""
_OPT, _OPTIONS = 41, struct.Struct(">BHHIH")
"""A record of EDNS: owner, kind, bytes by UDP, flags, length of the options (RFC 6891, 6.1.2)."""
_TRUNCATED = 0x0200
_DATAGRAM_BYTES, _MAX_DATAGRAM_BYTES = 512, 1232
"""The largest answer by UDP to a client that names no size (RFC 1035, 4.2.1), and to any client: longer
datagrams are fragmented on some paths."""
_MAX_BYTES = 65535
"""Of any message: by TCP, two bytes tell its length."""


class MalformedMessage(Exception):
    """Bytes that are no DNS message, or a name that no DNS message can hold."""


@dataclass(frozen=True, slots=True)
class Question:
    """The question of a query.

    `raw` is the question section as received, `datagram_bytes` the longest answer by UDP, `has_options` says
    whether the client understands EDNS (RFC 6891).
    """

    identifier: int
    recursion: bool
    name: str
    kind: int
    raw: bytes
    datagram_bytes: int = _DATAGRAM_BYTES
    has_options: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """One answer: an address, a name (PTR, CNAME), or (for SRV) port and name."""

    kind: int
    value: str
    port: int = 0
    owner: str = ""
    """Whose record this is; empty for the name that was asked for."""


def parse_query(message: bytes) -> Question:
    """The question of a query. Raises MalformedMessage."""
    if len(message) < 12:
        raise MalformedMessage("too short")
    identifier, flags, questions, answers, authorities, extras = struct.unpack_from(">HHHHHH", message)
    if flags & 0x8000 or questions != 1:
        raise MalformedMessage("not a query with one question")
    labels = []
    position = 12
    try:
        while size := message[position]:
            if size & 0xC0:
                raise MalformedMessage("compressed question")
            if position + size >= 12 + _MAX_NAME:
                raise MalformedMessage("a name that is too long")
            labels.append(message[position + 1 : position + 1 + size].decode("latin-1"))
            position += 1 + size
        kind, _ = struct.unpack_from(">HH", message, position + 1)
    except (IndexError, struct.error) as error:
        raise MalformedMessage("truncated question") from error
    raw = message[12 : position + 5]
    offered = _offered_bytes(message, position + 5) if (answers, authorities, extras) == (0, 0, 1) else None
    allowed = max(_DATAGRAM_BYTES, min(offered or 0, _MAX_DATAGRAM_BYTES))
    name = ".".join(labels).lower()
    return Question(identifier, bool(flags & 0x0100), name, kind, raw, allowed, offered is not None)


def _offered_bytes(message: bytes, position: int) -> int | None:
    """What the options at `position` say that the client can take by UDP; None without options."""
    if len(message) < position + _OPTIONS.size:
        return None
    owner, kind, size, *_ = _OPTIONS.unpack_from(message, position)
    return int(size) if (owner, kind) == (0, _OPT) else None


def answer(
    question: Question, code: int, records: Sequence[Record] = (), *, by_datagram: bool = False
) -> bytes:
    """A response with `records`, authoritative. Raises MalformedMessage for a name that does not fit.

    A datagram holds as many records as the client can take. If some are left out, it says so, and the client
    asks again by TCP (RFC 1035, 4.2.1), which has an end as well.
    """
    flags = 0x8480 | (0x0100 if question.recursion else 0) | code
    encoded = [_encode(record) for record in records]
    options = _OPTIONS.pack(0, _OPT, _MAX_DATAGRAM_BYTES, 0, 0) if question.has_options else b""
    most = question.datagram_bytes if by_datagram else _MAX_BYTES
    ends = itertools.accumulate(map(len, encoded), initial=12 + len(question.raw) + len(options))
    encoded = encoded[: max(0, sum(end <= most for end in ends) - 1)]
    flags |= _TRUNCATED if len(encoded) < len(records) else 0
    head = struct.pack(">HHHHHH", question.identifier, flags, 1, len(encoded), 0, 1 if options else 0)
    return head + question.raw + b"".join(encoded) + options


def is_truncated(message: bytes) -> bool:
    """Whether a response leaves records out because they did not fit into its datagram."""
    return len(message) > 2 and bool(message[2] & _TRUNCATED >> 8)


def _encode(record: Record) -> bytes:
    if record.kind == A:
        data = ipaddress.IPv4Address(record.value).packed
    elif record.kind == AAAA:
        data = ipaddress.IPv6Address(record.value).packed
    elif record.kind == SRV:
        data = struct.pack(">HHH", 0, 100, record.port) + encode_name(record.value)
    else:
        data = encode_name(record.value)
    # The question's name stands at offset 12.
    owner = encode_name(record.owner) if record.owner else struct.pack(">H", 0xC00C)
    return owner + struct.pack(">HHIH", record.kind, _IN, _TTL_SECONDS, len(data)) + data


def encode_name(name: str) -> bytes:
    """A name as length-prefixed labels. Raises MalformedMessage for one over 63 bytes (RFC 1035, 2.3.4)."""
    labels = [label.encode("latin-1") for label in name.rstrip(".").split(".") if label]
    if any(len(label) > _MAX_LABEL for label in labels):
        # The API accepts such names (an ExternalName service's, of up to 253 characters).
        raise MalformedMessage(f"a label of {name!r} is longer than {_MAX_LABEL} bytes")
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def query(identifier: int, name: str, kind: int) -> bytes:
    """A question to another server. Raises MalformedMessage for a name that does not fit."""
    return (
        struct.pack(">HHHHHH", identifier, 0x0100, 1, 0, 0, 0)
        + encode_name(name)
        + struct.pack(">HH", kind, _IN)
    )


def parse_response(message: bytes) -> list[Record]:
    """The addresses and aliases that a server answered with. Raises MalformedMessage."""
    records: list[Record] = []
    try:
        _, _, questions, answers = struct.unpack_from(">HHHH", message)
        position = 12
        for _ in range(questions):
            position = _decode_name(message, position)[1] + 4
        for _ in range(answers):
            owner, position = _decode_name(message, position)
            kind, _, _, size = struct.unpack_from(">HHIH", message, position)
            position += 10
            if kind == CNAME:
                records.append(Record(kind, _decode_name(message, position)[0], owner=owner))
            elif kind == A:
                packed = message[position : position + size]
                records.append(Record(kind, str(ipaddress.IPv4Address(packed)), owner=owner))
            elif kind == AAAA:
                packed = message[position : position + size]
                records.append(Record(kind, str(ipaddress.IPv6Address(packed)), owner=owner))
            position += size
    except (IndexError, struct.error, ValueError) as error:
        raise MalformedMessage(f"truncated response: {error}") from error
    return records


def _decode_name(message: bytes, position: int) -> tuple[str, int]:
    """The name at `position`, and where it ends. Raises IndexError, ValueError."""
    labels: list[str] = []
    end = length = jumps = 0
    start = position
    while size := message[position]:
        if size & 0xC0:
            target = (size & 0x3F) << 8 | message[position + 1]
            end = end or position + 2
            # Before the labels that led to it: one that leads back to them would never end.
            if target >= start:
                raise ValueError("a compression pointer that does not point backwards")
            start = position = target
            jumps += 1
            if jumps > _MAX_JUMPS:
                raise ValueError("too many compression pointers")
            continue
        length += 1 + size
        if length >= _MAX_NAME:
            raise ValueError("a name that is too long")
        labels.append(message[position + 1 : position + 1 + size].decode("latin-1"))
        position += 1 + size
    return ".".join(labels), end or position + 1

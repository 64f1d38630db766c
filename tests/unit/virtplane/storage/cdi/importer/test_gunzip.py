"""gzip undone in the importer, beside what the program makes of the same bytes."""

from __future__ import annotations

import gzip
import random
import subprocess

import pytest

from virtplane.storage.cdi.importer.gunzip import BadGzip, Gunzip

CHANCE = random.Random(1)
MIXED = b"".join(CHANCE.choice((bytes(70_000), CHANCE.randbytes(50_000), b"text " * 9000)) for _ in range(9))
EMPTY = gzip.compress(b"")


def unpacked(content: bytes, piece: int, most: int = 1 << 20) -> bytes:
    """What is in `content`, given in pieces. Raises BadGzip."""
    gunzip, made = Gunzip(), bytearray()
    for offset in range(0, len(content), piece):
        gunzip.feed(content[offset : offset + piece])
        while part := gunzip.produce(most):
            assert len(part) <= most
            made += part
    gunzip.finish()
    return bytes(made)


def by_program(content: bytes) -> bytes | None:
    """What gzip makes of it; None where it fails. Its status 2 warns of what comes behind."""
    done = subprocess.run(["gzip", "-dc"], input=content, capture_output=True, check=False)
    return done.stdout if done.returncode in (0, 2) else None


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(MIXED),
        gzip.compress(MIXED, 0),
        gzip.compress(b"one") + gzip.compress(MIXED),
        gzip.compress(b"one") + bytes(5000) + gzip.compress(b"two") + bytes(3),
        gzip.compress(b"one") + b"garbage" * 900,
        gzip.compress(b"one") + bytes(5000),
        gzip.compress(b"one") + b"\0\x1f",
        EMPTY * 2000 + gzip.compress(b"last"),
        EMPTY,
    ],
    ids=["packed", "stored", "two", "padded", "garbage", "zeros", "zeros-and-one", "many-empty", "empty"],
)
@pytest.mark.parametrize("piece", [1, 4096, 1 << 20])
def test_the_same_comes_out_as_of_the_program(content: bytes, piece: int) -> None:
    expected = by_program(content)
    assert expected is not None
    assert unpacked(content, piece) == expected
    if piece > 1:
        assert unpacked(content, piece, most=777) == expected


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(MIXED)[:-1],
        gzip.compress(MIXED)[:5],
        gzip.compress(MIXED)[:-8] + bytes(8),
        gzip.compress(b"one") + b"\x1f\x8b\x09garbage",
        gzip.compress(b"one") + gzip.compress(b"two")[:12],
        gzip.compress(b"one") + b"\x1f",
    ],
    ids=["end-missing", "head-only", "wrong-sum", "damaged-second", "half-second", "half-magic"],
)
def test_damaged_files_are_errors_as_of_the_program(content: bytes) -> None:
    assert by_program(content) is None
    for piece in (1, 1 << 20):
        with pytest.raises(BadGzip):
            unpacked(content, piece)

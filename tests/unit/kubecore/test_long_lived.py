"""What long-lived processes do first, seen in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import trustme

_AUTHORITIES = """
import gc, os, ssl, sys
from kubecore.long_lived import stay_small

stay_small()
assert "aiohttp" in sys.modules
known = [each.cert_store_stats()["x509"] for each in gc.get_objects() if isinstance(each, ssl.SSLContext)]
print(sum(known), ssl.create_default_context().cert_store_stats()["x509"], os.environ.get("SSL_CERT_FILE"))
"""
_MAPPED = """
import ctypes
from kubecore.long_lived import MAPPED_BYTES, stay_small

stay_small()
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes, c.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
for _ in range(2):
    block = c.malloc(MAPPED_BYTES)
    with open("/proc/self/maps") as maps:
        heap = next(line.split()[0].split("-") for line in maps if "[heap]" in line)
    print(int(heap[0], 16) <= block < int(heap[1], 16))
    c.free(block)
"""


def _run(program: str, **environment: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_systems_authorities_are_read_by_those_who_ask_for_them_alone(tmp_path: Path) -> None:
    bundle = tmp_path / "authorities.pem"
    trustme.CA().cert_pem.write_to_path(str(bundle))
    assert _run(_AUTHORITIES, SSL_CERT_FILE=str(bundle)).split() == ["0", "1", str(bundle)]


def test_large_buffers_do_not_move_into_the_heap_once_one_was_freed() -> None:
    assert _run(_MAPPED).split() == ["False", "False"]

"""Hashes of the inputs that a process reads only at its start: code, arguments, certificates.

Each process carries the fingerprint of its settings in its environment, so that `up` can tell which running
processes were started with different inputs: by an earlier version, or before a certificate was renewed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

VARIABLE = "KINDLING_SETTINGS"
"""Environment variable with the fingerprint."""
_PACKAGES = ("kindling", "kubecore")
_SOURCE = Path(__file__).resolve().parents[2]


@cache
def of_code() -> str:
    """The hash of this program's code when this process started."""
    return of_source(_SOURCE)


def of_source(directory: Path) -> str:
    """The hash of the packages in a directory."""
    modules = (path for package in _PACKAGES for path in sorted((directory / package).rglob("*.py")))
    return of(files=modules)


def of(*texts: str, files: Iterable[Path] = ()) -> str:
    """The hash of texts and of the contents of files; a missing file differs from an empty one."""
    digest = hashlib.sha256(repr(texts).encode())
    for path in files:
        try:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        except FileNotFoundError:
            content = "none"
        digest.update(f"{path.name} {content}\n".encode())
    return digest.hexdigest()[:16]

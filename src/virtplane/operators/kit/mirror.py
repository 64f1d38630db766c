"""Certificates as files, for components that share the operator's process.

In pods of their own, components find their certificates in mounted secrets. In the compact layout the secrets
come to be while the process runs already, so the operator writes them to the same paths itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from kubecore.certificates import CERTIFICATE_KEY, PRIVATE_KEY, KeyPair, pair_of
from kubecore.json import JsonObject
from kubecore.objects import meta

logger = logging.getLogger(__name__)


class CertificateMirror:
    """Writes secrets to directories; `complete` is set once each was written."""

    def __init__(self, directories: Mapping[str, str], root: Path = Path("/")) -> None:
        self._directory_of = {secret: root / path.lstrip("/") for path, secret in directories.items()}
        self._missing = set(self._directory_of)
        self.complete = asyncio.Event()
        if not self._missing:
            self.complete.set()

    def observe(self, secret: JsonObject) -> None:
        """Write a secret to its directory if it is one of those to mirror and is complete."""
        name = meta.name(secret)
        directory = self._directory_of.get(name)
        pair = pair_of(secret)
        if directory is None or pair is None:
            return
        write_pair(directory, pair)
        self._missing.discard(name)
        if not self._missing:
            self.complete.set()


def write_pair(directory: Path, pair: KeyPair) -> None:
    """Write certificate and key atomically."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, content, mode in (
        (PRIVATE_KEY, pair.key, 0o600),
        (CERTIFICATE_KEY, pair.certificate, 0o644),
    ):
        path = directory / name
        if path.exists() and path.read_bytes() == content:
            continue
        temporary = directory / f".{name}.new"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        temporary.replace(path)

"""Files that skopeo is given: credentials and authorities of registries."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

_OWN_SUFFIXES = (".crt", ".cert", ".key")


@contextlib.contextmanager
def credentials(host: str, user: str, password: str) -> Iterator[Path]:
    """A file with the credentials for `host`: on a command line other processes would see them."""
    secret = base64.b64encode(f"{user}:{password}".encode()).decode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "auth.json")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"auths": {host: {"auth": secret}}}, file)
        yield path


@contextlib.contextmanager
def certificates(folders: Sequence[Path]) -> Iterator[Path | None]:
    """A folder with the files of all `folders`, as ``.crt``; None if they have none.

    skopeo reads one folder, and takes files of other suffixes for nothing.
    """
    files = [
        each
        for folder in folders
        if folder.is_dir()
        for each in sorted(folder.iterdir())
        if each.is_file() and not each.name.startswith("..")
    ]
    if not files:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        for number, file in enumerate(files):
            name = file.name if file.suffix in _OWN_SUFFIXES else f"{file.name}.crt"
            Path(folder, f"{number}-{name}" if name.endswith(".crt") else name).write_bytes(file.read_bytes())
        yield Path(folder)

"""The keys that sign and check tokens of service accounts, and the file of the key made at first start.

The libraries behind them (``signatures``) are loaded with the first token or when a key is made: they take
10 MiB that a server without tokens need not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .signatures import KeyRing

_FRAMES = (b"-----BEGIN ", b"KEY-----")


def new_key() -> bytes:
    """A new private key, PEM."""
    from .signatures import new_key as make  # noqa: PLC0415 - loads the libraries, see above

    return make()


def load_or_create_key(path: Path) -> bytes:
    """The key in a file, made at first use (mode 0600)."""
    if path.exists():
        return path.read_bytes()
    pem = new_key()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(pem)
    return pem


class Keys:
    """PEM keys; `ring` loads them and signs. Where there are none, one is made for the life of the server."""

    def __init__(self, pems: Sequence[bytes]) -> None:
        """Raises ValueError for text that is not PEM; the keys are parsed later."""
        self._pems = tuple(pems)
        if not all(frame in pem for pem in self._pems for frame in _FRAMES):
            raise ValueError("a service account key is not in PEM form")

    @cached_property
    def ring(self) -> KeyRing:
        """The loaded keys. Raises ValueError when one of them cannot be parsed."""
        from .signatures import KeyRing  # noqa: PLC0415 - loads the libraries, see above

        return KeyRing(self._pems or (new_key(),))

"""Values of secrets as containers and volume drivers get them."""

from __future__ import annotations

import base64


def decode_text(value: str) -> str:
    """The text behind a secret's base64 value; bytes that are no text survive as surrogates."""
    return base64.b64decode(value).decode("utf-8", "surrogateescape")

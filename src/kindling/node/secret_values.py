"""Values of secrets as containers and volume drivers get them."""

from __future__ import annotations

import base64


def decode_text(value: str) -> str:
    """The decoded value of a secret as text; bytes that are not UTF-8 become surrogates."""
    return base64.b64decode(value).decode("utf-8", "surrogateescape")

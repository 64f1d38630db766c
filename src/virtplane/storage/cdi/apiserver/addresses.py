"""Addresses and checksums of sources, checked as CDI checks them."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

SCHEMES = ("http", "https", "gs")
REGISTRY_SCHEMES = ("docker", "oci-archive")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_BAD_HOST = re.compile(r"[\s<>\"\\^`{|}]")
_HEX = re.compile(r"[0-9a-f]*")
_DIGITS = {"md5": 32, "sha1": 40, "sha256": 64, "sha512": 128}


class InvalidAddress(ValueError):
    """The text is no URL."""


def scheme_of(text: str, *, is_request: bool) -> str:
    """The scheme of a URL, in small letters; empty if it has none. Raises InvalidAddress.

    `is_request`: the URL must be absolute, or an absolute path.
    """
    if _CONTROL.search(text) or _BAD_ESCAPE.search(text.partition("?")[0]):
        raise InvalidAddress(text)
    scheme, colon, rest = text.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):
        if colon and (not scheme or "/" not in scheme):
            raise InvalidAddress(text)
        scheme, rest = "", text
    if is_request and not scheme and not rest.startswith("/"):
        raise InvalidAddress(text)
    if scheme and not rest.startswith("/") and is_request and not rest:
        raise InvalidAddress(text)
    _check_host(text)
    return scheme.lower()


def _check_host(text: str) -> None:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise InvalidAddress(text) from error
    if _BAD_HOST.search(parts.netloc):
        raise InvalidAddress(text)


def source_problem(url: str) -> str:
    """What is wrong with the URL of a source; empty if nothing is."""
    if not url:
        return "source URL is empty"
    try:
        scheme = scheme_of(url, is_request=True)
    except InvalidAddress:
        return f"Invalid source URL: {url}"
    return "" if scheme in SCHEMES else f"Invalid source URL scheme: {url}"


def registry_problem(url: str) -> str:
    """What is wrong with the URL of an image; empty if nothing is."""
    try:
        scheme = scheme_of(url, is_request=False)
    except InvalidAddress:
        return f"Illegal registry source URL {url}"
    return "" if scheme in REGISTRY_SCHEMES else f"Illegal registry source URL scheme {url}"


def checksum_problem(text: str) -> str:
    """What is wrong with a checksum (``algorithm:hexadecimal``); empty if nothing is."""
    algorithm, colon, digits = text.partition(":")
    algorithm, digits = algorithm.strip().lower(), digits.strip().lower()
    if not colon:
        return f"invalid checksum format: expected 'algorithm:hash', got '{text}'"
    if not digits:
        return "checksum hash value cannot be empty"
    if algorithm not in _DIGITS:
        known = ", ".join(_DIGITS)
        return f"unsupported hash algorithm '{algorithm}': supported algorithms are: {known}"
    if len(digits) != _DIGITS[algorithm]:
        wanted = _DIGITS[algorithm]
        return f"invalid {algorithm} hash length: expected {wanted} hex characters, got {len(digits)}"
    if not _HEX.fullmatch(digits):
        bad = next(char for char in digits if not _HEX.fullmatch(char))
        shown = f"U+{ord(bad):04X} '{bad}'"
        return f"checksum hash is not valid hexadecimal: encoding/hex: invalid byte: {shown}"
    return ""

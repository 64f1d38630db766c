"""The string formats that structural schemas may ask for. Unknown formats accept everything."""

from __future__ import annotations

import base64
import binascii
import datetime
import ipaddress
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from .regexes import Pattern

_HOST_CHAR = r"[a-zA-Z0-9\p{S}\p{L}]"
# Without the lengths of labels, which are counted apart: they would make it take 14 MiB.
_HOST_NAME = Pattern(
    rf"^({_HOST_CHAR}(-?{_HOST_CHAR}*)?"
    rf"|({_HOST_CHAR}([a-zA-Z0-9-\p{{S}}\p{{L}}]*{_HOST_CHAR})?\.)+[a-zA-Z\p{{L}}]{{2,}})$"
)
_DATE_TIME = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:?\d{2})\Z", re.ASCII
)
_DURATION = re.compile(
    r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)\s*"
    r"(?:ns|us|µs|μs|ms|s|m|h|d|w|nano|nanos|micro|micros|milli|millis|sec|secs|second|seconds|"
    r"min|mins|minute|minutes|hr|hrs|hour|hours|day|days|week|weeks|wk|wks)\s*)+\Z"
)


_DOMAIN = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\Z")


def _whole(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(rf"(?:{pattern})\Z", re.ASCII)
    return lambda text: compiled.match(text) is not None


def _hostname(text: str) -> bool:
    return (
        _HOST_NAME.matches(text) and len(text) <= 255 and all(len(label) <= 63 for label in text.split("."))
    )


def _address(version: int) -> Callable[[str], bool]:
    def accepts(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return accepts


def _cidr(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text and text.rsplit("/", 1)[1].isdigit()


def _uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(text) and (bool(parts.scheme) or text.startswith("/"))


def _email(text: str) -> bool:
    """An address, or a name with the address in angle brackets."""
    if found := re.fullmatch(r"[^<>@]*<([^<>]+)>", text):
        text = found[1]
    local, at, domain = text.rpartition("@")
    return bool(at and local) and " " not in local and _DOMAIN.match(domain.strip("[]")) is not None


def _base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == 10


def _date_time(text: str) -> bool:
    if not _DATE_TIME.match(text):
        return False
    return _date(text[:10]) and int(text[11:13]) < 24 and int(text[14:16]) < 60 and int(text[17:19]) < 61


def _card_number(text: str) -> bool:
    digits = [int(char) for char in re.sub(r"[^0-9]", "", text)]
    if not 13 <= len(digits) <= 19:
        return False
    doubled = (digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _isbn10(text: str) -> bool:
    compact = re.sub(r"[\s-]", "", text)
    if not re.fullmatch(r"\d{9}[\dX]", compact):
        return False
    return sum((i + 1) * (10 if char == "X" else int(char)) for i, char in enumerate(compact)) % 11 == 0


def _isbn13(text: str) -> bool:
    compact = re.sub(r"[\s-]", "", text)
    return (
        re.fullmatch(r"\d{13}", compact) is not None
        and sum(int(char) * (3 if i % 2 else 1) for i, char in enumerate(compact)) % 10 == 0
    )


_HEX = "[0-9a-fA-F]"


def _uuid(version: str = rf"{_HEX}{{4}}", variant: str = rf"{_HEX}{{4}}") -> Callable[[str], bool]:
    return _whole(
        rf"{_HEX}{{8}}-?{_HEX}{{4}}-?{version}-?{variant}-?{_HEX}{{12}}",
    )


STRING_FORMATS: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "bsonobjectid": _whole(rf"{_HEX}{{24}}"),
        "uri": _uri,
        "email": _email,
        "hostname": _hostname,
        "ipv4": _address(4),
        "ipv6": _address(6),
        "cidr": _cidr,
        "mac": _whole(
            rf"{_HEX}{{2}}([:-]{_HEX}{{2}}){{5}}|{_HEX}{{2}}([:-]{_HEX}{{2}}){{7}}|({_HEX}{{4}}\.){{2,3}}{_HEX}{{4}}"
        ),
        "uuid": _uuid(),
        "uuid3": _uuid(version=rf"3{_HEX}{{3}}"),
        "uuid4": _uuid(version=rf"4{_HEX}{{3}}", variant=rf"[89abAB]{_HEX}{{3}}"),
        "uuid5": _uuid(version=rf"5{_HEX}{{3}}", variant=rf"[89abAB]{_HEX}{{3}}"),
        "isbn": lambda text: _isbn10(text) or _isbn13(text),
        "isbn10": _isbn10,
        "isbn13": _isbn13,
        "creditcard": _card_number,
        "ssn": _whole(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
        "hexcolor": _whole(rf"#?({_HEX}{{3}}|{_HEX}{{6}})"),
        "rgbcolor": _whole(r"rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)"),
        "byte": _base64,
        "password": lambda text: True,
        "date": _date,
        "duration": lambda text: text == "0" or _DURATION.match(text) is not None,
        "datetime": _date_time,
        "date-time": _date_time,
        "k8s-short-name": _whole(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"),
        "k8s-long-name": lambda text: (
            len(text) <= 253
            and re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", text)
            is not None
        ),
    }
)
"""Predicates by the name of the format."""

_OF_NUMBERS = {"integer": ("int32", "int64"), "number": ("float", "double")}


def is_recognized(format_name: str, kind: str) -> bool:
    """Whether validation knows a format for values of a type; an empty type may be a string."""
    if kind in ("", "string"):
        return any(name.replace("-", "") == format_name.replace("-", "") for name in STRING_FORMATS)
    return format_name in _OF_NUMBERS.get(kind, ())


INTEGER_RANGES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "int32": (-(2**31), 2**31 - 1),
        "int64": (-(2**63), 2**63 - 1),
        "uint32": (0, 2**32 - 1),
        "uint64": (0, 2**64 - 1),
    }
)
"""Smallest and largest value of integer formats."""

"""Functions of strings: ``find``, ``findAll``, what ``charAt`` and ``substring`` mean, and named formats
(``format.dns1123Label().validate(...)``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from kubecore.objects import names
from kubecore.schema.formats import STRING_FORMATS
from kubecore.schema.regexes import Pattern, PatternError

from .declarations import LIST, STRINGS, T, function, method
from .opaque_types import opaque

_FORMAT = opaque("kubernetes.NamedFormat")


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Pattern:
    try:
        return Pattern(pattern)
    except PatternError as error:
        raise ValueError(f"Illegal regex: {error}") from None


def _find(text: str, pattern: str) -> str:
    return _compiled(pattern).find(text)


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    return _compiled(pattern).find_all(text, limit)


def _character(text: str, at: int) -> str:
    return text[_within(text, at) : at + 1]


def _part(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        return text[_within(text, start) :]
    if start > end:
        raise ValueError(f"invalid substring range. start: {start}, end: {end}")
    return text[_within(text, start) : _within(text, end)]


def _within(text: str, index: int) -> int:
    if not 0 <= index <= len(text):
        raise ValueError(f"index out of range: {index}")
    return index


def _prefixed(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    return names.as_prefix(check)


def _by_schema(format_name: str, message: str) -> Callable[[str], list[str]]:
    accepts = STRING_FORMATS[format_name]
    return lambda text: [] if accepts(text) else [message]


_FORMATS: dict[str, Callable[[str], list[str]]] = {
    "dns1123Label": names.is_dns1123_label,
    "dns1123Subdomain": names.is_dns1123_subdomain,
    "dns1035Label": names.is_dns1035_label,
    "qualifiedName": names.is_qualified_name,
    "dns1123LabelPrefix": _prefixed(names.is_dns1123_label),
    "dns1123SubdomainPrefix": _prefixed(names.is_dns1123_subdomain),
    "dns1035LabelPrefix": _prefixed(names.is_dns1035_label),
    "labelValue": names.is_label_value,
    "uri": _by_schema("uri", "invalid URI"),
    "uuid": _by_schema("uuid", "does not match the UUID format"),
    "byte": _by_schema("byte", "invalid base64"),
    "date": _by_schema("date", "invalid date"),
    "datetime": _by_schema("date-time", "invalid datetime"),
}


def _validate(named: Any, text: str) -> list[list[str]]:
    """An optional list of problems (see ``program``)."""
    problems = _FORMATS[named.name](text)
    return [problems] if problems else []


def _named(name: str) -> list[Any]:
    """An optional format."""
    return [_FORMAT.make(name=name)] if name in _FORMATS else []


def _maker(name: str) -> Callable[[], Any]:
    return lambda: _FORMAT.make(name=name)


FUNCTIONS = (
    method("find", T.STRING, T.STRING, returns=T.STRING, run=_find),
    method("findAll", T.STRING, T.STRING, returns=STRINGS, run=_find_all),
    method("findAll", T.STRING, T.STRING, T.INT, returns=STRINGS, run=_find_all),
    method("characterAt", T.STRING, T.INT, returns=T.STRING, run=_character),
    method("part", T.STRING, T.INT, returns=T.STRING, run=_part),
    method("part", T.STRING, T.INT, T.INT, returns=T.STRING, run=_part),
    *(function(f"format.{name}", returns=_FORMAT.type, run=_maker(name)) for name in _FORMATS),
    function("format.named", T.STRING, returns=LIST, run=_named),
    method("validate", _FORMAT.type, T.STRING, returns=LIST, run=_validate),
)

"""Functions of strings: those of the language and its extension, ``find``, and named formats
(``format.dns1123Label().validate(...)``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from kubecore.objects import names
from kubecore.schema.formats import STRING_FORMATS
from kubecore.schema.regexes import Pattern, PatternError

from .declarations import function, method
from .values import NO_OVERLOAD, NONE, Opaque, Optional

_FORMAT = "kubernetes.NamedFormat"
_QUOTED = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_QUOTED |= {"\\": "\\\\", '"': '\\"'}
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {upper: lower for lower, upper in _LOWER.items()}


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Pattern:
    try:
        return Pattern(pattern)
    except PatternError as error:
        raise ValueError(f"Illegal regex: {error}") from None


def _matches(text: str, pattern: str) -> bool:
    try:
        return _compiled(pattern).matches(text)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("Illegal regex: ")) from None


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


def _index(text: str, wanted: str, start: int = 0) -> int:
    return text.find(wanted, _within(text, start)) if wanted else start


def _last_index(text: str, wanted: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(wanted)
    return text.rfind(wanted, 0, _within(text, start) + len(wanted)) if wanted else start


def _join(parts: list[Any], separator: str = "") -> str:
    if not all(isinstance(part, str) for part in parts):
        raise ValueError(NO_OVERLOAD)
    return separator.join(parts)


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    return text.replace(old, new, limit)


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    whole = len(text) if limit < 0 else min(len(text), limit - 1)
    return [*text[:whole], *([text[whole:]] if text[whole:] else [])]


def _quote(text: str) -> str:
    return '"' + "".join(_QUOTED.get(char, char) for char in text) + '"'


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


def _validate(named: Any, text: str) -> Optional:
    """The problems, if there are any."""
    problems = _FORMATS[named.name](text)
    return Optional((problems,)) if problems else NONE


def _named(name: str) -> Optional:
    return Optional((Opaque(kind=_FORMAT, name=name),)) if name in _FORMATS else NONE


def _maker(name: str) -> Callable[[], Any]:
    return lambda: Opaque(kind=_FORMAT, name=name)


_TEXT, _INT = "string", "int"
FUNCTIONS = (
    function("matches", _TEXT, _TEXT, run=_matches),
    method("matches", _TEXT, _TEXT, run=_matches),
    method("contains", _TEXT, _TEXT, run=lambda text, part: part in text),
    method("startsWith", _TEXT, _TEXT, run=str.startswith),
    method("endsWith", _TEXT, _TEXT, run=str.endswith),
    method("find", _TEXT, _TEXT, run=_find),
    method("findAll", _TEXT, _TEXT, run=_find_all),
    method("findAll", _TEXT, _TEXT, _INT, run=_find_all),
    method("charAt", _TEXT, _INT, run=_character),
    method("substring", _TEXT, _INT, run=_part),
    method("substring", _TEXT, _INT, _INT, run=_part),
    method("indexOf", _TEXT, _TEXT, run=_index),
    method("indexOf", _TEXT, _TEXT, _INT, run=_index),
    method("lastIndexOf", _TEXT, _TEXT, run=_last_index),
    method("lastIndexOf", _TEXT, _TEXT, _INT, run=_last_index),
    method("join", "list", run=_join),
    method("join", "list", _TEXT, run=_join),
    method("lowerAscii", _TEXT, run=lambda text: text.translate(_LOWER)),
    method("upperAscii", _TEXT, run=lambda text: text.translate(_UPPER)),
    method("trim", _TEXT, run=str.strip),
    method("replace", _TEXT, _TEXT, _TEXT, run=_replace),
    method("replace", _TEXT, _TEXT, _TEXT, _INT, run=_replace),
    method("split", _TEXT, _TEXT, run=_split),
    method("split", _TEXT, _TEXT, _INT, run=_split),
    function("strings.quote", _TEXT, run=_quote),
    *(function(f"format.{name}", run=_maker(name)) for name in _FORMATS),
    function("format.named", _TEXT, run=_named),
    method("validate", _FORMAT, _TEXT, run=_validate),
)

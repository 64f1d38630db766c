"""YAML as Kubernetes reads it: the values that JSON has, and complaints in its parser's words.

Text becomes values straight from the parser's events, without recursion: the library's own composer
recurses in C, where deeply nested text would end the process. Aliases are counted as what they stand for,
so that a few lines cannot blow up into gigabytes.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import yaml

from kubecore import errors
from kubecore.json import MAX_DEPTH, decode, deep_copy
from kubecore.objects.fields import go_quote
from kubecore.repeated_fields import duplicate_fields, may_repeat_fields

_PREFIX: Final = "tag:yaml.org,2002:"
_MAPPINGS: Final = frozenset({f"{_PREFIX}map", f"{_PREFIX}set", "!", None})
_SEQUENCES: Final = frozenset({f"{_PREFIX}seq", f"{_PREFIX}omap", f"{_PREFIX}pairs", "!", None})
_MERGE: Final = "<<"
_TRUE: Final = frozenset({"true", "yes", "on", "y"})
_BOOLEAN: Final = re.compile(r"(?:y|yes|true|on|n|no|false|off)\Z", re.IGNORECASE)
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_INTEGER: Final = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|[0-9][0-9_]*)\Z")
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?\Z")
_SPECIAL: Final = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?\Z")
_BASE_60: Final = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?\Z")
_FIRST_OF_NUMBER: Final = frozenset("0123456789+-.")
_MAX_NUMBER_CHARS: Final = 400

# How much of a text aliases may make up, and from where on it counts.
_FREE_ALIASED, _FREE_NODES = 100, 1000
_LENIENT_NODES, _STRICT_NODES = 400_000, 4_000_000
_LENIENT_SHARE, _STRICT_SHARE = 0.99, 0.10
_MAX_EXPANDED_BYTES: Final = 16 * 1024 * 1024


def load(raw: bytes) -> Any:
    """The JSON value of YAML text.

    Raises yaml.YAMLError, TooDeep, and StatusError (400) where JSON has no such value.
    """
    return read(raw)[0]


def read(raw: bytes) -> tuple[Any, list[str]]:
    """Like `load`, with complaints about keys that a mapping has more than once (the last one counts)."""
    if raw[:1] == b"{":
        try:
            value = decode(raw)
        except orjson.JSONDecodeError:
            pass  # not JSON, but perhaps YAML in flow style
        else:
            return value, _repeated_in_json(raw, value)
    builder = _built(raw)
    # An alias gets a copy: documents are edited in place.
    return deep_copy(builder.root) if builder.has_aliases else builder.root, builder.repeated


def _built(raw: bytes) -> _Builder:
    builder = _Builder()
    for event in yaml.parse(raw, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.DocumentEndEvent):
            break  # what follows is not read
        builder.take(event)
    return builder


def _repeated_in_json(raw: bytes, value: Any) -> list[str]:
    """The complaints about text that is JSON."""
    if not may_repeat_fields(raw, orjson.dumps(value)) or not duplicate_fields(raw):
        return []
    try:
        return _built(raw).repeated
    except yaml.YAMLError:
        return []  # JSON that is no YAML (by its tabs) has no lines to name


@dataclass(slots=True)
class _Open:
    """An open collection: `value` is its result."""

    value: Any
    anchor: str | None
    line: int
    """Where it began, counted from zero."""
    nodes: int = 1
    """Nodes in it so far, aliases counted as what they stand for."""
    size: int = 2
    """Bytes in it so far, likewise."""
    key: str | None = None
    """The key that waits for its value."""
    merged: list[Any] = field(default_factory=list)
    """What ``<<`` brought in: its keys give way to the mapping's own."""


@dataclass(slots=True)
class _Anchored:
    """The value of an anchor."""

    value: Any
    nodes: int
    size: int
    is_complete: bool = True


class _Builder:
    """Makes the value of the first document of a stream."""

    def __init__(self) -> None:
        self.root: Any = None
        self.has_aliases = False
        self.repeated: list[str] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}
        self._nodes = self._aliased = self._expanded = 0

    def take(self, event: Any) -> None:
        """One event. Raises yaml.YAMLError, StatusError."""
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event, is_key=self._wants_key())
            size = len(event.value) + 2
            if event.anchor is not None:
                self._anchors[event.anchor] = _Anchored(value, 1, size)
            self._nodes += 1
            self._add(value, 1, size, event)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._begin(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._end(event)

    def _wants_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].key is None

    def _begin(self, event: Any) -> None:
        if self._wants_key():
            raise _refused("invalid map key", event)
        if len(self._open) >= MAX_DEPTH:
            raise _refused(f"exceeded max depth of {MAX_DEPTH}", event)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (_MAPPINGS if is_mapping else _SEQUENCES):
            raise _refused(f"could not determine a constructor for the tag '{event.tag}'", event)
        self._nodes += 1
        opened = _Open({} if is_mapping else [], event.anchor, event.start_mark.line)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(opened.value, 0, 0, is_complete=False)
        self._open.append(opened)

    def _end(self, event: Any) -> None:
        done = self._open.pop()
        for mapping in done.merged:
            for key, value in mapping.items():
                done.value.setdefault(key, value)
        if done.anchor is not None:
            self._anchors[done.anchor] = _Anchored(done.value, done.nodes, done.size)
        self._add(done.value, done.nodes, done.size, event, line=done.line)

    def _alias(self, event: Any) -> None:
        self.has_aliases = True
        found = self._anchors.get(event.anchor)
        if found is None:
            raise _refused(f"unknown anchor '{event.anchor}' referenced", event)
        if not found.is_complete:
            raise _refused(f"anchor '{event.anchor}' value contains itself", event)
        if self._wants_key() and isinstance(found.value, dict | list):
            raise _refused("invalid map key", event)
        self._nodes += found.nodes
        self._aliased += found.nodes
        self._expanded += found.size
        if self._is_excessive():
            raise _refused("document contains excessive aliasing", None)
        self._add(found.value, found.nodes, found.size, event)

    def _is_excessive(self) -> bool:
        if self._expanded > _MAX_EXPANDED_BYTES:
            return True
        if self._aliased <= _FREE_ALIASED or self._nodes <= _FREE_NODES:
            return False
        way = (self._nodes - _LENIENT_NODES) / (_STRICT_NODES - _LENIENT_NODES)
        allowed = _LENIENT_SHARE - (_LENIENT_SHARE - _STRICT_SHARE) * min(1.0, max(0.0, way))
        return self._aliased / self._nodes > allowed

    def _add(self, value: Any, nodes: int, size: int, event: Any, *, line: int | None = None) -> None:
        if not self._open:
            self.root = value
            return
        parent = self._open[-1]
        parent.nodes += nodes
        parent.size += size
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.key is None:
            parent.key = _key(value, event)
        elif parent.key is _MERGE:
            parent.merged += _merged(value, event)
            parent.key = None
        else:
            if parent.key in parent.value:
                shown = (event.start_mark.line if line is None else line) + 1
                self.repeated.append(f"line {shown}: key {go_quote(parent.key)} already set in map")
            parent.value[parent.key] = value
            parent.key = None


def _refused(problem: str, event: Any) -> yaml.YAMLError:
    mark = event.start_mark if event is not None else None
    return yaml.constructor.ConstructorError(None, None, problem, mark)


def _merged(value: Any, event: Any) -> list[Any]:
    """The mappings that a merge key brings in, first come first."""
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in found):
        raise _refused("map merge requires map or sequence of maps as the value", event)
    return found


def _key(value: Any, event: Any) -> str:
    """A key as JSON has it."""
    if isinstance(value, str):
        is_plain = isinstance(event, yaml.ScalarEvent) and event.implicit[0]
        return _MERGE if value == _MERGE and is_plain else f"{value}"
    return orjson.dumps(value).decode()


def _scalar(event: Any, *, is_key: bool) -> Any:
    """The value of a scalar, by its tag or its form."""
    text: str = event.value
    if event.tag is None or event.tag == "!":
        if not event.implicit[0]:
            return text
        if is_key and text == _MERGE:
            return text
        return _plain(text)
    kind = event.tag.removeprefix(_PREFIX)
    if kind in ("str", "timestamp") or (kind == "merge" and text == _MERGE):
        return text
    if kind == "binary":
        try:
            return base64.b64decode(text).decode()
        except (binascii.Error, ValueError) as error:
            raise _refused("!!binary value contains invalid base64 data", event) from error
    value = _plain(text)
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    wanted = {"null": type(None), "bool": bool, "int": int, "float": float}.get(kind)
    if wanted is None:
        raise _refused(f"could not determine a constructor for the tag '{event.tag}'", event)
    if type(value) is not wanted:
        raise _refused(f"cannot decode !!str `{text[:64]}` as a !!{kind}", event)
    return value


def is_text(text: str) -> bool:
    """Whether Kubernetes' YAML reads `text` as text when it stands without quotes."""
    if text in ("<<", "=") or _MOMENT.match(text) or _BASE_60.match(text):
        return False
    try:
        return isinstance(_plain(text), str)
    except errors.StatusError:
        return False


def _plain(text: str) -> Any:
    """The value of a plain scalar; numbers that JSON does not have are refused (400)."""
    if text in _NULL:
        return None
    if text[0] in _FIRST_OF_NUMBER and len(text) <= _MAX_NUMBER_CHARS:
        return _number(text)
    if len(text) <= 5 and _BOOLEAN.match(text) and text in (text.lower(), text.upper(), text.title()):
        return text.lower() in _TRUE
    return text


def _number(text: str) -> Any:
    if _SPECIAL.match(text):
        shown = "NaN" if "n" in text[1:3].lower() and "i" not in text.lower() else f"{text[0].strip('.')}Inf"
        raise errors.bad_request(f"error converting YAML to JSON: json: unsupported value: {shown}")
    digits = text.replace("_", "")
    if _INTEGER.match(text):
        value = _integer(digits)
        if value is not None:
            return value if -(2**63) <= value < 2**64 else float(value)
    if _FLOAT.match(text):
        try:
            number = float(digits)
        except ValueError:
            return text
        return text if math.isinf(number) else number
    return text


def _integer(digits: str) -> int | None:
    """An integer in any of YAML's bases; None for text that only looks like one (``0x``, ``08``)."""
    sign = -1 if digits[0] == "-" else 1
    body = digits.lstrip("+-")
    base = {"0b": 2, "0x": 16, "0o": 8}.get(body[:2])
    try:
        if base is not None:
            return sign * int(body[2:], base)
        if len(body) > 1 and body[0] == "0":
            return sign * int(body, 8)
        return sign * int(body)
    except ValueError:
        return None


def message(error: yaml.YAMLError) -> str:
    """The error of malformed YAML, in the words of Kubernetes' parser."""
    problem = getattr(error, "problem", None) or str(error)
    line = 0
    for mark in (getattr(error, "context_mark", None), getattr(error, "problem_mark", None)):
        if mark is not None and mark.line:
            # Counted from zero; only the scanner's errors are corrected to what editors show.
            line = mark.line + (1 if isinstance(error, yaml.scanner.ScannerError) else 0)
            break
    return f"yaml: line {line}: {problem}" if line else f"yaml: {problem}"

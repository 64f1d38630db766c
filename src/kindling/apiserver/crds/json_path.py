"""JSONPath as kubectl knows it, for printer columns: ``.spec.list[?(@.type=="Ready")].status``.

Supported: fields (``.a``, ``['a']``, with ``\\.`` for a dot), indices and slices, ``[*]`` and ``.*``,
recursive descent (``..a``), unions (``[0,2]``) and filters that compare a path below the element with a
constant or ask for its existence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

Step = Callable[[Any], Iterator[Any]]
"""From one value to the values below it that the step selects."""

_FILTER = re.compile(
    r"\?\(\s*@(?P<path>.*?)\s*(?:(?P<op>==|!=|>=|<=|>|<)\s*(?P<value>.+?))?\s*\)\Z", re.DOTALL
)
_FIELD = re.compile(r"((?:\\.|[^.\[\]\\])+)")
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    ">": lambda left, right: bool(left > right),
    "<": lambda left, right: bool(left < right),
    ">=": lambda left, right: bool(left >= right),
    "<=": lambda left, right: bool(left <= right),
}


class JsonPathError(ValueError):
    """The text is no JSONPath."""


class JsonPath:
    """A compiled path. Raises JsonPathError for an invalid one."""

    def __init__(self, text: str) -> None:
        body = text.removeprefix("{").removesuffix("}") if text.startswith("{") else text
        self._steps = list(_parse(body.removeprefix("$")))

    def find(self, document: Any) -> list[Any]:
        """All values that the path selects, in document order; none where something on the way is absent."""
        found = [document]
        for step in self._steps:
            found = [below for value in found for below in step(value)]
        return found


def _parse(text: str) -> Iterator[Step]:
    position = 0
    while position < len(text):
        if text.startswith("..", position):
            yield _descend
            position += 1 if text[position + 2 : position + 3] != "[" else 2
        elif text[position] == ".":
            position += 1
            if text.startswith("*", position):
                yield _everything
                position += 1
            elif position < len(text) and text[position] != "[":
                found = _FIELD.match(text, position)
                if found is None:
                    raise JsonPathError(f"unexpected {text[position]!r} in {text!r}")
                yield _field(re.sub(r"\\(.)", r"\1", found[1]))
                position = found.end()
        elif text[position] == "[":
            end = _closing(text, position)
            yield _bracket(text[position + 1 : end].strip())
            position = end + 1
        elif position == 0 and (found := _FIELD.match(text)):
            yield _field(re.sub(r"\\(.)", r"\1", found[1]))
            position = found.end()
        else:
            raise JsonPathError(f"unexpected {text[position]!r} in {text!r}")


def _closing(text: str, start: int) -> int:
    """The position of the bracket that closes the bracket at `start`."""
    depth, quote = 0, ""
    for position in range(start, len(text)):
        char = text[position]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
            if depth == 0:
                return position
    raise JsonPathError(f"unterminated array in {text!r}")


def _bracket(inside: str) -> Step:
    if inside == "*":
        return _everything
    if inside.startswith("?"):
        return _filter(inside)
    if inside[:1] in ("'", '"'):
        names = [part.strip()[1:-1] for part in inside.split(",")]
        return _union([_field(name) for name in names])
    return _union([_positions(part.strip()) for part in inside.split(",")])


def _union(steps: list[Step]) -> Step:
    def step(value: Any) -> Iterator[Any]:
        for each in steps:
            yield from each(value)

    return step


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _everything(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _descend(value: Any) -> Iterator[Any]:
    yield value
    for below in _everything(value):
        yield from _descend(below)


def _positions(text: str) -> Step:
    try:
        numbers = [int(part) if part else None for part in text.split(":")]
    except ValueError:
        raise JsonPathError(f"invalid array index {text}") from None
    if len(numbers) > 3:
        raise JsonPathError(f"invalid array index {text}")

    def step(value: Any) -> Iterator[Any]:
        if not isinstance(value, list):
            return
        if len(numbers) > 1:
            yield from value[slice(*numbers)]
        elif numbers[0] is not None and -len(value) <= numbers[0] < len(value):
            yield value[numbers[0]]

    return step


def _filter(text: str) -> Step:
    found = _FILTER.match(text)
    if found is None:
        raise JsonPathError(f"invalid filter {text}")
    path, operator = JsonPath(found["path"]), found["op"]
    wanted = _constant(found["value"]) if operator else None

    def step(value: Any) -> Iterator[Any]:
        for item in value if isinstance(value, list) else _everything(value):
            values = path.find(item)
            if values and (not operator or _compare(operator, values[0], wanted)):
                yield item

    return step


def _compare(operator: str, left: Any, right: Any) -> bool:
    if type(left) is not type(right) and not (_is_number(left) and _is_number(right)):
        return operator == "!="
    return _COMPARISONS[operator](left, right)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _constant(text: str) -> Any:
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise JsonPathError(f"invalid constant {text}") from None

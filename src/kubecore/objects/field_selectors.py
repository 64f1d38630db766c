"""Field selectors: their text form and matching. Errors carry the messages of the Kubernetes API."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from kubecore.objects.selectors import SelectorError


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """One condition on one field: equal to `value`, or not."""

    field: str
    equal: bool
    value: str


@dataclass(frozen=True, slots=True)
class _Condition:
    """All requirements on one field."""

    equal: set[str]
    unequal: set[str]

    def holds(self, value: str) -> bool:
        return value not in self.unequal and (not self.equal or self.equal == {value})


@dataclass(frozen=True)
class FieldSelector:
    """Conditions on fields which must all hold."""

    requirements: tuple[FieldRequirement, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Whether every object matches."""
        return not self.requirements

    def matches(self, values: Mapping[str, str]) -> bool:
        """Whether the selectable fields `values` meet all conditions; an absent field is the empty string."""
        return all(condition.holds(values.get(field, "")) for field, condition in self._conditions.items())

    @cached_property
    def _conditions(self) -> Mapping[str, _Condition]:
        """One condition per field: a selector may have many requirements but there are few fields."""
        found: dict[str, _Condition] = {}
        for requirement in self.requirements:
            condition = found.setdefault(requirement.field, _Condition(set(), set()))
            (condition.equal if requirement.equal else condition.unequal).add(requirement.value)
        return found

    def exact(self, field: str) -> str | None:
        """The value that the selector requires of `field` (``metadata.name=x``), or None."""
        for requirement in self.requirements:
            if requirement.equal and requirement.field == field:
                return requirement.value
        return None

    def __str__(self) -> str:
        return ",".join(
            f"{requirement.field}{'=' if requirement.equal else '!='}{_escape(requirement.value)}"
            for requirement in self.requirements
        )


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def parse_field_selector(text: str) -> FieldSelector:
    """The selector written as in ``?fieldSelector=``. Which fields exist is for the caller to check."""
    requirements = []
    for term in sorted(_terms(text)):
        if not term:
            continue
        match = re.search(r"!=|==|=", term)
        if match is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        value = _unescape(term[match.end() :])
        requirements.append(FieldRequirement(term[: match.start()], match[0] != "!=", value))
    return FieldSelector(tuple(requirements))


def _terms(text: str) -> Iterable[str]:
    """The parts between commas; a comma after a backslash belongs to its part."""
    return (match[0] for match in re.finditer(r"(?:\\.|[^,\\]|\\$)+", text, re.DOTALL))


def _unescape(text: str) -> str:
    value = []
    position = 0
    while position < len(text):
        char = text[position]
        if char == "\\":
            escaped = text[position + 1 : position + 2]
            if escaped not in {"\\", ",", "="}:
                raise SelectorError(f"invalid field selector: invalid escape sequence: \\{escaped}")
            char = escaped
            position += 1
        elif char in ",=":
            raise SelectorError(f"invalid field selector: unescaped character in value: {ord(char)}")
        value.append(char)
        position += 1
    return "".join(value)

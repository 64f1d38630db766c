"""Label selectors: their text and object forms, and matching. Field selectors are in ``field_selectors``.

Errors carry the messages of the Kubernetes API. There is no quoting: a word is anything between white space
and the symbols ``= ! ( ) , > <``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from kubecore.json import JsonObject
from kubecore.objects import fields, names
from kubecore.objects.fields import FieldError, FieldPath

IN: Final = "in"
NOT_IN: Final = "notin"
EXISTS: Final = "exists"
DOES_NOT_EXIST: Final = "!"
GREATER: Final = "gt"
LESS: Final = "lt"

_OPERATOR_OF_SYMBOL: Final = {
    "in": IN,
    "notin": NOT_IN,
    "=": "=",
    "==": "==",
    "!=": "!=",
    ">": GREATER,
    "<": LESS,
}
_BINARY_OPERATORS: Final = "in, notin, =, ==, !=, gt, lt"
_OPERATOR_OF_OBJECT: Final = {"In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": DOES_NOT_EXIST}
_TOKEN: Final = re.compile(r"[ \t\r\n]*(?:(==|!=|[=!(),<>])|([^=!(),<> \t\r\n]+)|$)")
_CHOOSING: Final = frozenset({IN, "=", "=="})
_EXCLUDING: Final = frozenset({NOT_IN, "!="})
_MET_BY_ABSENCE: Final = _EXCLUDING | {DOES_NOT_EXIST}
_FEW: Final = 8
"""So many conditions are looked at one after another."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,1000}")
"""Zeros may lead; ``int`` refuses more digits than some thousands."""


class SelectorError(ValueError):
    """A selector cannot be parsed; the text is the API's message."""


@dataclass(frozen=True)
class Requirement:
    """One condition on one label. `values` are sorted; ``=`` and ``==`` behave as ``in``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    @cached_property
    def _value_set(self) -> frozenset[str]:
        return frozenset(self.values)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether `labels` meet the condition. A missing label meets ``notin`` and ``!=``."""
        value = labels.get(self.key)
        operator = self.operator
        if operator in _CHOOSING:
            return value is not None and value in self._value_set
        if operator in _EXCLUDING:
            return value is None or value not in self._value_set
        if operator == EXISTS:
            return self.key in labels
        if operator == DOES_NOT_EXIST:
            return self.key not in labels
        number, bound = int64(value or ""), int64(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if operator == GREATER else number < bound

    def __str__(self) -> str:
        if self.operator == EXISTS:
            return self.key
        if self.operator == DOES_NOT_EXIST:
            return f"!{self.key}"
        if self.operator in {IN, NOT_IN}:
            return f"{self.key} {self.operator} ({','.join(self.values)})"
        symbol = {GREATER: ">", LESS: "<"}.get(self.operator, self.operator)
        return f"{self.key}{symbol}{','.join(self.values)}"


def int64(text: str) -> int | None:
    """What strconv.ParseInt reads; None for anything else."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _merged(requirements: list[Requirement]) -> list[Requirement]:
    """The combined conditions on one key: at most one of each operator."""
    key = requirements[0].key
    by_operator: dict[str, list[Requirement]] = {}
    for each in requirements:
        kind = IN if each.operator in _CHOOSING else NOT_IN if each.operator in _EXCLUDING else each.operator
        by_operator.setdefault(kind, []).append(each)
    merged = []
    for operator, alike in by_operator.items():
        if operator == IN:
            values = set(alike[0].values).intersection(*(each.values for each in alike[1:]))
        elif operator == NOT_IN:
            values = set().union(*(each.values for each in alike))
        elif operator in {GREATER, LESS}:
            bound = (max if operator == GREATER else min)(alike, key=lambda each: int(each.values[0]))
            values = set(bound.values)
        else:
            values = set()
        merged.append(Requirement(key, operator, tuple(values)))
    return merged


@dataclass(frozen=True)
class LabelSelector:
    """Conditions that must all hold. Without conditions it matches everything, unless `is_nothing` is set."""

    requirements: tuple[Requirement, ...] = ()
    is_nothing: bool = False

    @property
    def is_everything(self) -> bool:
        """Whether every object matches."""
        return not self.requirements and not self.is_nothing

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether all conditions hold for `labels` (None counts as no labels).

        The cost depends on the number of labels, not of conditions: negative conditions (``notin``, ``!=``)
        are checked only for keys that the labels have, and a match needs all keys of the others.
        """
        if self.is_nothing:
            return False
        labels = labels or {}
        if len(self.requirements) <= _FEW:
            return all(requirement.matches(labels) for requirement in self.requirements)
        wanted, by_key = self._index
        if not wanted <= labels.keys():
            return False
        return all(requirement.matches(labels) for key in labels for requirement in by_key.get(key, ()))

    @cached_property
    def _index(self) -> tuple[frozenset[str], Mapping[str, Sequence[Requirement]]]:
        """The required keys, and the merged conditions on each key."""
        grouped: dict[str, list[Requirement]] = {}
        for requirement in self.requirements:
            grouped.setdefault(requirement.key, []).append(requirement)
        wanted = frozenset(each.key for each in self.requirements if each.operator not in _MET_BY_ABSENCE)
        return wanted, {key: _merged(each) for key, each in grouped.items()}

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)


EVERYTHING: Final = LabelSelector()
NOTHING: Final = LabelSelector(is_nothing=True)


def label_selector_of_map(labels: Mapping[str, str]) -> LabelSelector:
    """The selector which wants exactly these values, as Services and ReplicationControllers write it."""
    return LabelSelector(tuple(Requirement(key, "=", (labels[key],)) for key in sorted(labels)))


def parse_label_selector(text: str) -> LabelSelector:
    """The selector written as in ``?labelSelector=``. Raises `SelectorError`.

    Requirements are sorted by key, as the server prints them.
    """
    if not text:
        return EVERYTHING
    requirements = _LabelParser(text).parse()
    return LabelSelector(tuple(sorted(requirements, key=lambda requirement: requirement.key)))


class _LabelParser:
    """Recursive descent over the tokens; a token is (is_symbol, text), the end is (True, "")."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[bool, str]] = []
        for match in _TOKEN.finditer(text):
            symbol, word = match[1], match[2]
            if word is not None:
                self._tokens.append((False, word))
            elif symbol is not None:
                self._tokens.append((True, symbol))
        self._position = 0

    def _peek(self, *, operators: bool = False) -> tuple[bool, str]:
        """The next token. The words ``in`` and ``notin`` are symbols only where an operator is expected."""
        if self._position >= len(self._tokens):
            return True, ""
        symbol, text = self._tokens[self._position]
        return symbol or (operators and text in {IN, NOT_IN}), text

    def _take(self, *, operators: bool = False) -> tuple[bool, str]:
        token = self._peek(operators=operators)
        self._position += 1
        return token

    def parse(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        while True:
            symbol, text = self._peek()
            if symbol and text == "":
                return requirements
            if symbol and text != "!":
                raise SelectorError(f"found '{text}', expected: !, identifier, or 'end of string'")
            try:
                requirements.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from error
            symbol, text = self._take()
            if symbol and text == "":
                return requirements
            if not symbol or text != ",":
                raise SelectorError(f"found '{text}', expected: ',' or 'end of string'")
            symbol, text = self._peek()
            if symbol and text != "!":
                raise SelectorError(f"found '{text}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        symbol, key = self._take()
        negated = symbol and key == "!"
        if negated:
            symbol, key = self._take()
        if symbol:
            raise SelectorError(f"found '{key}', expected: identifier")
        _check_key(key, FieldPath())
        symbol, following = self._peek()
        if symbol and following in {"", ","}:
            return _new_requirement(key, DOES_NOT_EXIST if negated else EXISTS, ())
        if negated:
            return _new_requirement(key, DOES_NOT_EXIST, ())
        symbol, word = self._take(operators=True)
        if not symbol or word not in _OPERATOR_OF_SYMBOL:
            raise SelectorError(f"found '{word}', expected: {_BINARY_OPERATORS}")
        operator = _OPERATOR_OF_SYMBOL[word]
        values = self._values() if operator in {IN, NOT_IN} else {self._exact_value()}
        return _new_requirement(key, operator, sorted(values))

    def _exact_value(self) -> str:
        symbol, text = self._peek()
        if symbol and text in {"", ","}:
            return ""
        self._take()
        if symbol:
            raise SelectorError(f"found '{text}', expected: identifier")
        return text

    def _values(self) -> set[str]:
        symbol, text = self._take()
        if not symbol or text != "(":
            raise SelectorError(f"found '{text}' expected: '('")
        symbol, text = self._peek()
        if symbol and text == ")":
            self._take()
            return {""}
        if symbol and text != ",":
            raise SelectorError(f"found '{text}', expected: ',', ')' or identifier")
        return self._value_list()

    def _value_list(self) -> set[str]:
        """Words between commas up to the closing bracket; nothing between two commas is the empty value."""
        values: set[str] = set()
        word: str | None = None
        while True:
            symbol, text = self._take()
            if not symbol:
                if word is not None:
                    raise SelectorError(f"found '{text}', expected: ',' or ')'")
                word = text
                values.add(text)
            elif text == ",":
                if word is None:
                    values.add("")
                word = None
                symbol, text = self._peek()
                if symbol and text not in {",", ")"}:
                    raise SelectorError(f"found '{text}', expected: ',', or identifier")
            elif text == ")":
                if word is None:
                    values.add("")
                return values
            else:
                raise SelectorError(f"found '{text}', expected: ',' or ')'")


def _check_key(key: str, path: FieldPath) -> None:
    problems = names.is_qualified_name(key)
    if problems:
        raise SelectorError(fields.invalid(path, key, "; ".join(problems)).message())


def _new_requirement(key: str, operator: str, values: Sequence[str]) -> Requirement:
    """A checked requirement. Several problems are reported as one list in brackets."""
    path = FieldPath("values")
    errors: list[FieldError] = []
    if operator in {GREATER, LESS}:
        detail = "for 'Gt', 'Lt' operators, the value must be an integer"
        errors += [
            fields.invalid(path.index(i), value, detail)
            for i, value in enumerate(values)
            if int64(value) is None
        ]
    for i, value in enumerate(values):
        problems = names.is_label_value(value)
        if problems:
            errors.append(fields.invalid(path.index(i).key(key), value, "; ".join(problems)))
    if errors:
        messages = [error.message() for error in errors]
        raise SelectorError(messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]")
    return Requirement(key, operator, tuple(values))


def from_label_selector_object(selector: Mapping[str, Any] | None) -> LabelSelector:
    """The selector of a ``LabelSelector`` object. None matches nothing, an empty one everything.

    Raises `SelectorError` for an operator that does not exist or values that do not fit.
    """
    if selector is None:
        return NOTHING
    requirements = [
        _new_requirement(key, "=", (value,)) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for expression in selector.get("matchExpressions") or ():
        name = expression.get("operator", "")
        operator = _OPERATOR_OF_OBJECT.get(name)
        if operator is None:
            raise SelectorError(f'"{name}" is not a valid label selector operator')
        values = sorted(set(expression.get("values") or ()))
        if operator in {IN, NOT_IN} and not values:
            detail = "for 'in', 'notin' operators, values set can't be empty"
            raise SelectorError(fields.invalid("values", [], detail).message())
        if operator in {EXISTS, DOES_NOT_EXIST} and values:
            detail = "values set must be empty for exists and does not exist"
            raise SelectorError(fields.invalid("values", values, detail).message())
        requirements.append(_new_requirement(expression.get("key", ""), operator, values))
    return LabelSelector(tuple(sorted(requirements, key=lambda requirement: requirement.key)))


def validate_label_selector_object(
    selector: Mapping[str, Any] | None, path: FieldPath, *, allow_invalid_values: bool = False
) -> list[FieldError]:
    """The errors of a ``LabelSelector`` object at `path` inside another object.

    `allow_invalid_values` is for updates of objects that already contain invalid label values.
    """
    if selector is None:
        return []
    errors = validate_labels(selector.get("matchLabels") or {}, path.child("matchLabels"))
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        at = path.child("matchExpressions").index(index)
        errors += _validate_expression(expression, at, allow_invalid_values)
    return errors


def _validate_expression(expression: JsonObject, path: FieldPath, allow_invalid: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    operator, values = expression.get("operator", ""), expression.get("values") or []
    if operator in {"In", "NotIn"}:
        if not values:
            errors.append(
                fields.required(path.child("values"), "must be specified when `operator` is 'In' or 'NotIn'")
            )
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(fields.forbidden(path.child("values"), detail))
    else:
        errors.append(fields.invalid(path.child("operator"), operator, "not a valid selector operator"))
    key = expression.get("key", "")
    errors += [fields.invalid(path.child("key"), key, message) for message in names.is_qualified_name(key)]
    if not allow_invalid:
        for index, value in enumerate(values):
            at = path.child("values").index(index)
            errors += [fields.invalid(at, value, message) for message in names.is_label_value(value)]
    return errors


def validate_labels(labels: Mapping[str, str], path: FieldPath) -> list[FieldError]:
    """The errors of keys and values in a map of labels at `path`, in the order of the keys."""
    errors: list[FieldError] = []
    for key in sorted(labels):
        errors += [fields.invalid(path, key, message) for message in names.is_qualified_name(key)]
        value = labels[key]
        errors += [fields.invalid(path, value, message) for message in names.is_label_value(value)]
    return errors

"""Checking expressions against the schemas of their variables, with the messages of Kubernetes.

The compiled programs treat objects as maps of any values; this module checks the parsed expression against
the types of the schemas.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kubecore.schema.model import Schema

from .checker import Checker, Problem
from .engine import parse_only
from .records import Records
from .syntax import Node, parse
from .types import of_schema, optional_of, parse_type

_PROBLEM: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_SIMPLE: Final = r"\(\) (\w+ )?variable name must be a simple identifier"
_WORDS: Final = (
    (r"has\(\) argument must be a field selection", "invalid argument to has() macro"),
    (rf"(map|filter){_SIMPLE}", "argument is not an identifier"),
    (rf"(all|exists|exists_one|existsOne|transform\w+){_SIMPLE}", "argument must be a simple name"),
)
"""What the parser says, and what Kubernetes says."""

_STEPS: Final = 500
_STEPS_PER_CHARACTER: Final = 5
"""What checking types may cost; ordinary expressions take less than three steps per character."""

_MOST_PROBLEMS: Final = 100
_LONGEST_SHOWN_LINE: Final = 16_384
"""How much of what is wrong messages show; these are the bounds of the language's parser in Go."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of the check: `problem` (empty if there is none), the type of the expression, and its
    tree.
    """

    problem: str
    type: str
    tree: Node | None


def check_types(
    text: str,
    schemas: Mapping[str, Schema],
    others: Mapping[str, str],
    *,
    escape_names: bool = True,
    type_name: str = "selfType1",
    optional: Collection[str] = (),
    literals: bool = True,
    records: Records | None = None,
) -> Checked:
    """Check `text`; `schemas` gives the schema of each variable, `others` the names of the others' types.

    Field names are escaped by ``cel_name`` unless `escape_names` is off. Messages call the objects of a
    schema `type_name`. Variables named in `optional` hold an optional value of their schema. Lists and maps
    whose parts are of several types, and patterns that are none, only count if `literals` is set.
    Variables may have the types of `records`, too.
    """
    variables = {name: parse_type(kind) for name, kind in others.items()}
    for name, schema in schemas.items():
        kind = of_schema(schema, type_name)
        if kind is not None:
            variables[name] = optional_of(kind) if name in optional else kind
    try:
        tree = parse(parse_only(text))
    except ValueError as error:
        # An error without a position (the expression is too long or nested too deeply) is reported in the
        # parser's words.
        return Checked(_shown(text, _parser_problems(str(error), text)) or str(error), "", None)
    steps = _STEPS + _STEPS_PER_CHARACTER * len(text)
    checker = Checker(variables, escaped=escape_names, steps=steps, records=records)
    kind = checker.check(tree, literals=literals)
    return Checked(_shown(text, checker.problems), str(kind), tree)


def _parser_problems(message: str, text: str) -> list[Problem]:
    lines = text.split("\n")
    found = []
    for line, column, found_words in _PROBLEM.findall(message):
        words = re.sub(r" \[[A-Z_]+\]$", "", found_words)
        for pattern, ours in _WORDS:
            words = re.sub(f"^{pattern}$", ours, words)
        before = sum(len(each) + 1 for each in lines[: int(line) - 1])
        found.append((before + int(column) - 1, words))
    return found


def _shown(text: str, problems: list[Problem]) -> str:
    """The problems by their place in the text, each with the line that it is in."""
    by_place = sorted(problems, key=lambda each: each[0])
    shown = [_marked(text, at, words) for at, words in by_place[:_MOST_PROBLEMS]]
    if len(by_place) > _MOST_PROBLEMS:
        shown.append(f"{len(by_place) - _MOST_PROBLEMS} more errors were truncated")
    return "\n".join(shown)


def _marked(text: str, at: int, words: str) -> str:
    start = text.rfind("\n", 0, at) + 1
    line, column = text.count("\n", 0, at) + 1, at - start
    shown = text[start:].split("\n", 1)[0].replace("\t", " ")
    dots = "".join("." if char.isascii() else "\uff0e" for char in shown[:column]).ljust(column, ".")
    mark = "^" if shown[column : column + 1].isascii() else "\uff3e"
    where = f"ERROR: <input>:{line}:{column + 1}: {words}"
    if not text or len(shown) > _LONGEST_SHOWN_LINE:
        return where
    return f"{where}\n | {shown}\n | {dots}{mark}"

"""Expressions are checked against schemas before they run."""

from __future__ import annotations

import itertools
import time

import pytest

from kubecore.cel.type_checking import check_types
from kubecore.schema.model import custom_resource_schema

STRING = {"type": "string"}
ITEM = {"type": "object", "properties": {"k": STRING}}
SCHEMA = custom_resource_schema(
    {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "namespace": STRING,
            "fooBar": {"type": "object", "additionalProperties": STRING},
            "foo_bar": {"type": "object", "additionalProperties": STRING},
            "list": {"type": "array", "items": ITEM},
            "nested": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            "until": {"type": "string", "format": "date-time"},
            "port": {"x-kubernetes-int-or-string": True},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
)


@pytest.mark.parametrize(
    "text",
    [
        "self.n > 1",
        "self.__namespace__ == 'x'",
        "self.fooBar['a'] == self.foo_bar['a']",
        "self.list.all(x, x.k != '')",
        "self.nested[0][0] == 1",
        "self.until > timestamp('2020-01-01T00:00:00Z')",
        "self.port == 80 || self.port == 'http'",
        "self.namespace == 'x'",
        "self.list.all(i, x, x.k != string(i))",
        "self.n < 1.5",
        "'%s-%d'.format([self.namespace, 3]) == 'a-3'",
        "self.metadata.name == 'x'",
        "has(self.n) && self == oldSelf",
        "self.?list[?0].?k.orValue('') == ''",
    ],
)
def test_what_the_schema_allows_passes(text: str) -> None:
    assert check_types(text, {"self": SCHEMA, "oldSelf": SCHEMA}, {}).problem == ""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("self.none == 1", "ERROR: <input>:1:5: undefined field 'none'\n | self.none == 1\n | ....^"),
        ("self.list.all(x, x.z == 1)", "undefined field 'z'"),
        ("self.n == 'x'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.n.size()", "found no matching overload for 'size' applied to 'int.()'"),
        ("self.list == 1", "applied to '(list(selfType1.list.@idx), int)'"),
        ("self.n && true", ":1:5: expected type 'bool' but found 'int'"),
        ("[1, 'a'] == []", ":1:5: expected type 'int' but found 'string'"),
        ("self.nested.sum() == 1", "found no matching overload for 'sum' applied to 'list(list(int)).()'"),
        ("self.nested[0].all(x, x.y)", "type 'int' does not support field selection"),
        ("self.n.all(x, x > 1)", "expression of type 'int' cannot be range of a comprehension"),
        ("has(self)", ":1:5: invalid argument to has() macro"),
        ("self.nested.map(1, true)", ":1:17: argument is not an identifier"),
        ("self.namespace.matches('[')", ":1:24: invalid matches argument"),
        ("cel.bind(a, 1, a)", "undeclared reference to 'bind'"),
        ("self.open.anything.goes == 1", "undefined field 'anything'"),
        ("'é' ==\n1 + 'a'", ":2:3: found no matching overload for '_+_' applied to '(int, string)'"),
        ("other == 1", "undeclared reference to 'other'"),
    ],
)
def test_what_can_never_work_is_told(text: str, complaint: str) -> None:
    assert complaint in check_types(text, {"self": SCHEMA}, {}).problem


def _nested(literal: str, *, times: int) -> str:
    """Loops over literals that hold the outer loop's variable twice: the types double every time."""
    names = ["self", *(f"v{number}" for number in range(times))]
    rule = "true"
    for outer, name in reversed([*itertools.pairwise(names)]):
        rule = f"[{literal.format(outer)}].all({name}, {rule})"
    return rule


@pytest.mark.parametrize("literal", ["{{{0}: {0}}}", "{{1: {0}, 2: {0}}}", "[{0}, {0}]", "[{0}] + [{0}]"])
def test_types_that_double_with_every_loop_are_refused_at_once(literal: str) -> None:
    started = time.thread_time()
    check_types(_nested(literal, times=28), {"self": SCHEMA}, {})
    assert time.thread_time() - started < 1


def test_types_that_are_too_large_are_told() -> None:
    found = check_types(_nested("{{{0}: {0}}}", times=20), {"self": SCHEMA}, {})
    assert "the types of this expression are too large to be checked" in found.problem


def test_a_hundred_problems_are_shown_and_the_others_counted() -> None:
    found = check_types(" && ".join(f"a{number}" for number in range(130)), {}, {})
    assert found.problem.count("undeclared reference") == 100
    assert found.problem.endswith("\n30 more errors were truncated")


def test_a_long_line_is_not_repeated_for_each_of_its_problems() -> None:
    found = check_types(" && ".join(["true"] * 3_000 + ["a"]), {}, {})
    assert found.problem.startswith("ERROR: <input>:1:")
    assert "\n" not in found.problem

"""Estimates of what rules cost: what Kubernetes lets in gets in, bombs do not."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kindling.apiserver.crds.rule_checks import check_rules
from kubecore.json import JsonObject
from kubecore.objects.fields import FieldPath

_TOO_MUCH = "exceeds budget by factor of"


def _complaints(schema: JsonObject) -> list[str]:
    return [str(error.message()) for error in check_rules(schema, FieldPath("s"))]


def _with(rule: str, **schema: Any) -> JsonObject:
    return {**schema, "x-kubernetes-validations": [{"rule": rule}]}


@pytest.mark.parametrize(("longest", "most"), [(16, 909_090), (63, 333_333), (253, 94_339), (1024, 24_154)])
def test_the_longest_list_that_a_rule_may_search_is_the_one_of_kubernetes(longest: int, most: int) -> None:
    def complaints(items: int) -> list[str]:
        texts = {"type": "string", "maxLength": longest}
        return _complaints(_with("self.all(x, x.contains('gpu'))", type="array", items=texts, maxItems=items))

    assert complaints(most) == []
    assert _TOO_MUCH in complaints(most + 1)[0]


def test_an_unbounded_search_is_refused_in_the_words_of_kubernetes() -> None:
    schema = _with("self.all(x, x.contains('gpu'))", type="array", items={"type": "string"})
    advice = (
        "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and "
        "strings are declared)"
    )
    rule = "s.properties[tags].x-kubernetes-validations[0].rule: Forbidden:"
    total = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
    assert _complaints({"type": "object", "properties": {"tags": schema}}) == [
        f"{rule} estimated rule cost {_TOO_MUCH} more than 100x {advice}",
        f"{rule} contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
        f"s: Forbidden: {total} {_TOO_MUCH} more than 100x {advice}",
    ]


_TEXT = {"type": "string", "maxLength": 1000}


def _doubled(times: int) -> str:
    """A rule that makes a text of 2 ** `times` times the length of its value."""
    names = ["self", *(f"v{number}" for number in range(times))]
    rule = f"{names[-1]}.size() > 0"
    for former, name in reversed(list(itertools.pairwise(names))):
        rule = f"[{former} + {former}].all({name}, {rule})"
    return rule


@pytest.mark.parametrize(
    "schema",
    [
        _with(
            "self.all(x, self.all(y, self.all(z, x == y || y == z)))", type="array", items={"type": "integer"}
        ),
        _with(_doubled(20), **_TEXT),
        _with("self.map(x, self.map(y, self)).size() > 0", type="array", items=_TEXT, maxItems=10_000),
        _with("self.replace('', self).replace('', self).contains(self)", **_TEXT),
        _with("self.all(k, self.all(l, k != l))", type="object", additionalProperties={"type": "integer"}),
        {"type": "array", "items": {"type": "array", "items": _with("self.contains(self)", **_TEXT)}},
    ],
)
def test_bombs_are_refused(schema: JsonObject) -> None:
    assert any(
        _TOO_MUCH in complaint for complaint in _complaints({"type": "object", "properties": {"a": schema}})
    )


@pytest.mark.parametrize(
    "schema",
    [
        _with(
            "self.startsWith('a') && self.size() > 3 && self.matches('^[a-z]+$')",
            type="string",
            maxLength=253,
        ),
        _with("self.all(x, self.exists_one(y, x == y))", type="array", items=_TEXT, maxItems=60),
        _with("self == oldSelf", type="string"),
        _with("self.matches('(a+)+$')", type="string"),
        _with(
            "self.filter(x, x > 3).map(x, x * 2).all(x, x < 100)",
            type="array",
            items={"type": "integer"},
            maxItems=1000,
        ),
        _with(
            "self.all(k, k.startsWith('a') && self[k] > 3)",
            type="object",
            additionalProperties={"type": "integer"},
            maxProperties=1000,
        ),
        _with("[self + 'x'].all(a, a.size() < 10)", **_TEXT),
        _with(
            "(has(self.a) ? 1 : 0) + (has(self.b) ? 1 : 0) == 1",
            type="object",
            properties={"a": _TEXT, "b": _TEXT},
        ),
        _with("self.split('/').size() == 2 && self.lowerAscii() == self", **_TEXT),
    ],
)
def test_ordinary_rules_are_affordable(schema: JsonObject) -> None:
    assert _complaints({"type": "object", "properties": {"a": schema}}) == []


def test_a_rule_counts_as_often_as_it_can_be_evaluated() -> None:
    rule = _with("self.contains('x')", **_TEXT)
    complaints = _complaints({"type": "object", "properties": {"a": {"type": "array", "items": rule}}})
    assert "more than 100x" not in complaints[0]
    assert _complaints({"type": "array", "items": rule, "maxItems": 100}) == []


def test_texts_in_lists_that_a_rule_makes_have_no_known_size() -> None:
    texts = {"type": "array", "maxItems": 9, "items": {"type": "string", "maxLength": 9}}

    assert _complaints(_with("self.isSorted() && self.join(',') != ''", **texts)) == []
    for made in ("self.map(x, x).isSorted()", "self.map(x, x).join(',') != ''"):
        assert any(_TOO_MUCH in complaint for complaint in _complaints(_with(made, **texts)))

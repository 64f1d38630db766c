"""Definitions of custom resources made to stall whoever reads them, and objects for them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.support.hostile import Target, bystander_unharmed

from kubecore.json import JsonObject

pytestmark = pytest.mark.asyncio(loop_scope="module")

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_OBJECTS = "/apis/hostile.example/v1/namespaces/attacked"


def _definition(name: str, schema: JsonObject) -> JsonObject:
    names = {"plural": f"{name}s", "singular": name, "kind": name.title(), "listKind": f"{name.title()}List"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "hostile.example", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"{name}s.hostile.example"}, "spec": spec}


def _with(**properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties}


def _object(kind: str, **fields: Any) -> JsonObject:
    return {"apiVersion": "hostile.example/v1", "kind": kind, "metadata": {"name": "a"}, **fields}


async def _serve(target: Target, name: str, schema: JsonObject) -> None:
    reply = await target.request("POST", _DEFINITIONS, _definition(name, schema))
    assert reply.status == 201, reply.body[:300]
    for _ in range(200):
        if (await target.request("GET", f"{_OBJECTS}/{name}s")).status == 200:
            return
    raise AssertionError(f"{name}s are not served")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("((a{1000}){1000}){1000}", "invalid repeat count"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(" * 5000, "missing closing )"),
        ("a" * 100_000 + "(", "missing closing )"),
        (r"(a)\1", "invalid escape sequence"),
    ],
    ids=range(5),
)
async def test_patterns_that_cannot_be_matched_in_linear_time_are_refused(
    target: Target, pattern: str, words: str
) -> None:
    schema = _with(a={"type": "string", "pattern": pattern})
    reply = await target.request("POST", _DEFINITIONS, _definition("refused", schema))
    assert (reply.status, reply.reason) == (422, "Invalid"), reply.body[:300]
    assert f"error parsing regexp: {words}" in reply.message
    assert reply.seconds < 5


async def test_texts_that_make_other_engines_backtrack_are_refused_at_once(target: Target) -> None:
    patterns = ("^(a+)+$", "^(a|aa)+$", "^(.*)*b$", "^(a|a?)+$", "^((a*)*)*$")
    await _serve(
        target,
        "pattern",
        _with(**{f"p{i}": {"type": "string", "pattern": p} for i, p in enumerate(patterns)}),
    )
    text = "a" * 500_000 + "!"
    async with bystander_unharmed(target, growth_mib=150):
        for number in range(len(patterns)):
            body = _object("Pattern", **{f"p{number}": text})
            reply = await target.request("POST", f"{_OBJECTS}/patterns", body)
            assert reply.status == 422, reply.body[:100]
            assert reply.seconds < 10


async def test_rules_that_backtrack_elsewhere_are_evaluated_in_linear_time(target: Target) -> None:
    rules = [{"rule": f"self.{call}"} for call in ("find('(a+)+$') == ''", "matches('^(a|aa)+!$')")]
    await _serve(target, "search", _with(a={"type": "string", "x-kubernetes-validations": rules}))
    async with bystander_unharmed(target, growth_mib=100):
        reply = await target.request("POST", f"{_OBJECTS}/searchs", _object("Search", a="a" * 200_000 + "!"))
        assert reply.status == 201, reply.body[:300]
        assert reply.seconds < 10


def _doubling(times: int) -> str:
    names = ["self", *(f"v{number}" for number in range(times))]
    rule = f"{names[-1]}.size() > 0"
    for former, name in reversed(list(itertools.pairwise(names))):
        rule = f"[{former} + {former}].all({name}, {rule})"
    return rule


@pytest.mark.parametrize(
    ("rule", "schema"),
    [
        ("self.all(x, self.all(y, x.contains(y)))", {"type": "array", "items": {"type": "string"}}),
        ("self.all(x, self.all(y, self.all(z, x < y)))", {"type": "array", "items": {"type": "integer"}}),
        (_doubling(25), {"type": "string", "maxLength": 1000}),
        (
            "self.map(x, self).size() > 0 && self.all(x, self.exists(y, y == x))",
            {"type": "array", "items": {}},
        ),
        ("self.all(k, self.all(l, k == l))", {"type": "object", "additionalProperties": {"type": "string"}}),
    ],
    ids=range(5),
)
async def test_rules_beyond_the_cost_budget_are_refused(
    target: Target, rule: str, schema: JsonObject
) -> None:
    if schema.get("items") == {}:
        schema = {**schema, "items": {"type": "string"}}
    bomb = _with(a={**schema, "x-kubernetes-validations": [{"rule": rule}]})
    reply = await target.request("POST", _DEFINITIONS, _definition("bomb", bomb))
    assert (reply.status, reply.reason) == (422, "Invalid"), reply.body[:300]
    assert "Forbidden: estimated rule cost exceeds budget by factor of" in reply.message
    assert reply.seconds < 5


async def test_rules_whose_types_double_with_every_loop_hold_up_nobody(target: Target) -> None:
    rule = "true"
    for number in range(25, 0, -1):
        rule = f"[{{v{number - 1}: v{number - 1}}}].all(v{number}, {rule})"
    rule = f"[self].all(v0, {rule})"
    schema = _with(a={"type": "integer", "x-kubernetes-validations": [{"rule": rule}] * 10})
    async with bystander_unharmed(target, growth_mib=100):
        reply = await target.request("POST", _DEFINITIONS, _definition("types", schema))
        assert (reply.status, reply.reason) == (422, "Invalid"), reply.body[:300]
        assert reply.seconds < 5


@pytest.mark.parametrize(
    "rule", ["(" * 300 + "true" + ")" * 300, "+".join(["1"] * 20_000) + " > 0", "true // " + "x" * 100_000]
)
async def test_rules_too_long_or_too_deep_to_parse_are_refused(target: Target, rule: str) -> None:
    schema = _with(a={"type": "integer", "x-kubernetes-validations": [{"rule": rule}]})
    reply = await target.request("POST", _DEFINITIONS, _definition("deep", schema))
    assert (reply.status, reply.reason) == (422, "Invalid"), reply.body[:300]
    assert "compilation failed" in reply.message


async def test_definitions_as_big_as_they_may_be_hold_up_nobody(target: Target) -> None:
    nested: JsonObject = {"type": "string"}
    for _ in range(100):
        nested = _with(a=nested)
    wide = _with(**{f"p{number}": {"type": "string", "pattern": "^(a+)+$"} for number in range(15_000)})
    async with bystander_unharmed(target, growth_mib=500):
        for name, schema in (("nested", nested), ("wide", wide)):
            reply = await target.request("POST", _DEFINITIONS, _definition(name, schema))
            assert reply.status == 201, reply.body[:300]
        deeper: JsonObject = {"type": "string"}
        for _ in range(130):
            deeper = _with(a=deeper)
        reply = await target.request("POST", _DEFINITIONS, _definition("deeper", deeper))
        assert (reply.status, reply.reason) == (400, "BadRequest"), reply.body[:300]
        document = await target.request("GET", "/openapi/v3/apis/hostile.example/v1")
        assert document.status == 200
        values = {f"p{number}": "a" * 30 + "!" for number in range(15_000)}
        reply = await target.request("POST", f"{_OBJECTS}/wides", _object("Wide", **values))
        assert reply.status == 422
        assert "and 14000 more]" in reply.message


async def test_objects_without_a_schema_are_limited_in_depth(target: Target) -> None:
    await _serve(target, "open", {"type": "object", "x-kubernetes-preserve-unknown-fields": True})

    def nested(depth: int) -> JsonObject:
        value: JsonObject = {}
        for _ in range(depth):
            value = {"a": value}
        return value

    async with bystander_unharmed(target, growth_mib=300):
        assert (
            await target.request("POST", f"{_OBJECTS}/opens", _object("Open", x=nested(240)))
        ).status == 201
        for depth in (255, 900, 5000):
            text = b'{"apiVersion":"hostile.example/v1","kind":"Open","metadata":{"name":"b"},"x":'
            text += b'{"a":' * depth + b"1" + b"}" * depth + b"}"
            reply = await target.request("POST", f"{_OBJECTS}/opens", text)
            assert (reply.status, reply.reason) == (400, "BadRequest"), (depth, reply.body[:300])
        many = _object("Open", x={f"k{i}": {"a": [1, {"b": 2}]} for i in range(50_000)})
        many["metadata"] = {"name": "many"}
        assert (await target.request("POST", f"{_OBJECTS}/opens", many)).status == 201

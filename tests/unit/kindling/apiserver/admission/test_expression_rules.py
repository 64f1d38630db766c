"""Checking the expressions of policies when they are written."""

from __future__ import annotations

from typing import Any

import pytest

from kindling.apiserver.kinds.admissionregistration.validation import (
    VALIDATING_WEBHOOKS,
    validate_mutating_policy,
    validate_validating_policy,
)

_RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}


def problems(name: str = "p", **spec: Any) -> list[str]:
    policy = {"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": [_RULE]}, **spec}}
    return [f"{problem.field}: {problem.detail}" for problem in validate_validating_policy(policy)]


def test_a_variable_has_the_type_of_its_expression() -> None:
    variables = [
        {"name": "replicas", "expression": "object.spec.replicas"},
        {"name": "isOdd", "expression": "variables.replicas % 2 == 1"},
        {"name": "words", "expression": "['a', 'b']"},
        {"name": "text", "expression": "variables.words.join('-')"},
    ]
    validations = [
        {"expression": "variables.isOdd", "messageExpression": "variables.text"},
        {"expression": "variables.replicas > 1"},
    ]
    annotations = [{"key": "seen", "valueExpression": "variables.text"}]

    assert problems(variables=variables, validations=validations, auditAnnotations=annotations) == []


def test_a_validation_that_gives_no_boolean_for_its_variables_is_refused() -> None:
    variables = [{"name": "any", "expression": "object.spec"}, {"name": "size", "expression": "1 + 1"}]
    validations = [{"expression": "variables.any"}, {"expression": "variables.size"}]

    found = problems(variables=variables, validations=validations)

    assert found == [
        "spec.validations[0].expression: must evaluate to bool but got dyn",
        "spec.validations[1].expression: must evaluate to bool but got int",
    ]


def test_a_variable_that_cannot_be_compiled_is_the_only_thing_wrong() -> None:
    variables = [{"name": "broken", "expression": "1 +"}]
    found = problems(variables=variables, validations=[{"expression": "variables.broken == 1"}])

    assert len(found) == 1
    assert found[0].startswith("spec.variables[0].expression: compilation failed: ")


def test_only_variables_defined_before_can_be_used() -> None:
    variables = [
        {"name": "first", "expression": "variables.second == 1"},
        {"name": "second", "expression": "object.a"},
    ]
    validations = [
        {"expression": "has(object.b) &&\n  variables.first && variables.none == 'variables.text'"}
    ]

    found = problems(variables=variables, validations=validations)

    assert found == [
        "spec.variables[0].expression: compilation failed: ERROR: <input>:1:10: undefined field 'second'\n"
        " | variables.second == 1\n | .........^",
        "spec.validations[0].expression: compilation failed: ERROR: <input>:2:31: undefined field 'none'\n"
        " |   variables.first && variables.none == 'variables.text'\n | ..............................^",
    ]


def fields(found: list[str]) -> list[str]:
    return [problem.partition(":")[0] for problem in found]


def test_what_is_wrong_with_an_expression_is_told_where_the_expression_is() -> None:
    condition = {"name": "a b", "expression": "a"}
    bad = {"expression": "a", "messageExpression": " ", "message": " "}
    found = problems(matchConditions=[condition], variables=[{"name": "1"}], validations=[bad])
    assert fields(found) == [
        "spec.matchConditions[0].expression",
        "spec.matchConditions[0].name",
        "spec.variables[0].name",
        "spec.variables[0].expression",
        "spec.validations[0].expression",
        "spec.validations[0].messageExpression",
        "spec.validations[0].message",
    ]


def test_conditions_of_webhooks_are_compiled_in_their_place() -> None:
    webhook = {
        "name": "a.b.c",
        "clientConfig": {"url": "https://a"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "matchConditions": [{"name": "a b", "expression": "a"}],
    }
    found = [problem.field for problem in VALIDATING_WEBHOOKS({"webhooks": [webhook]})]
    assert found == ["webhooks[0].matchConditions[0].expression", "webhooks[0].matchConditions[0].name"]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ([{"key": "a", "valueExpression": "'x'"}] * 2, ["spec.auditAnnotations[1].key"]),
        ([{"key": "a", "valueExpression": f"'{'x' * 6000}'"}], ["spec.auditAnnotations[0].valueExpression"]),
        ([{"key": "a b"}], ["spec.auditAnnotations[0].key", "spec.auditAnnotations[0].valueExpression"]),
        ([{"key": f"k{n}", "valueExpression": "'x'"} for n in range(21)], ["spec.auditAnnotations"]),
    ],
)
def test_annotations_are_few_short_and_named_once(annotations: list[Any], expected: list[str]) -> None:
    assert fields(problems(auditAnnotations=annotations)) == expected


def test_a_policy_without_a_name_annotates_nothing() -> None:
    annotation = {"key": "a", "valueExpression": "null"}
    assert problems(name="", auditAnnotations=[annotation]) == [
        "spec.auditAnnotations[0].key: requires metadata.name be non-empty"
    ]


def test_a_mutation_is_compiled_before_what_comes_after_it() -> None:
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": "1 +"}}
    spec = {"matchConstraints": {"resourceRules": [_RULE]}, "mutations": [mutation]}
    found = [each.field for each in validate_mutating_policy({"metadata": {"name": "p"}, "spec": spec})]
    assert found == ["spec.mutations[0].jsonPatch.expression", "spec.reinvocationPolicy"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ({"apiVersion": "a/b/c", "kind": "K"}, ["apiVersion: unexpected GroupVersion string: a/b/c"]),
        ({"apiVersion": "a/", "kind": "K"}, ["apiVersion: version must be specified"]),
        ({"apiVersion": "A/v1", "kind": "K"}, ["apiVersion: a lowercase RFC 1123 subdomain"]),
        ({"apiVersion": "a/1", "kind": "K"}, ["apiVersion: a DNS-1035 label"]),
        ({"apiVersion": "v1", "kind": "K_"}, ["kind: may have mixed case, but should otherwise match"]),
        ({"apiVersion": "v1", "kind": "Kind"}, []),
    ],
)
def test_a_parameter_is_of_a_kind(kind: dict[str, str], expected: list[str]) -> None:
    found = problems(paramKind=kind, validations=[{"expression": "true"}])
    assert len(found) == len(expected)
    for each, start in zip(found, expected, strict=True):
        assert each.startswith(f"spec.paramKind.{start}")

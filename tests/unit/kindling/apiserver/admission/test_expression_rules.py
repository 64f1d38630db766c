"""Checking the expressions of policies when they are written."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.admission.expression_rules import policy_expressions


def problems(**spec: Any) -> list[str]:
    return [
        f"{problem.field}: {problem.detail}"
        for problem in policy_expressions({"metadata": {"name": "p"}, "spec": spec})
    ]


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

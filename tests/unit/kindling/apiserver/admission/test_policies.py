"""Admission policies: expressions that refuse, warn, and change."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.admission import Cluster

from kindling.apiserver.admission.chain import Chain
from kindling.apiserver.admission.mutating_policies import MutatingPolicies
from kindling.apiserver.admission.type_checking import expression_warnings
from kindling.apiserver.admission.validating_policies import ValidatingPolicies
from kindling.apiserver.kinds.admissionregistration.strategy import (
    MUTATING_POLICIES,
    MUTATING_POLICY_BINDINGS,
)
from kindling.apiserver.kinds.served import builtin_definitions
from kindling.apiserver.registry.admission import AdmissionAttributes
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
)

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}


def policy(**spec: Any) -> JsonObject:
    constraints = {"resourceRules": [RULE], "namespaceSelector": {}, "objectSelector": {}}
    return {"metadata": {"name": "p"}, "spec": {"matchConstraints": constraints, **spec}}


def binding(**spec: Any) -> JsonObject:
    return {
        "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"], **spec},
    }


class Setup:
    """A cluster with one policy and one binding."""

    def __init__(self, made: JsonObject, bound: JsonObject, *, mutating: bool = False) -> None:
        self.cluster = Cluster()
        self.cluster.objects.put(NAMESPACES, {"metadata": {"name": "ns", "labels": {"team": "a"}}})
        self.validating = ValidatingPolicies(self.cluster.environment)
        self.mutating = MutatingPolicies(self.cluster.environment)
        kinds = (
            (MUTATING_POLICIES, MUTATING_POLICY_BINDINGS)
            if mutating
            else (VALIDATING_ADMISSION_POLICIES, VALIDATING_ADMISSION_POLICY_BINDINGS)
        )
        self.cluster.objects.put(kinds[0], made)
        self.cluster.objects.put(kinds[1], bound)

    def request(self, data: JsonObject | None = None, **more: Any) -> AdmissionAttributes:
        return self.cluster.request(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": data or {}}, **more)

    async def refusal(self, request: AdmissionAttributes) -> StatusError:
        with pytest.raises(StatusError) as caught:
            await self.validating.validate(request)
        return caught.value


DENIED = "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "


@pytest.mark.parametrize(
    ("validation", "message", "code"),
    [
        ({"expression": "false"}, "failed expression: false", 422),
        ({"expression": "false", "message": "no"}, "no", 422),
        ({"expression": "false", "messageExpression": "'not ' + object.metadata.name"}, "not c", 422),
        ({"expression": "false", "message": "no", "reason": "Forbidden"}, "no", 403),
        (
            {"expression": "object.none == 1"},
            "expression 'object.none == 1' resulted in error: no such key: none",
            422,
        ),
    ],
)
async def test_a_false_expression_refuses(validation: JsonObject, message: str, code: int) -> None:
    setup = Setup(policy(validations=[validation]), binding())
    error = await setup.refusal(setup.request())
    assert (error.message, error.code) == (DENIED + message, code)
    assert (error.details or {})["causes"] == [{"message": DENIED.partition("forbidden: ")[2] + message}]


EXPENSIVE = "[1,2,3,4,5,6,7,8,9,0]"
for name in "abcde":
    EXPENSIVE = f"[1,2,3,4,5,6,7,8,9,0].map({name}, {EXPENSIVE})"
OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"


async def test_one_expression_may_cost_no_more_than_in_kubernetes() -> None:
    text = f"{EXPENSIVE}.size() > 0"
    setup = Setup(policy(validations=[{"expression": text}]), binding())

    error = await setup.refusal(setup.request())

    assert error.message == (
        f"{DENIED}expression '{text}' resulted in error: operation cancelled: actual cost limit exceeded"
    )


async def test_all_expressions_of_a_policy_share_a_budget() -> None:
    expression = "[1, 2, 3].all(x, object.data.all(k, object.data.all(l, k + l != '')))"
    setup = Setup(policy(validations=[{"expression": expression}] * 30), binding())
    data = {f"key{number}": "" for number in range(150)}

    error = await setup.refusal(setup.request(data))

    assert error.message == DENIED + OUT_OF_BUDGET


async def test_match_conditions_have_a_smaller_budget() -> None:
    text = "[1, 2, 3].all(x, object.data.all(k, object.data.all(l, k + l != '')))"
    conditions = [{"name": f"c{number}", "expression": text} for number in range(8)]
    setup = Setup(policy(validations=[{"expression": "true"}], matchConditions=conditions), binding())

    error = await setup.refusal(setup.request({f"key{number}": "" for number in range(150)}))

    assert error.message == DENIED + OUT_OF_BUDGET


async def test_variables_the_namespace_and_the_user_can_be_asked_for() -> None:
    expressions = [
        "variables.double == 2",
        "namespaceObject.metadata.labels.team == 'a'",
        "request.userInfo.username == 'ann'",
        "request.namespace == 'ns'",
        "authorizer.group('').resource('secrets').check('get').allowed()",
    ]
    variables = [
        {"name": "size", "expression": "object.data.size()"},
        {"name": "double", "expression": "variables.size * 2"},
    ]
    validations = [{"expression": text} for text in expressions]
    setup = Setup(policy(validations=validations, variables=variables), binding())
    await setup.validating.validate(setup.request({"a": "1"}))
    setup.cluster.may = lambda query: query.resource != "secrets"
    error = await setup.refusal(setup.request({"a": "1"}))
    assert error.message.endswith(f"failed expression: {expressions[-1]}")


async def test_conditions_choose_what_is_judged() -> None:
    conditions = [{"name": "m", "expression": "'judged' in object.data"}]
    setup = Setup(policy(validations=[{"expression": "false"}], matchConditions=conditions), binding())
    await setup.validating.validate(setup.request({"other": ""}))
    await setup.refusal(setup.request({"judged": ""}))


async def test_a_binding_may_only_warn() -> None:
    setup = Setup(
        policy(validations=[{"expression": "false", "message": "no"}]), binding(validationActions=["Warn"])
    )
    request = setup.request()
    await setup.validating.validate(request)
    assert request.ctx.warnings == [
        "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no"
    ]


async def test_a_binding_narrows_its_policy() -> None:
    elsewhere = {"namespaceSelector": {"matchLabels": {"team": "b"}}, "objectSelector": {}}
    setup = Setup(policy(validations=[{"expression": "false"}]), binding(matchResources=elsewhere))
    await setup.validating.validate(setup.request())


async def test_parameters_come_from_the_binding() -> None:
    made = policy(
        validations=[{"expression": "object.data.size() <= int(params.data.max)"}],
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
    )
    reference = {"name": "limits", "parameterNotFoundAction": "Deny"}
    setup = Setup(made, binding(paramRef=reference))
    error = await setup.refusal(setup.request())
    assert error.message.endswith("no params found for policy binding with `Deny` parameterNotFoundAction")
    limits = {"metadata": {"name": "limits", "namespace": "ns"}, "data": {"max": "1"}}
    setup.cluster.objects.put(CONFIG_MAPS, limits)
    await setup.validating.validate(setup.request({"a": ""}))
    await setup.refusal(setup.request({"a": "", "b": ""}))


async def test_a_mutating_policy_applies_configurations_and_patches() -> None:
    applied = "Object{metadata: Object.metadata{labels: Object.metadata.labels{stamped: 'yes'}}}"
    patched = "[JSONPatch{op: 'add', path: '/data/made', value: object.metadata.labels.stamped}]"
    mutations = [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": applied}},
        {"patchType": "JSONPatch", "jsonPatch": {"expression": patched}},
    ]
    setup = Setup(policy(mutations=mutations), binding(), mutating=True)
    request = setup.request({"k": "v"})
    await setup.mutating.mutate(request)
    made = request.object or {}
    assert made["metadata"]["labels"] == {"stamped": "yes"}
    assert made["data"] == {"k": "v", "made": "yes"}


@pytest.mark.parametrize(("wish", "expected"), [("Never", "1"), ("IfNeeded", "11")])
async def test_a_mutating_policy_runs_again_only_if_it_asks_for_it(wish: str, expected: str) -> None:
    text = "[JSONPatch{op: 'add', path: '/data/n', value: object.data.?n.orValue('') + '1'}]"
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": text}}]
    made = policy(mutations=mutations, reinvocationPolicy=wish)
    setup = Setup(made, binding(), mutating=True)

    other = text.replace("/data/n", "/data/other").replace("?n", "?none")
    later = policy(mutations=[{"patchType": "JSONPatch", "jsonPatch": {"expression": other}}])
    setup.cluster.objects.put(MUTATING_POLICIES, {**later, "metadata": {"name": "q"}})
    second = {**binding(policyName="q"), "metadata": {"name": "c"}}
    setup.cluster.objects.put(MUTATING_POLICY_BINDINGS, second)
    request = setup.request({"k": "v"})
    await Chain([setup.mutating]).mutate(request)
    assert request_data(request)["n"] == expected


def request_data(request: AdmissionAttributes) -> JsonObject:
    data: JsonObject = (request.object or {})["data"]
    return data


async def test_a_mutation_that_fails_refuses_unless_failures_are_ignored() -> None:
    broken = [{"patchType": "JSONPatch", "jsonPatch": {"expression": "object.none"}}]
    setup = Setup(policy(mutations=broken), binding(), mutating=True)
    with pytest.raises(StatusError, match="policy 'p' with binding 'b' denied request: no such key: none"):
        await setup.mutating.mutate(setup.request())
    setup = Setup(policy(mutations=broken, failurePolicy="Ignore"), binding(), mutating=True)
    await setup.mutating.mutate(setup.request())


async def test_variables_that_double_do_not_become_an_endless_object() -> None:
    variables = [{"name": "v0", "expression": "'x'"}]
    for number in range(40):
        last = f"variables.v{number}"
        variables.append({"name": f"v{number + 1}", "expression": f"[{last}, {last}]"})
    text = "[JSONPatch{op: 'add', path: '/data/x', value: variables.v40}]"
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": text}}]
    setup = Setup(policy(variables=variables, mutations=mutations), binding(), mutating=True)
    with pytest.raises(StatusError, match="denied request: operation cancelled: actual cost limit exceeded"):
        await setup.mutating.mutate(setup.request())


async def test_mutations_that_double_the_object_end_at_the_size_of_a_request() -> None:
    text = "Object{data: Object.data{a: object.data.a + object.data.a}}"
    mutations = [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}] * 30
    setup = Setup(policy(mutations=mutations), binding(), mutating=True)
    with pytest.raises(StatusError, match="denied request: operation cancelled: actual cost limit exceeded"):
        await setup.mutating.mutate(setup.request({"a": "x" * 100}))


async def test_a_variable_without_value_matters_only_where_it_is_needed() -> None:
    variables = [
        {"name": "has", "expression": "'k' in object.data"},
        {"name": "value", "expression": "object.data.k"},
    ]
    guarded = policy(
        validations=[{"expression": "!variables.has || variables.value == 'v'"}], variables=variables
    )
    setup = Setup(guarded, binding())
    await setup.validating.validate(setup.request({"other": ""}))
    setup = Setup(
        policy(validations=[{"expression": "variables.value == 'v'"}], variables=variables), binding()
    )
    error = await setup.refusal(setup.request({"other": ""}))
    assert error.message == DENIED + (
        "expression 'variables.value == 'v'' resulted in error: "
        'composited variable "value" fails to evaluate: no such key: k'
    )


def test_expressions_that_cannot_fit_the_named_kinds_are_told() -> None:
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"]}
    validations = [
        {"expression": "object.spec.replicas > '1'"},
        {"expression": "object.spec.nothing == 1"},
        {"expression": "object.spec.template.spec.containers.all(c, c.image != '') && request.name != ''"},
    ]
    checked = {"spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": validations}}
    kind = "apps/v1, Kind=Deployment: ERROR: <input>:1:"
    assert list(expression_warnings(checked, builtin_definitions())) == [
        {
            "fieldRef": "spec.validations[0].expression",
            "warning": f"{kind}22: found no matching overload for '_>_' applied to '(int, string)'\n"
            f" | object.spec.replicas > '1'\n | {'.' * 21}^\n",
        },
        {
            "fieldRef": "spec.validations[1].expression",
            "warning": f"{kind}12: undefined field 'nothing'\n | object.spec.nothing == 1\n | {'.' * 11}^\n",
        },
    ]

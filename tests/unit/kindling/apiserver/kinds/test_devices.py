"""Device classes, claims, templates and slices: defaults, refusals, what never changes, warnings, tables."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import pytest

from kindling.apiserver.kinds.resource import checks, slices, strategy, validation
from kubecore.json import JsonObject
from kubecore.objects.fields import FieldError

DEFINITIONS = {each.resource.plural: each for each in strategy.definitions()}
EXACTLY: JsonObject = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}


def claim(*requests: JsonObject, **devices: object) -> JsonObject:
    wanted = list(requests) or [{"name": "r", "exactly": EXACTLY}]
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": wanted, **devices}}}


def told(errors: Iterable[FieldError]) -> list[str]:
    return [error.message() for error in errors]


def test_a_request_is_for_one_device_and_tolerations_compare_for_equality() -> None:
    obj = claim({"name": "r", "exactly": {"deviceClassName": "gpu", "tolerations": [{"key": "a"}]}})
    strategy.ClaimStrategy().complete(obj)
    exactly = obj["spec"]["devices"]["requests"][0]["exactly"]
    assert (exactly["allocationMode"], exactly["count"]) == ("ExactCount", 1)
    assert exactly["tolerations"] == [{"key": "a", "operator": "Equal"}]


def test_a_request_for_all_devices_gets_no_count() -> None:
    obj = claim({"name": "r", "firstAvailable": [{"name": "a", "allocationMode": "All"}]})
    strategy.ClaimStrategy().complete(obj)
    assert "count" not in obj["spec"]["devices"]["requests"][0]["firstAvailable"][0]


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (claim({"name": "r"}), "spec.devices.requests[0]: Required value: exactly one of `exactly` or"),
        (
            claim({"name": "r", "exactly": EXACTLY, "firstAvailable": [{"name": "a"}]}),
            "spec.devices.requests[0]: Invalid value: null: exactly one of",
        ),
        (
            claim({"name": "r", "exactly": {**EXACTLY, "allocationMode": "All"}}),
            "spec.devices.requests[0].exactly.count: Invalid value: 1: must not be specified when",
        ),
        (
            claim({"name": "r", "exactly": {**EXACTLY, "allocationMode": "Some"}}),
            'spec.devices.requests[0].exactly.allocationMode: Unsupported value: "Some"',
        ),
        (
            claim({"name": "r", "exactly": {**EXACTLY, "selectors": [{"cel": {"expression": "1 +"}}]}}),
            'spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: "1 +": compilation',
        ),
        (
            claim({"name": "r", "exactly": EXACTLY}, {"name": "r", "exactly": EXACTLY}),
            'spec.devices.requests[1]: Duplicate value: "r"',
        ),
        (
            claim(*({"name": f"r{number}", "exactly": EXACTLY} for number in range(33))),
            "spec.devices.requests: Too many: 33: must have at most 32 items",
        ),
        (
            claim(constraints=[{"requests": ["other"], "matchAttribute": "example.com/a"}]),
            'spec.devices.constraints[0].requests[0]: Invalid value: "other": must be the name of a request',
        ),
        (
            claim(constraints=[{"matchAttribute": "numa"}]),
            'spec.devices.constraints[0].matchAttribute: Invalid value: "numa": a fully qualified name must',
        ),
        (
            claim(config=[{"opaque": {"driver": "d", "parameters": 5}}]),
            "spec.devices.config[0].opaque.parameters: Invalid value: "
            '"<value omitted>": must be a valid JSON object',
        ),
    ],
)
def test_a_claim_that_cannot_be_meant_is_refused(obj: JsonObject, expected: str) -> None:
    found = told(validation.validate_claim(obj))
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_a_claim_without_requests_is_fine() -> None:
    assert told(validation.validate_claim({"metadata": {}, "spec": {}})) == []


def test_the_spec_of_a_claim_never_changes_and_is_quoted_in_full() -> None:
    old = claim()
    new = copy.deepcopy(old)
    new["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
    (message,) = told(validation.validate_claim_update(new, old))
    assert message.endswith('"Constraints":null,"Config":null}}: field is immutable')
    assert '"Count":2,"AdminAccess":null' in message
    assert told(validation.validate_claim_update(old, old)) == []


def allocated(device: str) -> JsonObject:
    result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": device}
    return {**claim(), "status": {"allocation": {"devices": {"results": [result]}}}}


def test_an_allocation_is_of_requests_of_the_claim_and_stays() -> None:
    assert told(validation.validate_claim_status(allocated("a"), claim())) == []
    (message,) = told(validation.validate_claim_status(allocated("b"), allocated("a")))
    assert message.startswith("status.allocation: Invalid value")
    assert message.endswith("field is immutable")
    wrong = allocated("a")
    wrong["status"]["allocation"]["devices"]["results"][0]["request"] = "x"
    (message,) = told(validation.validate_claim_status(wrong, claim()))
    assert message.startswith('status.allocation.devices.results[0].request: Invalid value: "x"')


def test_nobody_may_use_a_claim_that_is_not_allocated() -> None:
    user = {"resource": "pods", "name": "p", "uid": "u"}
    new = {**claim(), "status": {"reservedFor": [user]}}
    assert told(validation.validate_claim_status(new, claim())) == [
        "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"
    ]


@pytest.mark.parametrize("plural", ["resourceclaims", "resourceclaimtemplates"])
def test_a_new_claim_is_told_that_nothing_allocates_devices(plural: str) -> None:
    rules = DEFINITIONS[plural].strategy.rules  # type: ignore[attr-defined]
    assert list(rules.warnings(claim(), None)) == [strategy.NOT_ALLOCATED]
    assert list(rules.warnings(claim(), claim())) == []


def test_the_table_tells_the_state_of_a_claim() -> None:
    table = DEFINITIONS["resourceclaims"].table
    assert table is not None
    used = allocated("a")
    used["status"]["reservedFor"] = [{"uid": "u"}]
    used["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert [table.cells(obj)[1] for obj in (claim(), allocated("a"), used)] == [
        "pending",
        "allocated",
        "deleted,allocated,reserved",
    ]


def pool(**spec: object) -> JsonObject:
    named = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": "s"}, "spec": {"driver": "d.example.com", "pool": named, **spec}}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (pool(), "spec: Required value: exactly one of `nodeName`"),
        (
            pool(nodeName="n", allNodes=True),
            'spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of',
        ),
        (pool(allNodes=True, devices=[{"name": "A"}]), 'spec.devices[0].name: Invalid value: "A"'),
        (
            pool(allNodes=True, devices=[{"name": "a", "attributes": {"x": {"int": 1, "bool": True}}}]),
            "spec.devices[0].attributes[x]: Invalid value:",
        ),
        (
            pool(allNodes=True, devices=[{"name": "a", "attributes": {"v": {"version": "1.x"}}}]),
            'spec.devices[0].attributes[v].version: Invalid value: "1.x": must be a string compatible with',
        ),
        (
            pool(allNodes=True, devices=[{"name": "a", "bindingConditions": ["Ready"]}]),
            "spec.devices[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are",
        ),
        (
            pool(
                allNodes=True,
                devices=[{"name": "a", "bindingConditions": ["A"], "bindingFailureConditions": ["A"]}],
            ),
            'spec.devices[0].bindingFailureConditions[0]: Invalid value: "A": bindingFailureConditions must',
        ),
        (
            pool(allNodes=True, devices=[{"name": "a", "nodeName": "n"}]),
            "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set",
        ),
    ],
)
def test_a_slice_that_contradicts_itself_is_refused(obj: JsonObject, expected: str) -> None:
    found = told(slices.validate_slice(obj))
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_a_slice_stays_with_its_driver_pool_and_node() -> None:
    new, old = pool(nodeName="n"), pool(nodeName="m")
    assert told(slices.validate_slice_update(new, old)) == [
        'spec.nodeName: Invalid value: "n": field is immutable'
    ]


def test_expressions_that_would_keep_the_server_busy_are_not_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []
    monkeypatch.setattr("kubecore.cel.Environment.compile", lambda _, text: compiled.append(text))
    selectors = [{"cel": {"expression": "device.driver == 'd' || " * 400 + "true"}}] * 8
    obj = claim({"name": "r", "exactly": {**EXACTLY, "selectors": selectors}})
    text = "spec: Forbidden: expressions of selectors may have 65536 bytes together"
    assert told(validation.validate_claim(obj)) == [text]
    template = {"metadata": {"name": "t"}, "spec": {"spec": obj["spec"]}}
    assert told(validation.validate_template(template)) == [text]
    assert compiled == []


def test_configuration_of_a_driver_may_be_deep() -> None:
    parameters: JsonObject = {}
    for _ in range(5000):
        parameters = {"a": parameters}
    opaque = {"opaque": {"driver": "d.example.com", "parameters": parameters}}
    judged = checks.bounded(lambda _: [])
    assert judged({"spec": {"devices": {"config": [opaque]}}}) == []

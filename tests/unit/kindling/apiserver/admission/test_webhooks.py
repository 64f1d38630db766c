"""Webhooks: who is asked, what is sent, what the answers do."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from tests.support.admission import Cluster, StubWebhooks

from kindling.apiserver.admission.chain import Chain
from kindling.apiserver.admission.webhook_client import WebhookCallError
from kindling.apiserver.admission.webhooks import MutatingWebhooks, ValidatingWebhooks
from kindling.apiserver.registry.admission import AdmissionAttributes
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.resources import (
    CONFIG_MAPS,
    EVENTS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    ResourceType,
)

FAILED = 'Internal error occurred: failed calling webhook "v.example.com": '
ALLOW: JsonObject = {"allowed": True}


def patch(*operations: JsonObject) -> JsonObject:
    encoded = base64.b64encode(orjson.dumps(list(operations))).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def add(path: str, value: Any) -> JsonObject:
    return {"op": "add", "path": path, "value": value}


def configuration(name: str, url: str = "", **more: Any) -> JsonObject:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    webhook = {
        "name": f"{name}.example.com",
        "clientConfig": {"url": url or name},
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "namespaceSelector": {},
        "objectSelector": {},
        **more,
    }
    return {"metadata": {"name": name}, "webhooks": [webhook]}


class Setup:
    """A cluster with webhooks."""

    def __init__(self, **answers: Any) -> None:
        self.cluster = Cluster()
        self.cluster.objects.put(NAMESPACES, {"metadata": {"name": "ns", "labels": {"team": "a"}}})
        made = {url: (answer if callable(answer) else _always(answer)) for url, answer in answers.items()}
        self.client = StubWebhooks(made)
        self.mutating = MutatingWebhooks(self.cluster.environment, self.client)
        self.validating = ValidatingWebhooks(self.cluster.environment, self.client)

    def configure(self, resource: ResourceType, *configurations: JsonObject) -> None:
        for each in configurations:
            self.cluster.objects.put(resource, each)

    def request(self, obj: JsonObject | None = None, **more: Any) -> AdmissionAttributes:
        return self.cluster.request(
            CONFIG_MAPS, obj or {"metadata": {"name": "c"}, "data": {"k": "v"}}, **more
        )

    @property
    def asked(self) -> list[str]:
        return [url for url, _ in self.client.asked]


def _always(answer: Any) -> Any:
    return lambda request: answer


async def test_a_patch_changes_the_object_for_the_next_webhook() -> None:
    setup = Setup(
        a=patch(add("/data/who", "a")), b=patch({"op": "replace", "path": "/data/who", "value": "b"})
    )
    setup.configure(MUTATING_WEBHOOK_CONFIGURATIONS, configuration("b"), configuration("a"))
    request = setup.request()
    await setup.mutating.mutate(request)
    assert setup.asked == ["a", "b"]
    assert setup.client.asked[1][1]["object"]["data"] == {"k": "v", "who": "a"}
    assert (request.object or {})["data"] == {"k": "v", "who": "b"}


async def test_the_review_tells_who_does_what() -> None:
    setup = Setup(v={**ALLOW, "warnings": ["careful"], "auditAnnotations": {"k": "v"}})
    setup.configure(VALIDATING_WEBHOOK_CONFIGURATIONS, configuration("v"))
    request = setup.request()
    await setup.validating.validate(request)
    _, sent = setup.client.asked[0]
    sent.pop("uid"), sent.pop("object")
    assert sent == {
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "c",
        "namespace": "ns",
        "operation": "CREATE",
        "userInfo": {"username": "ann", "groups": ["crew"]},
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    assert request.ctx.warnings == ["careful"]
    assert request.audit_annotations == {"v.example.com/k": "v"}


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ({"allowed": False}, 400, 'admission webhook "v.example.com" denied the request without explanation'),
        (
            {"allowed": False, "status": {"message": "not today", "code": 418, "reason": "Teapot"}},
            418,
            'admission webhook "v.example.com" denied the request: not today',
        ),
        ({"allowed": False, "status": {"code": 200}}, 400, "admission webhook"),
        ({"allowed": False, "status": {"code": 99999}}, 400, "admission webhook"),
        ({"allowed": False, "status": {"code": 10**30}}, 400, "admission webhook"),
        (
            {**ALLOW, "uid": "wrong"},
            500,
            f'{FAILED}received invalid webhook response: expected response.uid="',
        ),
        (
            patch(add("/data/x", "y")),
            500,
            f"{FAILED}received invalid webhook response: validating webhook may not return response.patch",
        ),
        (
            WebhookCallError("unreachable"),
            500,
            f"{FAILED}failed to call webhook: unreachable",
        ),
    ],
)
async def test_a_refusal_names_the_webhook(answer: Any, code: int, message: str) -> None:
    setup = Setup(v=answer)
    setup.configure(VALIDATING_WEBHOOK_CONFIGURATIONS, configuration("v"))
    with pytest.raises(StatusError) as caught:
        await setup.validating.validate(setup.request())
    assert caught.value.code == code
    assert caught.value.message.startswith(message)


async def test_a_webhook_whose_failure_is_ignored_does_not_matter() -> None:
    setup = Setup(v=WebhookCallError("unreachable"))
    setup.configure(VALIDATING_WEBHOOK_CONFIGURATIONS, configuration("v", failurePolicy="Ignore"))
    await setup.validating.validate(setup.request())
    assert setup.asked == ["v"]


@pytest.mark.parametrize(
    ("more", "is_asked"),
    [
        ({}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}}, False),
        ({"objectSelector": {"matchLabels": {"x": "y"}}}, False),
        ({"matchConditions": [{"name": "m", "expression": "object.metadata.name == 'c'"}]}, True),
        ({"matchConditions": [{"name": "m", "expression": "request.operation == 'DELETE'"}]}, False),
        (
            {
                "rules": [
                    {"apiGroups": ["apps"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
                ]
            },
            False,
        ),
        (
            {
                "rules": [
                    {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["*"]}
                ]
            },
            False,
        ),
        (
            {
                "rules": [
                    {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*/*"]}
                ]
            },
            True,
        ),
    ],
)
async def test_only_matching_requests_are_shown(more: JsonObject, is_asked: bool) -> None:
    setup = Setup(v=ALLOW)
    setup.configure(VALIDATING_WEBHOOK_CONFIGURATIONS, configuration("v", **more))
    await setup.validating.validate(setup.request())
    assert setup.asked == (["v"] if is_asked else [])


@pytest.mark.parametrize(("policy", "is_asked"), [("Equivalent", True), ("Exact", False)])
async def test_a_webhook_for_another_version_of_the_same_objects_sees_it_in_that(
    policy: str, is_asked: bool
) -> None:
    setup = Setup(v=ALLOW)
    rule = {"apiGroups": ["events.k8s.io"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*"]}
    webhook = configuration("v", rules=[rule], matchPolicy=policy)
    setup.configure(VALIDATING_WEBHOOK_CONFIGURATIONS, webhook)
    await setup.validating.validate(setup.cluster.request(EVENTS, {"metadata": {"name": "e"}}))
    assert [request["resource"]["group"] for _, request in setup.client.asked] == (
        ["events.k8s.io"] if is_asked else []
    )


async def test_a_condition_without_value_refuses_the_request() -> None:
    setup = Setup(v=ALLOW)
    conditions = [{"name": "m", "expression": "object.none == 1"}]
    setup.configure(VALIDATING_WEBHOOK_CONFIGURATIONS, configuration("v", matchConditions=conditions))
    with pytest.raises(StatusError, match="match condition 'm' resulted in error: no such key: none"):
        await setup.validating.validate(setup.request())


async def test_a_webhook_with_side_effects_refuses_dry_runs() -> None:
    setup = Setup(v=ALLOW)
    setup.configure(VALIDATING_WEBHOOK_CONFIGURATIONS, configuration("v", sideEffects="Some"))
    with pytest.raises(StatusError, match="does not support dry run"):
        await setup.validating.validate(setup.request(dry_run=True))


async def test_webhooks_are_never_asked_about_webhooks() -> None:
    setup = Setup(v=ALLOW)
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    setup.configure(VALIDATING_WEBHOOK_CONFIGURATIONS, configuration("v", rules=[rule]))
    request = setup.cluster.request(VALIDATING_WEBHOOK_CONFIGURATIONS, configuration("w"))
    await setup.validating.validate(request)
    assert setup.asked == []


async def test_a_webhook_runs_again_when_a_later_one_changed_the_object() -> None:
    def first(request: JsonObject) -> JsonObject:
        return patch(add("/data/seen", ",".join(sorted(request["object"]["data"]))))

    setup = Setup(a=first, b=patch(add("/data/late", "x")))
    setup.configure(
        MUTATING_WEBHOOK_CONFIGURATIONS, configuration("a", reinvocationPolicy="IfNeeded"), configuration("b")
    )
    request = setup.request()
    await Chain([setup.mutating]).mutate(request)
    assert setup.asked == ["a", "b", "a"]
    assert (request.object or {})["data"] == {"k": "v", "late": "x", "seen": "k,late,seen"}


async def test_a_patch_that_does_not_apply_is_an_error() -> None:
    setup = Setup(m=patch({"op": "remove", "path": "/data/none"}))
    setup.configure(MUTATING_WEBHOOK_CONFIGURATIONS, configuration("m"))
    with pytest.raises(StatusError) as caught:
        await setup.mutating.mutate(setup.request())
    assert caught.value.message == (
        "Internal error occurred: error in remove for path: '/data/none': "
        "Unable to remove nonexistent key: none: missing value"
    )


@pytest.mark.parametrize("tail", ["W10=", "!", "AA"])
async def test_a_patch_with_something_after_it_is_an_error(tail: str) -> None:
    operations = orjson.dumps([add("/data/who", "a")])
    # Padding is an end that a lenient reader stops at.
    encoded = base64.b64encode(operations + b" " * (-(len(operations) + 2) % 3)).decode()
    assert encoded.endswith("=")
    setup = Setup(m={"allowed": True, "patchType": "JSONPatch", "patch": encoded + tail})
    setup.configure(MUTATING_WEBHOOK_CONFIGURATIONS, configuration("m"))
    with pytest.raises(StatusError) as caught:
        await setup.mutating.mutate(setup.request())
    assert caught.value.code == 500


async def test_a_patch_may_not_change_types() -> None:
    setup = Setup(m=patch(add("/data", 5)))
    setup.configure(MUTATING_WEBHOOK_CONFIGURATIONS, configuration("m"))
    with pytest.raises(StatusError, match="cannot unmarshal number into Go struct field ConfigMap"):
        await setup.mutating.mutate(setup.request())

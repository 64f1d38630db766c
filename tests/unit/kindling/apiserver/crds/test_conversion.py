"""Conversion between the versions of custom resources."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.admission import StubWebhooks

from kindling.apiserver.admission.webhook_client import WebhookCallError
from kindling.apiserver.crds.conversion import NoneConverter, WebhookConverter
from kubecore.errors import StatusError
from kubecore.json import JsonObject

V1, V2 = "example.com/v1", "example.com/v2"


def widget(version: str, **spec: Any) -> JsonObject:
    metadata = {"name": "w", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}
    return {"apiVersion": version, "kind": "Widget", "metadata": metadata, "spec": spec}


def tidy(obj: JsonObject) -> None:
    obj["spec"].pop("unknown", None)


def converter(answer: Any) -> tuple[WebhookConverter, StubWebhooks]:
    client = StubWebhooks({"hook": answer})
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "hook"}}
    crd = {"spec": {"names": {"kind": "Widget"}, "conversion": {"strategy": "Webhook", "webhook": webhook}}}
    return WebhookConverter(crd, client, V1, tidy), client


def success(*objects: JsonObject) -> JsonObject:
    return {"result": {"status": "Success"}, "convertedObjects": list(objects)}


async def test_without_strategy_only_the_version_changes() -> None:
    made = await NoneConverter(V1, tidy).convert([widget(V1, unknown=1)], V2)
    assert made == [widget(V2, unknown=1)]


async def test_what_is_stored_loses_what_the_stored_version_does_not_know() -> None:
    made = await NoneConverter(V1, tidy).convert([widget(V2, a=1, unknown=1)], V1)
    assert made == [widget(V1, a=1)]


async def test_a_webhook_converts_what_has_another_version() -> None:
    made, client = converter(lambda request: success(widget(V2, two=1)))
    assert await made.convert([widget(V1, one=1), widget(V2, two=2)], V2) == [
        widget(V2, two=1),
        widget(V2, two=2),
    ]
    (_, request) = client.asked[0]
    assert request["desiredAPIVersion"] == V2
    (sent,) = request["objects"]
    assert "resourceVersion" not in sent["metadata"]


async def test_a_webhook_may_change_labels_but_no_other_metadata() -> None:
    changed = widget(V2, two=1)
    changed["metadata"] = {"name": "w", "uid": "u", "labels": {"new": "x"}, "generation": 99}
    made, _ = converter(lambda request: success(changed))
    (result,) = await made.convert([widget(V1, one=1)], V2)
    assert result["metadata"] == {"name": "w", "uid": "u", "resourceVersion": "7", "labels": {"new": "x"}}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            {"result": {"status": "Failure", "message": "cannot be done"}},
            "conversion webhook for example.com/v1, Kind=Widget failed: cannot be done",
        ),
        (
            WebhookCallError("unreachable"),
            "conversion webhook for example.com/v1, Kind=Widget failed: unreachable",
        ),
        (success(), "conversion webhook for example.com/v1, Kind=Widget returned 0 objects, expected 1"),
        (
            success({**widget(V2), "metadata": {"name": "other", "uid": "u"}}),
            "conversion webhook for example.com/v1, Kind=Widget returned invalid converted object "
            "at index 0: must not change metadata: must have the same name: w != other",
        ),
    ],
)
async def test_a_conversion_that_fails_is_explained(answer: Any, message: str) -> None:
    made, _ = converter(lambda request: answer)
    with pytest.raises(StatusError) as caught:
        await made.convert([widget(V1)], V2)
    assert (caught.value.code, caught.value.message) == (500, message)

"""How the API server is told of webhooks and aggregated groups."""

from __future__ import annotations

import base64

from tests.support.bakery import BAKERY

from virtplane.operators.kit.webhooks import CREATE, Endpoint, Webhook

ENDPOINT = Endpoint(BAKERY, "bread", "counter", "counter-certs", "PEM")
LOAF = Webhook("loaf.bakery.example", "/loaf", (CREATE,), "bakery.example", ("v1",), ("loaves",))
_BUNDLE = base64.b64encode(b"PEM").decode()


def test_a_webhook_is_asked_at_the_service_of_its_component() -> None:
    made = ENDPOINT.validating("bakery-validator", [LOAF])
    assert made["kind"] == "ValidatingWebhookConfiguration"
    assert made["metadata"] == {
        "name": "bakery-validator",
        "labels": {"bakery.example": "bakery-validator"},
        "annotations": {"bakery.example/certificate": "counter-certs"},
    }
    (webhook,) = made["webhooks"]
    service = {"name": "counter", "namespace": "bread", "path": "/loaf", "port": 443}
    assert webhook["clientConfig"] == {"service": service, "caBundle": _BUNDLE}
    assert webhook["rules"] == [
        {
            "operations": ["CREATE"],
            "apiGroups": ["bakery.example"],
            "apiVersions": ["v1"],
            "resources": ["loaves"],
        }
    ]
    assert "matchConditions" not in webhook


def test_a_condition_narrows_what_a_webhook_is_asked_about() -> None:
    narrow = Webhook("a.b", "/a", (CREATE,), "", ("v1",), ("pods",), ("only-bread", "object.bread"))
    made = ENDPOINT.mutating("bakery-mutator", [narrow])
    assert made["kind"] == "MutatingWebhookConfiguration"
    assert made["webhooks"][0]["matchConditions"] == [{"name": "only-bread", "expression": "object.bread"}]


def test_an_aggregated_group_is_served_by_the_service() -> None:
    made = ENDPOINT.aggregated("shop", "orders.bakery.example", "v1")
    assert made["metadata"]["name"] == "v1.orders.bakery.example"
    assert made["metadata"]["labels"] == {"bakery.example": "shop"}
    assert made["spec"]["service"] == {"name": "counter", "namespace": "bread", "port": 443}
    assert made["spec"]["caBundle"] == _BUNDLE

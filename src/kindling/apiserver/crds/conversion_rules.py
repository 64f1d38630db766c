"""Validation of how objects of a definition are converted between its versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, not_supported, required

from ..kinds.machinery.webhook_clients import ca_bundle, webhook_client

_SPEC = FieldPath("spec")


def label(path: FieldPath, value: str) -> list[FieldError]:
    """A name that begins with a letter; all that is wrong with it is one error."""
    messages = names.is_dns1035_label(value)
    return [invalid(path, value, ",".join(messages))] if messages else []


def conversion_rules(conversion: JsonObject) -> Iterator[FieldError]:
    """A strategy, and the webhook that converts, where it is one."""
    path = _SPEC.child("conversion")
    strategy = conversion.get("strategy")
    if not strategy:
        yield required(path.child("strategy"))
    elif strategy not in ("None", "Webhook"):
        yield not_supported(path.child("strategy"), strategy, ("None", "Webhook"))
    webhook = get_object(conversion, "webhook")
    reviews = get_list(webhook, "conversionReviewVersions")
    client, client_path = webhook.get("clientConfig"), path.child("webhookClientConfig")
    reviews_path = path.child("conversionReviewVersions")
    if strategy != "Webhook":
        message = "should not be set when strategy is not set to Webhook"
        if client is not None:
            yield forbidden(client_path, message)
        if reviews:
            yield forbidden(reviews_path, message)
        return
    if client is None:
        yield required(client_path, "required when strategy is set to Webhook")
    else:
        yield from webhook_client(client_path, client)
        yield from ca_bundle(client_path, client)
    yield from _review_versions(reviews, reviews_path)


def _review_versions(reviews: list[Any], path: FieldPath) -> Iterator[FieldError]:
    if not reviews:
        yield required(path)
        return
    for index, version in enumerate(reviews):
        if version in reviews[:index]:
            yield invalid(path.index(index), version, "duplicate version")
        else:
            yield from label(path.index(index), str(version))
    if not {"v1", "v1beta1"} & set(reviews):
        yield invalid(path, reviews, "must include at least one of v1, v1beta1")

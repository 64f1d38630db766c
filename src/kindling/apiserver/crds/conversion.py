"""Conversion between the versions of a custom resource."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from kindling.apiserver.admission.webhook_client import WebhookCallError, WebhookClient
from kubecore import errors
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta

_TIMEOUT_SECONDS = 30.0
_MUTABLE_METADATA = ("labels", "annotations")

Tidy = Callable[[JsonObject], None]
"""Prunes an object that is about to be stored."""


class NoneConverter:
    """Only apiVersion differs between the versions. `tidy` is applied to what is going to be stored."""

    def __init__(self, storage_version: str, tidy: Tidy) -> None:
        self._storage_version = storage_version
        self._tidy = tidy

    async def convert(self, objects: Sequence[JsonObject], api_version: str) -> list[JsonObject]:
        """See Converter."""
        for obj in objects:
            obj["apiVersion"] = api_version
            if api_version == self._storage_version:
                self._tidy(obj)
        return list(objects)


class WebhookConverter:
    """A webhook converts. What it may not change (names, uids, ...) is checked afterwards."""

    def __init__(self, crd: JsonObject, client: WebhookClient, storage_version: str, tidy: Tidy) -> None:
        webhook = get_object(crd, "spec", "conversion", "webhook")
        self._config = get_object(webhook, "clientConfig")
        self._review_version = next(
            (
                str(each)
                for each in get_list(webhook, "conversionReviewVersions")
                if each in ("v1", "v1beta1")
            ),
            "v1",
        )
        self._kind = get_str(crd, "spec", "names", "kind")
        self._client = client
        self._storage_version = storage_version
        self._tidy = tidy

    async def convert(self, objects: Sequence[JsonObject], api_version: str) -> list[JsonObject]:
        """See Converter. Objects which have the wanted version already are not sent."""
        others = [obj for obj in objects if obj.get("apiVersion") != api_version]
        if not others:
            return list(objects)
        source = str(others[0].get("apiVersion"))
        converted = iter(await self._ask(others, api_version, source))
        results = [obj if obj.get("apiVersion") == api_version else next(converted) for obj in objects]
        if api_version == self._storage_version:
            for obj in results:
                self._tidy(obj)
        return results

    async def _ask(self, objects: list[JsonObject], api_version: str, source: str) -> list[JsonObject]:
        uid = str(uuid.uuid4())
        review = {
            "kind": "ConversionReview",
            "apiVersion": f"apiextensions.k8s.io/{self._review_version}",
            "request": {
                "uid": uid,
                "desiredAPIVersion": api_version,
                "objects": [_without_revision(obj) for obj in objects],
            },
            "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}},
        }
        prefix = f"conversion webhook for {source}, Kind={self._kind} failed: "
        try:
            answer = await self._client.call(self._config, review, _TIMEOUT_SECONDS)
        except WebhookCallError as error:
            raise errors.plain_internal(f"{prefix}{error}") from error
        response = get_object(answer, "response")
        if response.get("uid") != uid:
            got = str(response.get("uid") or "")
            raise errors.plain_internal(
                f"conversion webhook for {source}, Kind={self._kind} returned invalid response: "
                f'expected response.uid="{uid}", got "{got}"'
            )
        if get_str(response, "result", "status") != "Success":
            message = get_str(response, "result", "message") or "unknown error"
            raise errors.plain_internal(prefix + message)
        converted = get_list(response, "convertedObjects")
        if len(converted) != len(objects):
            raise errors.plain_internal(
                f"conversion webhook for {source}, Kind={self._kind} returned {len(converted)} objects, "
                f"expected {len(objects)}"
            )
        return [
            self._checked(before, after, api_version, source)
            for before, after in zip(objects, converted, strict=True)
        ]

    def _checked(self, before: JsonObject, after: JsonObject, api_version: str, source: str) -> JsonObject:
        """The converted object with the original metadata, labels and annotations excepted."""
        where = f"conversion webhook for {source}, Kind={self._kind}"
        prefix = f"{where} returned invalid converted object at index 0: "
        if after.get("apiVersion") != api_version or after.get("kind") != before.get("kind"):
            raise errors.plain_internal(
                f"{prefix}invalid apiVersion or kind: expected {api_version}, Kind={before.get('kind')}"
            )
        for field in ("name", "namespace", "uid"):
            old, new = meta.metadata(before).get(field), meta.metadata(after).get(field)
            if old != new:
                raise errors.plain_internal(
                    f"{prefix}must not change metadata: must have the same {field}: {old} != {new}"
                )
        metadata = {**meta.metadata(before)}
        for field in _MUTABLE_METADATA:
            metadata.pop(field, None)
            if value := meta.metadata(after).get(field):
                metadata[field] = value
        after["metadata"] = metadata
        return after


def _without_revision(obj: JsonObject) -> JsonObject:
    """An object as webhooks get it: without its resourceVersion and other data about its storage."""
    metadata = {key: value for key, value in meta.metadata(obj).items() if key != "resourceVersion"}
    return {**obj, "metadata": metadata}

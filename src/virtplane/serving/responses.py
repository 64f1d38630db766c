"""Answers of webhooks, in the form of KubeVirt's."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from kubecore.json import JsonObject, get_object, get_str, has_more_values

MOST_VALUES = 30_000
"""Values in an object that webhooks look at. An instance of 256 disks and as many interfaces has a third.

A few bytes of JSON are a value, and each costs microseconds in a process that everybody waits for.
"""
MAX_CAUSES = 10
"""How many causes an answer names; the rest are counted."""

INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
NOT_SUPPORTED = "FieldValueNotSupported"
DUPLICATE = "FieldValueDuplicate"
NOT_FOUND = "FieldValueNotFound"
FORBIDDEN = "FieldValueForbidden"
UNEXPECTED = "UnexpectedServerResponse"


@dataclass(frozen=True, slots=True)
class Cause:
    """One error of a request. `type` and `field` are empty if there is only a message."""

    message: str
    field: str = ""
    type: str = INVALID

    def document(self) -> JsonObject:
        """The cause as ``status.details.causes`` holds it."""
        document: JsonObject = {}
        if self.type:
            document["reason"] = self.type
        document["message"] = self.message
        if self.field:
            document["field"] = self.field
        return document


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to one review. `patches` are JSON patch operations."""

    allowed: bool
    status: JsonObject | None = None
    patches: tuple[JsonObject, ...] = ()
    warnings: tuple[str, ...] = field(default=())

    @classmethod
    def allow(cls, warnings: Sequence[str] = (), patches: Sequence[JsonObject] = ()) -> Response:
        """Let the request pass."""
        return cls(True, None, tuple(patches), tuple(warnings))

    @classmethod
    def refuse(cls, causes: Sequence[Cause], limit: int = MAX_CAUSES) -> Response:
        """Refuse the object with its causes; with `limit` 0, the message names all of them."""
        named = list(causes[:limit] if limit else causes)
        message = ", ".join(cause.message for cause in named)
        if len(causes) > len(named):
            message += f", and {len(causes) - len(named)} more validation errors"
        details = {"causes": [cause.document() for cause in named]}
        return cls(False, {"code": 422, "reason": "Invalid", "message": message, "details": details})

    @classmethod
    def plain(cls, message: str, code: int = 400) -> Response:
        """Refuse because the request itself makes no sense, or something needed for it is missing."""
        return cls(False, {"code": code, "message": message})

    @classmethod
    def of_too_many_values(cls, request: JsonObject) -> Response | None:
        """Refuse a request that brings more values than webhooks look at; None where it does not.

        What stays as it was is not counted, so that a finalizer can be taken off any object.
        """
        new, old = get_object(request, "object"), get_object(request, "oldObject")
        for part in ("metadata", "spec", "status"):
            found, before = get_object(new, part), get_object(old, part)
            if part == "metadata":
                found = {} if old else {key: value for key, value in found.items() if key != "managedFields"}
            if has_more_values(found, MOST_VALUES) and found != before:
                return cls.refuse([Cause(f"{part} has more than {MOST_VALUES} values", part)])
        return None

    def review(self, review: JsonObject) -> JsonObject:
        """The AdmissionReview that answers `review`."""
        response: dict[str, Any] = {
            "uid": get_str(get_object(review, "request"), "uid"),
            "allowed": self.allowed,
        }
        if self.status is not None:
            response["status"] = self.status
        if self.patches:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(orjson.dumps(list(self.patches))).decode()
        if self.warnings:
            response["warnings"] = list(self.warnings)
        return {
            "apiVersion": get_str(review, "apiVersion", default="admission.k8s.io/v1"),
            "kind": "AdmissionReview",
            "response": response,
        }

"""Mutating and validating webhooks."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import uuid
from typing import Any

import orjson

from kindling.apiserver.registry.admission import Admission, AdmissionAttributes, AdmissionEnvironment
from kindling.apiserver.registry.definition import ResourceDefinition
from kindling.apiserver.registry.go_types import type_error
from kubecore import errors
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.patch.jsonpatch import JsonPatchError, apply_json_patch, decode_json_patch

from . import conditions
from .base import refuse
from .conditions import ConditionError, MatchConditions
from .configurations import Configurations
from .matching import ResourceMatcher, is_exempt
from .reinvocation import Reinvocation
from .webhook_client import WebhookCallError, WebhookClient

_LOG = logging.getLogger(__name__)
_DEFAULT_TIMEOUT_SECONDS = 10
_WITHOUT_SIDE_EFFECTS = ("None", "NoneOnDryRun")


class Webhook:
    """One webhook of a configuration."""

    def __init__(self, configuration: str, raw: JsonObject) -> None:
        self.configuration = configuration
        self.name = get_str(raw, "name")
        self.client_config = get_object(raw, "clientConfig")
        self.matcher = ResourceMatcher(raw)
        self.conditions = MatchConditions(get_list(raw, "matchConditions"))
        self.ignores_failure = raw.get("failurePolicy") == "Ignore"
        self.has_side_effects = raw.get("sideEffects") not in _WITHOUT_SIDE_EFFECTS
        self.timeout_seconds = int(raw.get("timeoutSeconds") or _DEFAULT_TIMEOUT_SECONDS)
        self.reinvoked_if_needed = raw.get("reinvocationPolicy") == "IfNeeded"
        versions = [each for each in get_list(raw, "admissionReviewVersions") if each in ("v1", "v1beta1")]
        self.review_version = str(versions[0]) if versions else "v1"

    @property
    def key(self) -> str:
        """Identifies the webhook among all others."""
        return f"{self.configuration}/{self.name}"


def _compile(configuration: JsonObject) -> list[Webhook]:
    name = get_str(configuration, "metadata", "name")
    return [Webhook(name, raw) for raw in get_list(configuration, "webhooks")]


class _Dispatcher(Admission):
    """What both kinds of webhooks share: choosing, converting, asking."""

    def __init__(self, environment: AdmissionEnvironment, client: WebhookClient, plural: str) -> None:
        self._environment = environment
        self._client = client
        self._configurations = Configurations(environment, plural, _compile)

    def _webhooks(self) -> list[Webhook]:
        return [webhook for webhooks in self._configurations.all() for webhook in webhooks]

    async def _wanted(self, webhook: Webhook, attributes: AdmissionAttributes) -> ResourceDefinition | None:
        """The version in which `webhook` wants to see the request, or None."""
        equivalents = self._environment.equivalents(attributes.definition)
        match = webhook.matcher.match(attributes, equivalents, self._environment.objects)
        if match is None:
            return None
        if webhook.conditions and not self._conditions_hold(webhook, attributes):
            return None
        if attributes.ctx.dry_run and webhook.has_side_effects:
            raise errors.bad_request(f'admission webhook "{webhook.name}" does not support dry run')
        return match.definition

    def _conditions_hold(self, webhook: Webhook, attributes: AdmissionAttributes) -> bool:
        """Whether the match conditions hold; refuses the request if they cannot be evaluated."""
        variables = conditions.request_variables(
            attributes, attributes.definition.resource, attributes.object, attributes.old_object
        )
        try:
            ask = conditions.authorization(attributes, self._environment)
            return webhook.conditions.hold(variables, ask)
        except ConditionError as error:
            if webhook.ignores_failure:
                return False
            raise refuse(attributes, str(error)) from error

    async def _ask(
        self, webhook: Webhook, attributes: AdmissionAttributes, shown: ResourceDefinition
    ) -> tuple[JsonObject, JsonObject | None]:
        """The response, and the object as it was shown. Raises WebhookCallError."""
        new = await in_version(attributes.object, shown, attributes)
        old = await in_version(attributes.old_object, shown, attributes)
        uid = str(uuid.uuid4())
        review = {
            "kind": "AdmissionReview",
            "apiVersion": f"admission.k8s.io/{webhook.review_version}",
            "request": conditions.review_request(attributes, uid, shown.resource, new, old),
        }
        try:
            answer = await self._client.call(webhook.client_config, review, webhook.timeout_seconds)
        except WebhookCallError as error:
            raise WebhookCallError(f"failed to call webhook: {error}") from error
        return _checked_response(answer, review, uid), new

    def _failed(
        self, webhook: Webhook, attributes: AdmissionAttributes, error: WebhookCallError
    ) -> StatusError | None:
        """Refuse or admit the request after a failed call, as failurePolicy says."""
        message = f'failed calling webhook "{webhook.name}": {error}'
        if webhook.ignores_failure:
            _LOG.warning("%s; ignored, as its failurePolicy says", message)
            return None
        return errors.internal(message)

    def _note(self, webhook: Webhook, attributes: AdmissionAttributes, response: JsonObject) -> None:
        for warning in get_list(response, "warnings"):
            attributes.ctx.warn(str(warning))
        for key, value in get_object(response, "auditAnnotations").items():
            attributes.audit_annotations[f"{webhook.name}/{key}"] = str(value)


async def in_version(
    obj: JsonObject | None, shown: ResourceDefinition, attributes: AdmissionAttributes
) -> JsonObject | None:
    """The object in the version that a webhook asked for.

    A custom resource is always shown with the kind of its resource. Its validation, which refuses another
    kind, comes later, and sees what a webhook that changes the object made of it.
    """
    if obj is None:
        return None
    if attributes.definition.custom and attributes.ctx.subresource in ("", "status"):
        kind = attributes.definition.resource.kind
        obj = obj if obj.get("kind") == kind else {**obj, "kind": kind}
    if shown is attributes.definition:
        return obj
    if obj.get("kind") != attributes.definition.resource.kind:
        return obj  # the body of a subresource has no other versions
    copy = deep_copy(obj)
    if shown.converter is not None:
        return (await shown.converter.convert([copy], shown.resource.api_version))[0]
    copy["apiVersion"] = shown.resource.api_version
    return copy


def _checked_response(answer: JsonObject, review: JsonObject, uid: str) -> JsonObject:
    invalid = "received invalid webhook response: "
    got = (answer.get("apiVersion"), answer.get("kind"))
    if got != (review["apiVersion"], review["kind"]):
        raise WebhookCallError(
            f"{invalid}expected webhook response of {review['apiVersion']}, Kind={review['kind']}, "
            f"got {got[0] or ''}, Kind={got[1] or ''}"
        )
    response = answer.get("response")
    if not isinstance(response, dict):
        raise WebhookCallError(f"{invalid}webhook response was absent")
    if response.get("uid") != uid:
        raise WebhookCallError(f'{invalid}expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    if response.get("patch") and response.get("patchType") != "JSONPatch":
        raise WebhookCallError(f'{invalid}unexpected patchType "{response.get("patchType") or ""}"')
    return response


def denial(webhook: str, response: JsonObject) -> StatusError:
    """The refusal of a webhook, which chooses code and reason itself."""
    result = get_object(response, "status")
    denied = f'admission webhook "{webhook}" denied the request'
    message = result.get("message") or result.get("reason")
    code = result.get("code")
    details = result.get("details")
    return StatusError(
        code if isinstance(code, int) and 400 <= code < 600 else 400,
        str(result.get("reason") or ""),
        f"{denied}: {message}" if message else f"{denied} without explanation",
        details if isinstance(details, dict) else None,
    )


class MutatingWebhooks(_Dispatcher):
    """Calls webhooks one after the other; each sees the changes of those before it."""

    def __init__(self, environment: AdmissionEnvironment, client: WebhookClient) -> None:
        super().__init__(environment, client, "mutatingwebhookconfigurations")

    async def mutate(self, attributes: AdmissionAttributes) -> None:
        """One round without a second."""
        await self.mutate_round(attributes, Reinvocation())

    async def mutate_round(self, attributes: AdmissionAttributes, reinvocation: Reinvocation) -> None:
        """Call all webhooks, or in the second round those that must be reinvoked."""
        if is_exempt(attributes):
            return
        if reinvocation.is_second_round:
            reinvocation.changed("", attributes.object)
        for webhook in self._webhooks():
            if not reinvocation.is_due(webhook.key):
                continue
            shown = await self._wanted(webhook, attributes)
            if shown is None:
                continue
            try:
                response, sent = await self._ask(webhook, attributes, shown)
            except WebhookCallError as error:
                failure = self._failed(webhook, attributes, error)
                if failure is not None:
                    raise failure from error
                continue
            self._note(webhook, attributes, response)
            if response.get("allowed") is not True:
                raise denial(webhook.name, response)
            if await self._patch(attributes, shown, sent, response):
                reinvocation.changed(webhook.key, attributes.object)
            if webhook.reinvoked_if_needed:
                reinvocation.note(webhook.key, attributes.object)

    async def _patch(
        self,
        attributes: AdmissionAttributes,
        shown: ResourceDefinition,
        sent: JsonObject | None,
        response: JsonObject,
    ) -> bool:
        """Apply the patch of a response; whether it changed anything."""
        encoded = response.get("patch")
        if not encoded or sent is None:
            return False
        try:
            operations = decode_json_patch(orjson.loads(_decoded(str(encoded))))
            patched: Any = apply_json_patch(sent, operations)
        except (JsonPatchError, binascii.Error, orjson.JSONDecodeError) as error:
            raise errors.internal(str(error)) from error
        except StatusError as error:
            raise errors.internal(error.message) from error
        if not isinstance(patched, dict) or patched == sent:
            return False
        changed = deep_copy(patched)
        if shown is not attributes.definition and changed.get("kind") == shown.resource.kind:
            changed = await _back(changed, attributes)
        schema = None if attributes.definition.custom else attributes.definition.schema
        if schema is not None and changed.get("kind") == attributes.definition.resource.kind:
            problem = type_error(changed, schema)
            if problem:
                raise errors.internal(problem)
        attributes.redefault(changed)
        attributes.object = changed
        return True


def _decoded(text: str) -> bytes:
    """Base64 as Go reads it: line breaks aside, nothing else in it and nothing after it.

    Raises binascii.Error.
    """
    return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)


async def _back(obj: JsonObject, attributes: AdmissionAttributes) -> JsonObject:
    definition = attributes.definition
    if definition.converter is not None:
        return (await definition.converter.convert([obj], definition.resource.api_version))[0]
    obj["apiVersion"] = definition.resource.api_version
    return obj


class ValidatingWebhooks(_Dispatcher):
    """Calls all webhooks concurrently; of several refusals, the first in the order of configurations is
    returned.
    """

    def __init__(self, environment: AdmissionEnvironment, client: WebhookClient) -> None:
        super().__init__(environment, client, "validatingwebhookconfigurations")

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Ask every webhook that wants to see the request."""
        if is_exempt(attributes):
            return
        wanted = []
        for webhook in self._webhooks():
            shown = await self._wanted(webhook, attributes)
            if shown is not None:
                wanted.append((webhook, shown))
        if not wanted:
            return
        verdicts = await asyncio.gather(
            *(self._verdict(webhook, attributes, shown) for webhook, shown in wanted)
        )
        for verdict in verdicts:
            if verdict is not None:
                raise verdict

    async def _verdict(
        self, webhook: Webhook, attributes: AdmissionAttributes, shown: ResourceDefinition
    ) -> StatusError | None:
        try:
            response, _ = await self._ask(webhook, attributes, shown)
            if response.get("patch"):
                raise WebhookCallError(
                    "received invalid webhook response: validating webhook may not return response.patch"
                )
        except WebhookCallError as error:
            return self._failed(webhook, attributes, error)
        self._note(webhook, attributes, response)
        return None if response.get("allowed") is True else denial(webhook.name, response)

"""Review resources: TokenReview, SubjectAccessReview and the like. They are answered, never stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import orjson

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects import fields, times
from kubecore.objects.fields import FieldError
from kubecore.resources import ResourceType

from ..kinds.encoding import wire
from ..registry import managed
from ..registry.admission import AuthorizationQuery, Authorize
from ..registry.context import RequestContext, UserInfo
from ..registry.definition import ResourceDefinition, Strategy, Virtual
from .authentication import Authenticator, with_authenticated
from .rbac import RbacAuthorizer
from .service_accounts import TokenAuthority

_AUTHORIZATION = "authorization.k8s.io"
_AUTHENTICATION = "authentication.k8s.io"
_INVALID_TOKEN = "invalid bearer token"

Published = Callable[[str, str, str], ResourceDefinition]
"""(group, version, kind) -> a definition with schema and OpenAPI, to be completed here."""


class _ReviewStrategy(Strategy):
    """The strategy of reviews: spec and status are always present and have no field owner."""

    def __init__(self, normalize: Callable[[JsonObject], object]) -> None:
        self._normalize = normalize

    def default(self, obj: JsonObject) -> None:
        """Drop what is empty, as it is not sent on."""
        self._normalize(obj)

    def blank(self) -> JsonObject:
        """The containers alone."""
        obj: JsonObject = {"metadata": {}, "spec": {}, "status": {}}
        self._normalize(obj)
        return obj


class Reviews:
    """Makes the definitions of all review kinds."""

    def __init__(
        self,
        authorize: Authorize,
        rbac: RbacAuthorizer,
        authenticator: Authenticator,
        authority: TokenAuthority,
    ) -> None:
        self._authorize = authorize
        self._rbac = rbac
        self._authenticator = authenticator
        self._authority = authority

    def definitions(self, schemas: Any) -> list[ResourceDefinition]:
        """The definitions, in discovery's order. `schemas` gives built-in schemas by kind."""
        kinds: list[tuple[str, str, str, bool, Virtual]] = [
            (_AUTHENTICATION, "tokenreviews", "TokenReview", False, self._token),
            (_AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview", False, self._self_subject),
            (
                _AUTHORIZATION,
                "localsubjectaccessreviews",
                "LocalSubjectAccessReview",
                True,
                self._local_access,
            ),
            (_AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview", False, self._self_access),
            (_AUTHORIZATION, "selfsubjectrulesreviews", "SelfSubjectRulesReview", False, self._self_rules),
            (_AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview", False, self._access),
        ]
        found: list[ResourceDefinition] = []
        for group, plural, kind, namespaced, virtual in kinds:
            name = schemas.name_of(group, "v1", kind)
            schema = schemas.schema(name)
            found.append(
                ResourceDefinition(
                    ResourceType(group, "v1", plural, kind, namespaced),
                    schema,
                    _ReviewStrategy(partial(wire.normalize, schema=schema)),
                    verbs=("create",),
                    virtual=virtual,
                    openapi=schemas.published(name),
                    openapi_name=name,
                )
            )
        self._by_kind = {definition.resource.kind: definition for definition in found}
        return found

    def _answer(self, ctx: RequestContext, review: JsonObject, status: JsonObject) -> JsonObject:
        metadata = review["metadata"]
        review["metadata"] = {key: value for key, value in metadata.items() if value is not None}
        managed.track_write(self._by_kind[review["kind"]], None, review, ctx)
        review["status"] = status
        return review

    # --- identities

    async def _token(self, ctx: RequestContext, review: JsonObject) -> JsonObject:
        spec = review.get("spec") or {}
        token, wanted = str(spec.get("token") or ""), list(spec.get("audiences") or ())
        if not token:
            raise errors.bad_request("token is required for TokenReview in authentication")
        if ctx.namespace:
            raise errors.bad_request("namespace is not allowed on this type")
        status: JsonObject = {"user": {}, "error": _INVALID_TOKEN}
        audiences = wanted or list(self._authority.audiences)
        static = self._authenticator.static_tokens.get(token)
        found = self._authority.review(token, audiences) if static is None else None
        user = static or (found.user if found is not None else None)
        if user is not None:
            status = {"authenticated": True, "user": with_authenticated(user).to_json()}
            status["audiences"] = list(found.audiences) if found is not None else audiences
        return self._answer(ctx, review, status)

    async def _self_subject(self, ctx: RequestContext, review: JsonObject) -> JsonObject:
        return {
            "kind": "SelfSubjectReview",
            "apiVersion": f"{_AUTHENTICATION}/v1",
            "metadata": {"creationTimestamp": times.now_rfc3339()},
            "status": {"userInfo": ctx.user.to_json()},
        }

    # --- rights

    async def _self_access(self, ctx: RequestContext, review: JsonObject) -> JsonObject:
        spec = review.get("spec") or {}
        self._check(review, _access_errors(spec) + self._metadata_errors(ctx, review))
        return self._decided(ctx, review, ctx.user)

    async def _access(self, ctx: RequestContext, review: JsonObject) -> JsonObject:
        spec = review.get("spec") or {}
        problems = _access_errors(spec) + _subject_errors(spec)
        self._check(review, problems + self._metadata_errors(ctx, review))
        return self._decided(ctx, review, _subject(spec))

    async def _local_access(self, ctx: RequestContext, review: JsonObject) -> JsonObject:
        spec = review.get("spec") or {}
        problems = _access_errors(spec) + _subject_errors(spec)
        attributes = spec.get("resourceAttributes") or {}
        namespace = str(review["metadata"].get("namespace") or "")
        if spec.get("nonResourceAttributes") is not None:
            plain, text = spec["nonResourceAttributes"], "disallowed on this kind of request"
            problems.append(fields.invalid("spec.nonResourceAttributes", plain, text))
        if spec.get("resourceAttributes") is not None and attributes.get("namespace") != namespace:
            path, given = "spec.resourceAttributes.namespace", attributes.get("namespace") or ""
            problems.append(fields.invalid(path, given, "must match metadata.namespace"))
        self._check(review, problems)
        return self._decided(ctx, review, _subject(spec))

    def _metadata_errors(self, ctx: RequestContext, review: JsonObject) -> list[FieldError]:
        """Errors of a review with a name or other metadata."""
        if all(value is None for value in review.get("metadata", {}).values()):
            return []
        managed.track_write(self._by_kind[review["kind"]], None, review, ctx)
        shown = {key: value for key, value in review["metadata"].items() if key != "managedFields"}
        order = ("manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1")
        entries = review["metadata"].get("managedFields") or ()
        shown["managedFields"] = [
            {key: _sorted(entry[key]) for key in order if key in entry} for entry in entries
        ]
        return [fields.invalid("metadata", shown, "must be empty")]

    @staticmethod
    def _check(review: JsonObject, problems: list[FieldError]) -> None:
        if problems:
            # Kubernetes names the group alone here.
            raise errors.invalid("", _AUTHORIZATION, "", problems)

    def _decided(self, ctx: RequestContext, review: JsonObject, user: UserInfo) -> JsonObject:
        spec = review["spec"]
        attributes = spec.get("resourceAttributes")
        if attributes is not None:
            query = AuthorizationQuery(
                user,
                str(attributes.get("verb") or ""),
                str(attributes.get("group") or ""),
                str(attributes.get("version") or ""),
                str(attributes.get("resource") or ""),
                str(attributes.get("subresource") or ""),
                str(attributes.get("namespace") or ""),
                str(attributes.get("name") or ""),
                field_selector=_field_selector(attributes),
            )
        else:
            plain = spec["nonResourceAttributes"]
            query = AuthorizationQuery(user, str(plain.get("verb") or ""), path=str(plain.get("path") or ""))
        allowed, reason = self._authorize(query)
        status: JsonObject = {"allowed": allowed}
        if reason:
            status["reason"] = reason
        return self._answer(ctx, review, status)

    async def _self_rules(self, ctx: RequestContext, review: JsonObject) -> JsonObject:
        spec = review.get("spec") or {}
        namespace = str(spec.get("namespace") or "")
        if not namespace:
            raise errors.bad_request("no namespace on request")
        resource_rules: list[JsonObject] = []
        path_rules: list[JsonObject] = []
        for rule in (grant.rule for grant in self._rbac.grants(ctx.user, namespace)):
            if rule.resources:
                resource_rules.append(
                    {key: value for key, value in rule.to_json().items() if key != "nonResourceURLs"}
                )
            if rule.paths:
                path_rules.append({"verbs": list(rule.verbs), "nonResourceURLs": list(rule.paths)})
        status = {"resourceRules": resource_rules, "nonResourceRules": path_rules, "incomplete": False}
        review["spec"] = {}
        review["status"] = status
        return review


def _sorted(value: Any) -> Any:
    """The value with the keys of all objects in order."""
    return orjson.loads(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


def _field_selector(attributes: JsonObject) -> str:
    """The review's field selector as text. Requirements without text form are left out: they only restrict
    it.
    """
    selector = attributes.get("fieldSelector") or {}
    if selector.get("rawSelector"):
        return str(selector["rawSelector"])
    return ",".join(
        f"{requirement.get('key')}={requirement['values'][0]}"
        for requirement in selector.get("requirements") or ()
        if requirement.get("operator") == "In" and len(requirement.get("values") or ()) == 1
    )


def _selector_errors(resource: JsonObject) -> Iterator[FieldError]:
    """A selector is given either as text or as requirements."""
    for name in ("fieldSelector", "labelSelector"):
        selector = resource.get(name)
        if selector is None:
            continue
        at, raw = f"spec.resourceAttributes.{name}", selector.get("rawSelector")
        if raw and selector.get("requirements"):
            text = "may not specified at the same time as requirements"
            yield fields.invalid(f"{at}.rawSelector", raw, text)
        if not raw and not selector.get("requirements"):
            text = f"when {at} is specified, requirements or rawSelector is required"
            yield fields.required(f"{at}.requirements", text)


def _access_errors(spec: JsonObject) -> list[FieldError]:
    resource, plain = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and plain is None:
        return list(_selector_errors(resource))
    if resource is not None and plain is not None:
        shown = {"Path": plain.get("path", ""), "Verb": plain.get("verb", "")}
        text = "cannot be specified in combination with resourceAttributes"
        return [fields.invalid("spec.nonResourceAttributes", shown, text)]
    if resource is None and plain is None:
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [fields.invalid("spec.resourceAttributes", None, text)]
    return []


def _subject_errors(spec: JsonObject) -> list[FieldError]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [fields.invalid("spec.user", "", "at least one of user or group must be specified")]


def _subject(spec: JsonObject) -> UserInfo:
    extra = {key: tuple(values) for key, values in (spec.get("extra") or {}).items()}
    return UserInfo(
        str(spec.get("user") or ""), str(spec.get("uid") or ""), tuple(spec.get("groups") or ()), extra
    )

"""Expressions about requests: the variables they see, and match conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from kindling.apiserver.registry.admission import (
    AdmissionAttributes,
    AdmissionEnvironment,
    AuthorizationQuery,
)
from kindling.apiserver.registry.context import UserInfo
from kubecore.cel import Budget, BudgetExceededError, CompileError, Environment, EvaluationError, Program
from kubecore.cel.access_checks import AccessCheck, Authorize
from kubecore.json import JsonObject
from kubecore.resources import ResourceType
from kubecore.schema.model import Schema

_CONDITIONS_LIMIT = 2_500_000
"""Most that all match conditions together may cost."""

_REQUEST_VARIABLES = {
    "object": "dyn",
    "oldObject": "dyn",
    "request": "dyn",
    "authorizer": "kubernetes.authorization.Authorizer",
    "authorizer.requestResource": "kubernetes.authorization.ResourceCheck",
}


@cache
def request_environment(*more: str) -> Environment:
    """The variables of every request, and `more` of any type (params, namespaceObject, variables)."""
    return Environment({**_REQUEST_VARIABLES, **dict.fromkeys(more, "dyn")})


def expression_type(text: str, more: Iterable[str], composed: Mapping[str, str]) -> tuple[str, str]:
    """What is wrong with an expression (empty if nothing is), and the type that it gives.

    It sees the variables of every request and `more`; `composed` has the types of the fields of a policy's
    ``variables``.
    """
    from kubecore.cel.type_checking import check_types  # noqa: PLC0415 (loads the interpreter)

    others = {**_REQUEST_VARIABLES, **dict.fromkeys(more, "dyn")}
    composition = {"variables": Schema({"type": "object"})} if others.pop("variables", None) else {}
    others |= {f"variables.{name}": kind for name, kind in composed.items()}
    checked = check_types(text, composition, others)
    return checked.problem, checked.type


class ConditionError(Exception):
    """A condition has no value; the text is what users see."""


class MatchConditions:
    """Match conditions of a webhook or policy: it applies only if all are true."""

    def __init__(self, raw: Sequence[JsonObject], *more: str) -> None:
        self._raw = list(raw)
        self._more = more
        self._programs: list[tuple[str, Program | CompileError]] | None = None

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._raw)

    def hold(self, variables: Mapping[str, Any], authorize: Authorize) -> bool:
        """Whether all are true. Raises ConditionError when one has no value and none is false."""
        failures: list[str] = []
        budget = Budget(_CONDITIONS_LIMIT)
        for name, program in self._compiled():
            try:
                if isinstance(program, CompileError):
                    raise EvaluationError(str(program))
                if program.evaluate(variables, authorize, budget) is not True:
                    return False
            except BudgetExceededError as error:
                raise ConditionError(str(error)) from None
            except EvaluationError as error:
                failures.append(f"match condition '{name}' resulted in error: {error}")
        if failures:
            raise ConditionError("; ".join(failures))
        return True

    def _compiled(self) -> list[tuple[str, Program | CompileError]]:
        if self._programs is None:
            self._programs = [
                (str(each.get("name")), compiled(str(each.get("expression")), *self._more))
                for each in self._raw
            ]
        return self._programs


def compiled(text: str, *more: str) -> Program | CompileError:
    """The compiled program, or why it does not compile (stored configurations are not checked again)."""
    try:
        return request_environment(*more).compile(text)
    except CompileError as error:
        return error


def review_request(
    attributes: AdmissionAttributes,
    uid: str,
    shown: ResourceType,
    new: JsonObject | None,
    old: JsonObject | None,
) -> JsonObject:
    """The ``request`` of an AdmissionReview; `shown` is the resource in the version of the objects."""
    ctx, asked = attributes.ctx, attributes.definition.resource
    subresource = {"subResource": ctx.subresource} if ctx.subresource else {}
    kind = attributes.kind if shown is asked else shown.kind
    version = attributes.api_version if shown is asked else shown.api_version
    request: JsonObject = {
        "uid": uid,
        "kind": _kind(version, kind),
        "resource": _resource(shown),
        **subresource,
        "requestKind": _kind(attributes.api_version, attributes.kind),
        "requestResource": _resource(asked),
        **({"requestSubResource": ctx.subresource} if ctx.subresource else {}),
        **({"name": ctx.name} if ctx.name else {}),
        **({"namespace": ctx.namespace} if ctx.namespace else {}),
        "operation": attributes.operation,
        "userInfo": ctx.user.to_json(),
        "object": new,
        "oldObject": old,
        "dryRun": ctx.dry_run,
        "options": attributes.options,
    }
    return request


def _kind(api_version: str, kind: str) -> JsonObject:
    group, _, version = api_version.rpartition("/")
    return {"group": group, "version": version, "kind": kind}


def _resource(resource: ResourceType) -> JsonObject:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def request_variables(
    attributes: AdmissionAttributes,
    shown: ResourceType,
    new: JsonObject | None,
    old: JsonObject | None,
) -> dict[str, Any]:
    """The variables every expression about a request sees."""
    from kubecore.cel.authorization import authorizer, resource_check  # noqa: PLC0415 (loads the interpreter)

    ctx, asked = attributes.ctx, attributes.definition.resource
    request = review_request(attributes, "", shown, None, None)
    for field in ("object", "oldObject", "uid"):
        request.pop(field, None)
    return {
        "object": new,
        "oldObject": old,
        "request": {"name": "", "namespace": "", "subResource": "", **request},
        "authorizer": authorizer(),
        "authorizer.requestResource": resource_check(
            asked.group, asked.plural, ctx.subresource, ctx.namespace, ctx.name
        ),
    }


def authorization(attributes: AdmissionAttributes, environment: AdmissionEnvironment) -> Authorize:
    """Who answers what expressions ask of ``authorizer``: the server, for the request's user."""

    def ask(question: AccessCheck) -> tuple[bool, str]:
        user = attributes.ctx.user
        if question.account:
            namespace, _, name = question.account.partition("/")
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
            user = UserInfo(f"system:serviceaccount:{namespace}:{name}", groups=groups)
        return environment.authorize(
            AuthorizationQuery(
                user,
                question.verb,
                group=question.group,
                version="*" if question.resource else "",
                resource=question.resource,
                subresource=question.subresource,
                namespace=question.namespace,
                name=question.name,
                path=question.path,
            )
        )

    return ask

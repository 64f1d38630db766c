"""``authorizer``: asking whether the user of a request (or a service account) may do something.

Selectors of a check are not passed on: the check covers the whole collection, so it never allows more than
Kubernetes would.
"""

from __future__ import annotations

from typing import Any

from .access_checks import ASKING, AccessCheck
from .declarations import method
from .values import Opaque

_PREFIX = "kubernetes.authorization."
_AUTHORIZER, _DECISION = f"{_PREFIX}Authorizer", f"{_PREFIX}Decision"
_PATH, _GROUP, _RESOURCE = (_PREFIX + name for name in ("PathCheck", "GroupCheck", "ResourceCheck"))


def authorizer() -> Any:
    """The value of the variable ``authorizer``."""
    return Opaque(kind=_AUTHORIZER, account="")


def resource_check(group: str, resource: str, subresource: str, namespace: str, name: str) -> Any:
    """The value of the variable ``authorizer.requestResource``."""
    return _check(group=group, resource=resource, subresource=subresource, namespace=namespace, name=name)


def _check(**fields: str) -> Any:
    return Opaque(**{"account": "", "subresource": "", "namespace": "", "name": "", **fields}, kind=_RESOURCE)


def _copied(check: Any, **changes: str) -> Any:
    return Opaque(**{**vars(check), **changes})


def _ask(question: AccessCheck) -> Any:
    ask = ASKING.get(None)
    if ask is None:
        raise ValueError("the authorizer is not available in this expression")
    allowed, reason = ask(question)
    return Opaque(kind=_DECISION, is_allowed=allowed, why=reason, failure="")


def _check_resource(check: Any, verb: str) -> Any:
    return _ask(
        AccessCheck(
            verb,
            check.account,
            group=check.group,
            resource=check.resource,
            subresource=check.subresource,
            namespace=check.namespace,
            name=check.name,
        )
    )


def _group(value: Any, group: str) -> Any:
    return Opaque(kind=_GROUP, account=value.account, group=group)


def _resource(value: Any, resource: str) -> Any:
    return _check(account=value.account, group=value.group, resource=resource)


FUNCTIONS = (
    method(
        "path", _AUTHORIZER, "string", run=lambda a, path: Opaque(kind=_PATH, account=a.account, path=path)
    ),
    method("group", _AUTHORIZER, "string", run=_group),
    method(
        "serviceAccount",
        _AUTHORIZER,
        "string",
        "string",
        run=lambda a, namespace, name: Opaque(kind=_AUTHORIZER, account=f"{namespace}/{name}"),
    ),
    method("resource", _GROUP, "string", run=_resource),
    method("subresource", _RESOURCE, "string", run=lambda r, value: _copied(r, subresource=value)),
    method("namespace", _RESOURCE, "string", run=lambda r, value: _copied(r, namespace=value)),
    method("name", _RESOURCE, "string", run=lambda r, value: _copied(r, name=value)),
    method("fieldSelector", _RESOURCE, "string", run=lambda r, value: r),
    method("labelSelector", _RESOURCE, "string", run=lambda r, value: r),
    method("check", _RESOURCE, "string", run=_check_resource),
    method("check", _PATH, "string", run=lambda p, verb: _ask(AccessCheck(verb, p.account, p.path))),
    method("allowed", _DECISION, run=lambda decision: decision.is_allowed),
    method("reason", _DECISION, run=lambda decision: decision.why),
    method("errored", _DECISION, run=lambda decision: bool(decision.failure)),
    method("error", _DECISION, run=lambda decision: decision.failure),
)

"""``authorizer``: asking whether the user of a request (or a service account) may do something.

Selectors of a check are not passed on: the check covers the whole collection, so it never allows more than
Kubernetes would.
"""

from __future__ import annotations

from typing import Any

from .access_checks import ASKING, AccessCheck
from .declarations import T, method
from .opaque_types import opaque

_PREFIX = "kubernetes.authorization."
_AUTHORIZER, _DECISION = opaque(f"{_PREFIX}Authorizer"), opaque(f"{_PREFIX}Decision")
_PATH, _GROUP, _RESOURCE = (opaque(_PREFIX + name) for name in ("PathCheck", "GroupCheck", "ResourceCheck"))


def authorizer() -> Any:
    """The value of the variable ``authorizer``."""
    return _AUTHORIZER.make()


def resource_check(group: str, resource: str, subresource: str, namespace: str, name: str) -> Any:
    """The value of the variable ``authorizer.requestResource``."""
    return _RESOURCE.make(
        group=group, resource=resource, subresource=subresource, namespace=namespace, name=name
    )


def _copied(check: Any, **changes: str) -> Any:
    copy = _RESOURCE.make()
    copy.CopyFrom(check)
    for field, value in changes.items():
        setattr(copy, field, value)
    return copy


def _ask(question: AccessCheck) -> Any:
    ask = ASKING.get(None)
    if ask is None:
        raise ValueError("the authorizer is not available in this expression")
    allowed, reason = ask(question)
    return _DECISION.make(is_allowed=allowed, why=reason)


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
    return _GROUP.make(account=value.account, group=group)


def _resource(value: Any, resource: str) -> Any:
    return _RESOURCE.make(account=value.account, group=value.group, resource=resource)


_A, _D, _P, _G, _R = _AUTHORIZER.type, _DECISION.type, _PATH.type, _GROUP.type, _RESOURCE.type
FUNCTIONS = (
    method("path", _A, T.STRING, returns=_P, run=lambda a, path: _PATH.make(account=a.account, path=path)),
    method("group", _A, T.STRING, returns=_G, run=_group),
    method(
        "serviceAccount",
        _A,
        T.STRING,
        T.STRING,
        returns=_A,
        run=lambda a, namespace, name: _AUTHORIZER.make(account=f"{namespace}/{name}"),
    ),
    method("resource", _G, T.STRING, returns=_R, run=_resource),
    method("subresource", _R, T.STRING, returns=_R, run=lambda r, value: _copied(r, subresource=value)),
    method("namespace", _R, T.STRING, returns=_R, run=lambda r, value: _copied(r, namespace=value)),
    method("name", _R, T.STRING, returns=_R, run=lambda r, value: _copied(r, name=value)),
    method("fieldSelector", _R, T.STRING, returns=_R, run=lambda r, value: r),
    method("labelSelector", _R, T.STRING, returns=_R, run=lambda r, value: r),
    method("check", _R, T.STRING, returns=_D, run=_check_resource),
    method("check", _P, T.STRING, returns=_D, run=lambda p, verb: _ask(AccessCheck(verb, p.account, p.path))),
    method("allowed", _D, returns=T.BOOL, run=lambda decision: decision.is_allowed),
    method("reason", _D, returns=T.STRING, run=lambda decision: decision.why),
    method("errored", _D, returns=T.BOOL, run=lambda decision: bool(decision.failure)),
    method("error", _D, returns=T.STRING, run=lambda decision: decision.failure),
)

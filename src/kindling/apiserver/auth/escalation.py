"""RBAC escalation check: a user cannot grant rights without having them, or ``escalate`` or ``bind``."""

from __future__ import annotations

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects.fields import go_quote

from ..registry.admission import AuthorizationQuery
from ..registry.context import RequestContext, UserInfo
from .rbac import GROUP, MASTERS, RbacAuthorizer
from .rules import Rule, TooManyCombinations, from_json, uncovered


class EscalationCheck:
    """Called for each create and update of roles and bindings, before they are stored."""

    def __init__(self, rbac: RbacAuthorizer) -> None:
        self._rbac = rbac

    def check(self, ctx: RequestContext, new: JsonObject, old: JsonObject | None) -> None:
        """Raise StatusError (403, or 404 for a binding to a missing role) unless the user may do this."""
        plural = ctx.resource.plural
        if ctx.resource.group != GROUP or MASTERS in ctx.user.groups:
            return
        if plural in ("roles", "clusterroles"):
            self._check_role(ctx, new, old)
        elif plural in ("rolebindings", "clusterrolebindings"):
            self._check_binding(ctx, new, old)

    def _may(self, ctx: RequestContext, verb: str, plural: str, name: str) -> bool:
        query = AuthorizationQuery(ctx.user, verb, GROUP, "v1", plural, namespace=ctx.namespace, name=name)
        return self._rbac.authorize(query)[0]

    def _check_role(self, ctx: RequestContext, new: JsonObject, old: JsonObject | None) -> None:
        if (
            old is not None
            and old.get("rules") == new.get("rules")
            and (old.get("aggregationRule") == new.get("aggregationRule"))
        ):
            return
        if self._may(ctx, "escalate", ctx.resource.plural, ctx.name):
            return
        wanted = from_json(new.get("rules"))
        if new.get("aggregationRule"):
            wanted = (*wanted, Rule(("*",), ("*",), ("*",)), Rule(("*",), paths=("*",)))
        self._refuse_missing(ctx, wanted)

    def _check_binding(self, ctx: RequestContext, new: JsonObject, old: JsonObject | None) -> None:
        if old is not None and all(old.get(key) == new.get(key) for key in ("roleRef", "subjects")):
            return
        reference = new.get("roleRef") or {}
        kind, name = str(reference.get("kind") or ""), str(reference.get("name") or "")
        plural = "roles" if kind == "Role" else "clusterroles"
        if self._may(ctx, "bind", plural, name):
            return
        rules = self._rbac.rules_of(kind, ctx.namespace, name)
        if rules is None:
            raise errors.not_found(ctx.resource, name)
        self._refuse_missing(ctx, rules)

    def _refuse_missing(self, ctx: RequestContext, wanted: tuple[Rule, ...]) -> None:
        held = [grant.rule for grant in self._rbac.grants(ctx.user, ctx.namespace)]
        try:
            missing = uncovered(held, wanted)
        except TooManyCombinations as error:
            text = f"{_show_user(ctx.user)} is attempting to grant more RBAC permissions than can be compared"
            raise errors.forbidden(
                ctx.resource, ctx.name, f"{text} with those held; use several roles"
            ) from error
        if not missing:
            return
        lines = "\n".join(rule.show() for rule in missing)
        raise errors.forbidden(
            ctx.resource,
            ctx.name,
            f"{_show_user(ctx.user)} is attempting to grant RBAC permissions not currently held:\n{lines}",
        )


def _show_user(user: UserInfo) -> str:
    groups = " ".join(go_quote(group) for group in user.groups)
    return f"user {go_quote(user.name)} (groups=[{groups}])"

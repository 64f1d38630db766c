"""RBAC: rules, bindings, aggregation, and what nobody may grant."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest

from kindling.apiserver.auth import rbac
from kindling.apiserver.auth.rules import Rule, TooManyCombinations, compact, from_json, uncovered
from kindling.apiserver.bootstrap.roles import cluster_roles
from kindling.apiserver.registry.admission import AuthorizationQuery
from kindling.apiserver.registry.context import UserInfo
from kindling.controllers.accounts.cluster_roles import rules as aggregated_rules

ANN = UserInfo("ann", groups=("crew", "system:authenticated"))


def ask(verb: str = "get", resource: str = "pods", **more: Any) -> AuthorizationQuery:
    return AuthorizationQuery(more.pop("user", ANN), verb, resource=resource, **more)


@pytest.mark.parametrize(
    ("rule", "query", "allowed"),
    [
        (Rule(("get",), ("",), ("pods",)), ask(), True),
        (Rule(("get",), ("",), ("pods",)), ask("list"), False),
        (Rule(("get",), ("",), ("pods",)), ask(subresource="log"), False),
        (Rule(("get",), ("",), ("pods/log",)), ask(subresource="log"), True),
        (Rule(("get",), ("",), ("*/log",)), ask(subresource="log"), True),
        (Rule(("get",), ("",), ("pods/*",)), ask(subresource="log"), False),
        (Rule(("*",), ("*",), ("*",)), ask("anything", group="apps", subresource="status"), True),
        (Rule(("get",), ("apps",), ("pods",)), ask(), False),
        (Rule(("get",), ("",), ("pods",), ("one",)), ask(name="one"), True),
        (Rule(("get",), ("",), ("pods",), ("one",)), ask(), False),
        (Rule(("get",), paths=("/logs/*",)), AuthorizationQuery(ANN, "get", path="/logs/x"), True),
        (Rule(("get",), paths=("/logs",)), AuthorizationQuery(ANN, "get", path="/logs/x"), False),
        (Rule(("get",), paths=("/logs",)), ask(), False),
    ],
)
def test_a_rule_allows_exactly_what_it_names(rule: Rule, query: AuthorizationQuery, allowed: bool) -> None:
    assert rule.allows(query) is allowed


def _role(name: str, rules: list[Any], namespace: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "rules": rules}


def _binding(
    name: str, role: str, subjects: list[Any], namespace: str = "", kind: str = "ClusterRole"
) -> Any:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"kind": kind, "name": role},
        "subjects": subjects,
    }


def test_questions_of_any_length_are_not_remembered() -> None:
    authorizer = rbac.RbacAuthorizer()
    tracemalloc.start()
    for number in range(50):
        assert authorizer.authorize(ask(name=f"{number}" + "x" * 1_000_000)) == (False, "")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 8 << 20


def test_bindings_open_their_namespace_and_close_with_their_deletion() -> None:
    authorizer = rbac.RbacAuthorizer()
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
    authorizer.changed(rbac.CLUSTER_ROLES, "ADDED", _role("reader", rules))
    binding = _binding("b", "reader", [{"kind": "Group", "name": "crew"}], "here")
    authorizer.changed(rbac.ROLE_BINDINGS, "ADDED", binding)
    assert authorizer.authorize(ask(namespace="here")) == (
        True,
        'RBAC: allowed by RoleBinding "b/here" of ClusterRole "reader" to Group "crew"',
    )
    assert authorizer.authorize(ask(namespace="there")) == (False, "")
    authorizer.changed(rbac.ROLE_BINDINGS, "DELETED", binding)
    assert authorizer.authorize(ask(namespace="here")) == (False, "")


def test_service_accounts_are_the_users_that_stand_for_them() -> None:
    authorizer = rbac.RbacAuthorizer()
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
    authorizer.changed(rbac.CLUSTER_ROLES, "ADDED", _role("reader", rules))
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "n"}
    authorizer.changed(rbac.CLUSTER_ROLE_BINDINGS, "ADDED", _binding("b", "reader", [subject]))
    allowed, reason = authorizer.authorize(ask(user=UserInfo("system:serviceaccount:n:robot")))
    assert allowed
    assert reason.endswith('to ServiceAccount "robot/n"')


def test_a_missing_role_is_named_in_the_refusal() -> None:
    authorizer = rbac.RbacAuthorizer()
    authorizer.changed(
        rbac.CLUSTER_ROLE_BINDINGS, "ADDED", _binding("b", "no", [{"kind": "User", "name": "ann"}])
    )
    assert authorizer.authorize(ask()) == (
        False,
        'RBAC: clusterrole.rbac.authorization.k8s.io "no" not found',
    )


def test_what_is_granted_beyond_what_is_held_is_listed_compactly() -> None:
    held = [Rule(("get", "list"), ("",), ("configmaps",)), Rule(("get",), ("",), ("secrets",), ("one",))]
    wanted = [
        Rule(("get", "delete", "patch"), ("",), ("configmaps",)),
        Rule(("get",), ("",), ("secrets",), ("one", "two")),
    ]
    assert [rule.show() for rule in uncovered(held, wanted)] == [
        '{APIGroups:[""], Resources:["configmaps"], Verbs:["delete" "patch"]}'.replace('" "', '", "'),
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["two"], Verbs:["get"]}',
    ]
    assert not uncovered([Rule(("*",), ("*",), ("*",))], wanted)


_WIDE = tuple(f"x{number}" for number in range(900))
"""Four such lists are 16 KiB, and a million million combinations."""


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ([], [Rule(_WIDE, _WIDE, _WIDE, _WIDE)]),
        ([], [Rule(_WIDE, paths=_WIDE)] * 10),
        (
            [Rule(("get",), ("",), ("pods",), _WIDE)] * 500,
            [Rule(("get",), ("",), ("pods",), _WIDE[:-1])] * 500,
        ),
    ],
    ids=["wide", "paths", "many"],
)
def test_rules_of_more_combinations_than_can_be_compared_are_refused(
    held: list[Rule], wanted: list[Rule]
) -> None:
    begun = time.thread_time()
    with pytest.raises(TooManyCombinations):
        uncovered(held, wanted)
    assert time.thread_time() - begun < 3, "meanwhile nobody is answered"


def test_a_rule_of_many_combinations_passes_where_one_that_is_held_includes_it() -> None:
    wanted = Rule(_WIDE, _WIDE, _WIDE, _WIDE)
    assert not uncovered([Rule(("*",), ("*",), ("*",))], [wanted])
    assert not uncovered([Rule(_WIDE, ("*",), (*_WIDE, "more"), _WIDE)], [wanted])
    assert not uncovered([Rule(("*",), paths=("/a/*",))], [Rule(_WIDE, paths=("/a/b", "/a/c"))])


@pytest.mark.parametrize(
    "held",
    [
        Rule(("get",), ("",), ("pods", "secrets"), ("one",)),
        Rule(("list",), ("",), ("pods", "secrets")),
        Rule(("get",), ("apps",), ("pods", "secrets")),
        Rule(("get",), ("",), ("pods",)),
    ],
)
def test_a_rule_includes_no_more_than_it_grants(held: Rule) -> None:
    wanted = Rule(("get",), ("",), ("pods", "secrets"))
    assert not held.includes(wanted)
    assert uncovered([held], [wanted])


def _authorizer_of(namespace: str, roles: int, rules: int) -> rbac.RbacAuthorizer:
    """Somebody has many roles of many rules in a namespace, all of them for everybody."""
    authorizer = rbac.RbacAuthorizer()
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}
    everybody = [{"kind": "Group", "name": "system:authenticated"}]
    for number in range(roles):
        name = f"r{number:05}"
        authorizer.changed(rbac.ROLES, "ADDED", _role(name, [rule] * rules, namespace))
        authorizer.changed(rbac.ROLE_BINDINGS, "ADDED", _binding(name, name, everybody, namespace, "Role"))
    return authorizer


@pytest.mark.parametrize(("roles", "rules"), [(20, 20_000), (20_000, 1)], ids=["rules", "bindings"])
def test_a_question_about_a_namespace_takes_so_long_however_many_rules_it_has(roles: int, rules: int) -> None:
    authorizer = _authorizer_of("there", roles, rules)
    begun = time.thread_time()
    for number in range(10):
        assert authorizer.authorize(ask("watch", name=f"n{number}", namespace="there")) == (False, "")
    assert time.thread_time() - begun < 2
    assert authorizer.authorize(ask(name="a", namespace="there"))[0], "the first of them count"


def test_nothing_is_left_of_bindings_that_are_gone() -> None:
    authorizer = rbac.RbacAuthorizer()
    tracemalloc.start()
    for round_ in range(5):
        subjects = [{"kind": "User", "name": f"{round_}-{number}"} for number in range(5000)]
        for name, of in (("b", subjects), ("empty", [])):
            binding = _binding(name, "r", of, f"n{round_}")
            authorizer.changed(rbac.ROLE_BINDINGS, "ADDED", binding)
        for name, of in (("b", subjects), ("empty", [])):
            binding = _binding(name, "r", of, f"n{round_}")
            authorizer.changed(rbac.ROLE_BINDINGS, "DELETED", binding)
    del subjects, binding, of
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1 << 19


def test_compacting_joins_the_verbs_of_one_resource() -> None:
    rules = [Rule(("get",), ("",), ("pods",)), Rule(("list",), ("",), ("pods",))]
    assert compact(rules) == [Rule(("get", "list"), ("",), ("pods",))]


def test_the_default_roles_aggregate_view_into_edit_into_admin() -> None:
    roles = {role["metadata"]["name"]: role for role in cluster_roles()}
    for name in ("view", "edit", "admin"):
        roles[name]["rules"] = aggregated_rules(roles[name], roles.values())

    def may(role: str, verb: str, resource: str) -> bool:
        return any(rule.allows(ask(verb, resource)) for rule in from_json(roles[role]["rules"]))

    assert may("view", "get", "configmaps")
    assert not may("view", "get", "secrets")
    assert may("edit", "get", "secrets")
    assert not may("edit", "create", "resourcequotas")
    assert may("admin", "get", "configmaps")

"""Roles and bindings."""

from __future__ import annotations

from collections.abc import Iterable

from kindling.apiserver.kinds.machinery.checks import one_of
from kindling.apiserver.kinds.machinery.fields import (
    PATH_SEGMENT,
    SUBDOMAIN,
    Field,
    always,
    check_fields,
    choice,
    document,
    equals,
    given,
    items,
    may,
    must,
    part,
    selector,
    when,
)
from kindling.apiserver.kinds.machinery.internal import internal_form
from kubecore.json import JsonObject
from kubecore.objects.fields import FieldError, FieldPath, invalid, not_supported

GROUP = "rbac.authorization.k8s.io"
_INTERNAL_REFERENCE = {"APIGroup": "", "Kind": "", "Name": ""}
_NO_SELECTORS = "at least one clusterRoleSelector required if aggregationRule is non-nil"
_BOTH = "rules cannot apply to both regular resources and non-resource URLs"


def _selects(path: FieldPath, value: JsonObject) -> list[FieldError]:
    problems = list(selector(path, value))
    return [*problems, invalid(path, None, "invalid label selector.")] if problems else []


def _resources_or_urls(path: FieldPath, rule: JsonObject) -> Iterable[FieldError]:
    urls = rule.get("nonResourceURLs")
    if not urls:
        return check_fields(rule, path, *_RESOURCES)
    mixed = any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames"))
    return [invalid(path.child("nonResourceURLs"), urls, _BOTH)] if mixed else []


def _no_urls(path: FieldPath, urls: list[str]) -> list[FieldError]:
    return [invalid(path, urls, "namespaced rules cannot apply to non-resource URLs")]


_RESOURCES = (
    must("apiGroups", detail="resource rules must supply at least one api group"),
    must("resources", detail="resource rules must supply at least one resource"),
)
_VERBS = must("verbs", detail="verbs must contain at least one value")
_AGGREGATION = given("aggregationRule", must("clusterRoleSelectors", items(_selects), detail=_NO_SELECTORS))
CLUSTER_ROLE = document(may("rules", items(_VERBS, _resources_or_urls)), _AGGREGATION)
ROLE = document(may("rules", items(_VERBS, may("nonResourceURLs", _no_urls), _resources_or_urls)))
"""Every rule names verbs and either resources or URLs."""


def _subject(path: FieldPath, subject: JsonObject) -> Iterable[FieldError]:
    kind = subject.get("kind", "")
    if kind == "ServiceAccount":
        return check_fields(subject, path, may("name", SUBDOMAIN), may("apiGroup", choice("")))
    if kind in ("User", "Group"):
        return check_fields(subject, path, always("apiGroup", "", choice(GROUP)))
    return [not_supported(path.child("kind"), kind, ["ServiceAccount", "User", "Group"])]


def _group(path: FieldPath, role: JsonObject) -> list[FieldError]:
    return one_of(path.child("apiGroup"), role.get("apiGroup"), [GROUP])


def _binding(*kinds: str) -> Field:
    return part("roleRef", _group, always("kind", "", choice(*kinds)), must("name", PATH_SEGMENT))


_OF_ACCOUNT = when(equals("kind", "ServiceAccount"), must("namespace"))
CLUSTER_ROLE_BINDING = document(
    _binding("ClusterRole"), may("subjects", items(must("name"), _subject, _OF_ACCOUNT))
)
ROLE_BINDING = document(_binding("Role", "ClusterRole"), may("subjects", items(must("name"), _subject)))
"""The reference and each subject."""


def validate_role_kept(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """The role reference is immutable."""
    if new["roleRef"] == old["roleRef"]:
        return []
    return [invalid("roleRef", internal_form(new["roleRef"], _INTERNAL_REFERENCE), "cannot change roleRef")]

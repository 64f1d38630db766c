"""Roles and bindings."""

from __future__ import annotations

from collections.abc import Iterator

from kindling.apiserver.kinds.machinery.fields import check_fields, needed
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.fields import FieldError, FieldPath, invalid, not_supported, required
from kubecore.objects.names import is_dns1123_subdomain, is_path_segment_name
from kubecore.objects.selectors import validate_label_selector_object

GROUP = "rbac.authorization.k8s.io"


def validate_role(obj: JsonObject, *, cluster: bool) -> Iterator[FieldError]:
    """Every rule names verbs and either resources or URLs."""
    for position, rule in enumerate(obj.get("rules") or ()):
        yield from validate_rule(rule, FieldPath("rules").index(position), namespaced=not cluster)
    aggregation = obj.get("aggregationRule")
    if isinstance(aggregation, dict):
        path = FieldPath("aggregationRule", "clusterRoleSelectors")
        selectors = get_list(aggregation, "clusterRoleSelectors")
        if not selectors:
            yield required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
        for position, selector in enumerate(selectors):
            problems = validate_label_selector_object(selector, path.index(position))
            if problems:
                problems.append(invalid(path.index(position), None, "invalid label selector."))
            yield from problems


def validate_rule(rule: JsonObject, path: FieldPath, *, namespaced: bool) -> Iterator[FieldError]:
    """One policy rule."""
    if not rule.get("verbs"):
        yield required(path.child("verbs"), "verbs must contain at least one value")
    urls, groups, resources = rule.get("nonResourceURLs"), rule.get("apiGroups"), rule.get("resources")
    if urls:
        if namespaced:
            yield invalid(
                path.child("nonResourceURLs"), urls, "namespaced rules cannot apply to non-resource URLs"
            )
        if groups or resources or rule.get("resourceNames"):
            yield invalid(
                path.child("nonResourceURLs"),
                urls,
                "rules cannot apply to both regular resources and non-resource URLs",
            )
        return
    if not groups:
        yield required(path.child("apiGroups"), "resource rules must supply at least one api group")
    if not resources:
        yield required(path.child("resources"), "resource rules must supply at least one resource")


def validate_binding(obj: JsonObject, *, cluster: bool) -> Iterator[FieldError]:
    """The reference and each subject."""
    role = get_object(obj, "roleRef")
    path = FieldPath("roleRef")
    if role.get("apiGroup") != GROUP:
        yield not_supported(path.child("apiGroup"), role.get("apiGroup"), [GROUP])
    kinds = ["ClusterRole"] if cluster else ["Role", "ClusterRole"]
    if role.get("kind") not in kinds:
        yield not_supported(path.child("kind"), role.get("kind", ""), kinds)
    if not role.get("name"):
        yield required(path.child("name"))
    else:
        yield from (
            invalid(path.child("name"), role["name"], text) for text in is_path_segment_name(role["name"])
        )
    for position, subject in enumerate(obj.get("subjects") or ()):
        yield from _validate_subject(subject, FieldPath("subjects").index(position), cluster=cluster)


def _validate_subject(subject: JsonObject, path: FieldPath, *, cluster: bool) -> Iterator[FieldError]:
    name, group, kind = subject.get("name", ""), subject.get("apiGroup", ""), subject.get("kind", "")
    yield from check_fields(subject, path, *needed("name"))
    if kind == "ServiceAccount":
        if name:
            yield from (invalid(path.child("name"), name, text) for text in is_dns1123_subdomain(name))
        if group:
            yield not_supported(path.child("apiGroup"), group, [""])
        if cluster and not subject.get("namespace"):
            yield required(path.child("namespace"))
    elif kind in ("User", "Group"):
        if group != GROUP:
            yield not_supported(path.child("apiGroup"), group, [GROUP])
    else:
        yield not_supported(path.child("kind"), kind, ["ServiceAccount", "User", "Group"])


def validate_role_kept(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """The role reference is immutable."""
    if new["roleRef"] == old["roleRef"]:
        return []
    return [invalid("roleRef", _reference_dump(new["roleRef"]), "cannot change roleRef")]


def _reference_dump(reference: JsonObject) -> JsonObject:
    return {
        "APIGroup": reference.get("apiGroup", ""),
        "Kind": reference.get("kind", ""),
        "Name": reference.get("name", ""),
    }

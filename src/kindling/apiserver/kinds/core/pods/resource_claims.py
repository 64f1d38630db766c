"""Claims of devices by pods and their containers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import messages
from kindling.apiserver.kinds.machinery.internal import internal_form
from kubecore.json import JsonObject
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, duplicate, invalid, not_found_because, required

_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")
_INTERNAL = {"Name": "", "ResourceClaimName": None, "ResourceClaimTemplateName": None}


def claim_names(spec: Mapping[str, Any]) -> frozenset[str]:
    """The names by which containers of a pod know its claims."""
    return frozenset(filter(None, (claim.get("name") for claim in spec.get("resourceClaims") or ())))


def resource_claims(pod_name: str | None) -> f.Check:
    """The claims of a pod of this name; None for templates, whose pods have other names."""

    def check(path: FieldPath, claims: list[JsonObject]) -> Iterator[FieldError]:
        seen: set[str] = set()
        for position, claim in enumerate(claims):
            at = path.index(position)
            yield from _name(at.child("name"), claim, pod_name, seen)
            seen.add(claim.get("name") or "")
            yield from _source(at, claim)

    return check


def _name(path: FieldPath, claim: JsonObject, pod_name: str | None, seen: set[str]) -> Iterator[FieldError]:
    name = claim.get("name") or ""
    if not name:
        yield required(path)
        return
    if name in seen:
        yield duplicate(path, name)
        return
    problems = messages(path, name, names.is_dns1123_label)
    yield from problems
    if not problems and pod_name is not None and claim.get("resourceClaimTemplateName") is not None:
        made = f"{pod_name}-{name}"
        for problem in names.is_dns1123_subdomain(made):
            yield invalid(path, made, f"final ResourceClaim name is invalid: {problem}")


def _source(path: FieldPath, claim: JsonObject) -> Iterator[FieldError]:
    """A claim that is there, or a template to make one of."""
    given = [field for field in _SOURCES if claim.get(field) is not None]
    shown = internal_form(claim, _INTERNAL)
    if not given:
        yield invalid(path, shown, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
    if len(given) > 1:
        text = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        yield invalid(path, shown, text)
    for field in given:
        yield from f.SUBDOMAIN(path.child(field), claim[field])


def used_claims(path: FieldPath, claims: list[Any], known: Collection[str]) -> Iterator[FieldError]:
    """The claims that a container uses, of those of its pod."""
    seen: set[str] = set()
    for position, claim in enumerate(claims):
        at, name, request = path.index(position), claim.get("name") or "", claim.get("request") or ""
        if not name:
            yield required(at)
            continue
        if request:
            yield from f.LABEL(at.child("request"), request)
        key = f"{name}/{request}" if request else name
        if key in seen:
            yield duplicate(at, key)
        seen.add(key)
        if name not in known:
            listed = f": {', '.join(sorted(known))}" if known else " which is empty"
            yield not_found_because(at, name, f"must be one of the names in pod.spec.resourceClaims{listed}")

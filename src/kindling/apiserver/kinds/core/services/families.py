"""The address families of a service: what its policy, families and addresses say about each other.

A service never changes between one family and two by itself, only when its policy says so (as
``initIPFamilyFields`` of the Kubernetes API server decides).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kindling.apiserver.kinds.machinery.checks import parse_address
from kubecore.json import JsonObject, get_list
from kubecore.objects.fields import FieldError, FieldPath, invalid

SINGLE, PREFER, REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"
FAMILIES = ("IPv4", "IPv6")
_SPEC = FieldPath("spec")
_POLICY = _SPEC.child("ipFamilyPolicy")


def settle(spec: JsonObject, before: Mapping[str, Any] | None, known: Sequence[str]) -> list[FieldError]:
    """Set policy and families of a service that is not of type ExternalName, in place.

    `before` is the specification to be replaced, `known` are the families of the cluster's service addresses,
    the default one first.
    """
    if before is not None and _keeps_preference(spec, before):
        return []
    headless = spec.get("clusterIP") == "None"
    anything = headless and not spec.get("selector")
    if not spec.get("ipFamilyPolicy"):
        inherited = (before or {}).get("ipFamilyPolicy")
        spec["ipFamilyPolicy"] = inherited or (REQUIRE if anything else SINGLE)
    found = list(_reduced(spec, before)) if before is not None else []
    found += _too_many(spec)
    found += _inferred(spec, known)
    if found:
        return found
    if not anything:
        found = list(_unknown(spec, known))
        if found:
            return found
    if not spec.get("ipFamilies"):
        spec["ipFamilies"] = [known[0]]
    # Only where a service has neither addresses nor endpoints of the cluster's, can it have foreign families.
    others = [family for family in (FAMILIES if anything else known) if family not in spec["ipFamilies"]]
    if spec["ipFamilyPolicy"] != SINGLE and len(spec["ipFamilies"]) == 1:
        spec["ipFamilies"] = [*spec["ipFamilies"], *others]
    return []


def _keeps_preference(spec: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether the update leaves all of it as it is: services that prefer two families do not get the second
    one because the cluster got it.
    """
    return (
        spec.get("type") == before.get("type")
        and spec.get("ipFamilyPolicy") == before.get("ipFamilyPolicy") == PREFER
        and all(get_list(spec, field) == get_list(before, field) for field in ("clusterIPs", "ipFamilies"))
    )


def _reduced(spec: JsonObject, before: Mapping[str, Any]) -> Iterator[FieldError]:
    """Take the second family away if the policy says so; an error if the lists do without it."""
    for field, what in (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")):
        values, known = get_list(spec, field), get_list(before, field)
        if spec["ipFamilyPolicy"] == SINGLE:
            if values == known and len(values) > 1:
                spec[field] = values[:1]
        elif values and len(values) < len(known):
            yield invalid(
                _POLICY, spec["ipFamilyPolicy"], f"must be 'SingleStack' to release the secondary {what}"
            )


def _too_many(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    for field, what in (("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")):
        if spec["ipFamilyPolicy"] == SINGLE and len(get_list(spec, field)) == 2:
            text = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
            yield invalid(_POLICY, spec["ipFamilyPolicy"], text)


def _inferred(spec: JsonObject, known: Sequence[str]) -> Iterator[FieldError]:
    """Add the families of the addresses that were asked for."""
    values = get_list(spec, "clusterIPs")
    for position, value in enumerate(values):
        parsed = parse_address(value)
        if parsed is None or position < len(get_list(spec, "ipFamilies")):
            continue
        family = f"IPv{parsed.version}"
        if family in known:
            spec["ipFamilies"] = [*get_list(spec, "ipFamilies"), family]
        else:
            text = f"{family} is not configured on this cluster"
            yield invalid(_SPEC.child("clusterIPs").index(position), values, text)


def _unknown(spec: Mapping[str, Any], known: Sequence[str]) -> Iterator[FieldError]:
    if spec["ipFamilyPolicy"] == REQUIRE and len(known) < 2:
        yield invalid(_POLICY, REQUIRE, "this cluster is not configured for dual-stack services")
    for position, family in enumerate(get_list(spec, "ipFamilies")):
        if family not in known:
            yield invalid(_SPEC.child("ipFamilies").index(position), family, "not configured on this cluster")


def unchangeable(spec: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[FieldError]:
    """What an update may not change: the primary address and family, and the secondary while it is kept."""
    if "ExternalName" in (spec.get("type"), before.get("type")):
        return
    was_headless, is_headless = (found.get("clusterIP") == "None" for found in (before, spec))
    if not (was_headless and is_headless):
        yield from _unchangeable_addresses(get_list(spec, "clusterIPs"), get_list(before, "clusterIPs"))
    if not (was_headless or is_headless):
        yield from _unchangeable_families(get_list(spec, "ipFamilies"), get_list(before, "ipFamilies"))


def _unchangeable_addresses(values: list[str], known: list[str]) -> Iterator[FieldError]:
    at = _SPEC.child("clusterIPs")
    if known and not values:
        yield invalid(at.index(0), values, "primary clusterIP can not be unset")
        return
    for position, (value, old) in enumerate(zip(values, known, strict=False)):
        if value != old:
            yield invalid(at.index(position), values, "may not change once set")


def _unchangeable_families(values: list[str], known: list[str]) -> Iterator[FieldError]:
    if any(value != old for value, old in zip(values, known, strict=False)):
        yield invalid(_SPEC.child("ipFamilies").index(0), values, "may not change once set")

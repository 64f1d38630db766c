"""Accepting the names of definitions: within a group, each name belongs to one resource."""

from __future__ import annotations

from collections.abc import Iterable

from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects import meta

_CONFLICTS = {
    "plural": "PluralConflict",
    "singular": "SingularConflict",
    "shortNames": "ShortNamesConflict",
    "kind": "KindConflict",
    "listKind": "ListKindConflict",
}


def establish(crd: JsonObject, others: Iterable[JsonObject]) -> bool:
    """Set the accepted names and the conditions in the status of `crd`; True when anything changed.

    `others` are all other definitions; names that one of the same group has got are taken.
    """
    before = deep_copy(get_object(crd, "status"))
    status = crd.setdefault("status", {})
    group = get_str(crd, "spec", "group")
    taken = [get_object(other, "status", "acceptedNames") for other in others if _group(other) == group]
    resources = {str(name) for names in taken for name in _resource_names(names)}
    kinds = {str(names.get(field)) for names in taken for field in ("kind", "listKind")}
    accepted, conflict = _accepted(crd, resources, kinds)
    status["acceptedNames"] = accepted
    conditions = list(status.get("conditions") or [])
    if conflict:
        field, message = conflict
        meta.set_condition(conditions, "NamesAccepted", "False", _CONFLICTS[field], message)
    else:
        meta.set_condition(conditions, "NamesAccepted", "True", "NoConflicts", "no conflicts found")
    established = meta.find_condition(conditions, "Established")
    if established is None or established.get("status") != "True":
        outcome = ("True", "InitialNamesAccepted", "the initial names have been accepted")
        if conflict:
            outcome = ("False", "NotAccepted", "not all names are accepted")
        meta.set_condition(conditions, "Established", *outcome)
    status["conditions"] = conditions
    return bool(status != before)


def is_served(crd: JsonObject) -> bool:
    """Whether the resources of a definition are offered."""
    return meta.is_condition_true(crd, "Established")


def _group(crd: JsonObject) -> str:
    return get_str(crd, "spec", "group")


def _resource_names(names: JsonObject) -> list[str]:
    found = [names.get("plural"), names.get("singular"), *(names.get("shortNames") or ())]
    return [str(name) for name in found if name]


def _accepted(
    crd: JsonObject, resources: set[str], kinds: set[str]
) -> tuple[JsonObject, tuple[str, str] | None]:
    """The accepted names of `crd` (its old ones where new ones are taken), and the last conflict."""
    wanted, had = get_object(crd, "spec", "names"), get_object(crd, "status", "acceptedNames")
    accepted: JsonObject = {"plural": "", "kind": "", **deep_copy(had)}
    conflict: tuple[str, str] | None = None
    for field in ("plural", "singular", "shortNames", "kind", "listKind"):
        value = wanted.get(field)
        values = get_list(wanted, field) if field == "shortNames" else [value]
        used = [each for each in values if each in (kinds if "ind" in field else resources)]
        if used:
            texts = [f'"{each}" is already in use' for each in used]
            conflict = (field, texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
        elif value:
            accepted[field] = value
        else:
            accepted.pop(field, None)
    if wanted.get("categories"):
        accepted["categories"] = wanted["categories"]
    else:
        accepted.pop("categories", None)
    return accepted, conflict

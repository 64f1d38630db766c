"""Names of definitions are accepted once in a group."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.crds import names
from kubecore.objects import meta


def crd(plural: str, kind: str, group: str = "example.com", **more: Any) -> dict[str, Any]:
    accepted = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List", **more}
    return {"metadata": {"name": f"{plural}.{group}"}, "spec": {"group": group, "names": accepted}}


def test_free_names_are_accepted_and_the_definition_is_established() -> None:
    new = crd("widgets", "Widget", shortNames=["wg"])
    assert names.establish(new, [])
    assert new["status"]["acceptedNames"] == new["spec"]["names"]
    assert meta.is_condition_true(new, "NamesAccepted")
    assert names.is_served(new)


def test_accepting_again_changes_nothing() -> None:
    new = crd("widgets", "Widget")
    names.establish(new, [])
    assert not names.establish(new, [])


def test_a_kind_in_use_keeps_a_definition_from_being_established() -> None:
    first, second = crd("widgets", "Widget"), crd("gadgets", "Widget")
    names.establish(first, [])
    names.establish(second, [first])
    condition = meta.get_condition(second, "NamesAccepted")
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("False", "ListKindConflict")
    assert condition["message"] == '"WidgetList" is already in use'
    assert not names.is_served(second)


def test_other_groups_do_not_conflict() -> None:
    first, second = crd("widgets", "Widget"), crd("widgets", "Widget", group="example.org")
    names.establish(first, [])
    names.establish(second, [first])
    assert names.is_served(second)

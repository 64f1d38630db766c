"""Validation that is stated as rules: which function judges what, and fields that never change."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy
from kindling.apiserver.kinds.machinery.rules import Rules, unjudged
from kubecore.json import JsonObject
from kubecore.objects.fields import FieldError, required


def _named(obj: JsonObject) -> list[FieldError]:
    return [] if obj.get("name") else [required("name")]


def _shown(errors: list[FieldError]) -> list[str]:
    return [f"{error.field}: {error.detail}" for error in errors]


class _Strategy(BuiltinStrategy):
    rules = Rules(_named, immutable=("spec.class", "kind"), status=lambda new, old: _named(new))


def test_a_change_must_satisfy_what_a_new_object_must_and_keep_the_immutable_fields(kinds: Any) -> None:
    old = {"spec": {"class": "a"}, "kind": "x"}
    new = {"spec": {"class": "b"}, "kind": "y"}
    found = _Strategy().validate_update(kinds.context("pods"), new, old)
    assert _shown(found) == ["name: ", "spec.class: field is immutable", "kind: field is immutable"]
    assert _Strategy().validate_update(kinds.context("pods"), {**old, "name": "n"}, old) == []


def test_an_immutable_field_below_an_object_that_went_away_has_changed(kinds: Any) -> None:
    found = _Strategy().validate_update(kinds.context("pods"), {"name": "n"}, {"spec": {"class": "a"}})
    assert _shown(found) == ["spec.class: field is immutable"]


def test_a_change_of_a_kind_that_overrides_the_judgement_of_new_objects_is_judged_alike(kinds: Any) -> None:
    class Strict(_Strategy):
        def validate(self, ctx: object, obj: JsonObject) -> list[FieldError]:
            return [required("everything")]

    assert _shown(Strict().validate_update(kinds.context("pods"), {}, {})) == ["everything: "]


def test_unjudged_changes_are_limited_by_the_immutable_fields_alone(kinds: Any) -> None:
    class Fixed(BuiltinStrategy):
        rules = Rules(_named, update=unjudged, immutable=("kind",))

    assert _shown(Fixed().validate_update(kinds.context("pods"), {"kind": "y"}, {"kind": "x"})) == [
        "kind: field is immutable"
    ]


def test_a_status_has_a_rule_of_its_own(kinds: Any) -> None:
    assert _shown(_Strategy().validate_status(kinds.context("pods"), {}, {})) == ["name: "]

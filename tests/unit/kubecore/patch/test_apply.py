"""Server-side apply: owning, sharing, conflicting, removing."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kubecore.patch.widgets import API_VERSION, WIDGET, widget

from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy
from kubecore.patch import fieldset, managed
from kubecore.patch.apply import LAST_APPLIED_ANNOTATION, ApplyConflict, apply_object
from kubecore.patch.fieldset import FieldSet
from kubecore.patch.managed import Write, track_update


def _write(manager: str, now: str = "2026-01-01T00:00:00Z", **options: Any) -> Write:
    return Write(manager, API_VERSION, now, **options)


def _apply(
    live: JsonObject | None, applied: JsonObject, manager: str, *, force: bool = False, **options: Any
) -> JsonObject:
    """The stored object after an apply; the arguments must not change."""
    before, wanted = deep_copy(live) if live is not None else None, deep_copy(applied)
    result = apply_object(live, applied, WIDGET, _write(manager, **options), force=force)
    assert (live, applied) == (before, wanted)
    stored = deep_copy(result)
    stored["metadata"]["uid"] = "u"
    return stored


def _update(live: JsonObject | None, new: JsonObject, manager: str) -> JsonObject:
    stored = deep_copy(new)
    stored["metadata"] = {"name": "w", "uid": "u", **stored["metadata"]}
    entries = track_update(live, stored, WIDGET, _write(manager))
    stored["metadata"].pop("managedFields", None)
    if entries:
        stored["metadata"]["managedFields"] = entries
    return stored


def _owners(document: JsonObject) -> dict[str, FieldSet]:
    return {entry["manager"]: entry["fieldsV1"] for entry in document["metadata"].get("managedFields", [])}


def test_applying_creates_and_owns_exactly_what_is_applied() -> None:
    created = _apply(None, widget(map={"x": "1"}, keyed=[{"k": "1", "v": "a"}]), "first")
    assert created["spec"] == {"map": {"x": "1"}, "keyed": [{"k": "1", "v": "a"}]}
    assert created["metadata"]["managedFields"] == [
        {
            "manager": "first",
            "operation": "Apply",
            "apiVersion": API_VERSION,
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:spec": {
                    "f:map": {"f:x": {}},
                    "f:keyed": {'k:{"k":"1"}': {".": {}, "f:k": {}, "f:v": {}}},
                }
            },
        }
    ]


def test_applying_again_changes_nothing_not_even_times() -> None:
    created = _apply(None, widget(map={"x": "1"}), "first")
    again = _apply(created, widget(map={"x": "1"}), "first", now="2027-01-01T00:00:00Z")
    assert again == created


def test_what_is_left_out_is_removed() -> None:
    created = _apply(None, widget(map={"x": "1", "y": "2"}, count=1), "first")
    less = _apply(created, widget(map={"x": "changed"}), "first")
    assert less["spec"] == {"map": {"x": "changed"}}
    nothing = _apply(less, {"apiVersion": API_VERSION, "kind": "Widget", "metadata": {"name": "w"}}, "first")
    assert "spec" not in nothing
    assert "managedFields" not in nothing["metadata"]


def test_two_appliers_own_their_parts_of_a_list_and_share_what_they_agree_on() -> None:
    document = _apply(None, widget(keyed=[{"k": "1", "v": "a"}], set=["s"]), "first")
    document = _apply(document, widget(keyed=[{"k": "2"}], set=["t", "s"]), "second")
    assert document["spec"] == {"keyed": [{"k": "1", "v": "a"}, {"k": "2"}], "set": ["t", "s"]}
    document = _apply(document, widget(set=["s"]), "second")
    assert document["spec"] == {"keyed": [{"k": "1", "v": "a"}], "set": ["s"]}
    document = _apply(document, widget(), "first")
    assert document["spec"] == {"set": ["s"]}


def test_conflicts_name_every_field_and_manager() -> None:
    first = widget(map={"x": "1"})
    first["metadata"]["labels"] = {"l": "1"}
    document = _apply(None, first, "first")
    document = _apply(document, widget(map={"y": "1"}), "other")
    changed = deep_copy(document)
    changed["spec"]["map"]["z"] = "1"
    document = _update(document, changed, "plain")
    wanted = widget(map={"x": "2", "y": "2", "z": "2"})
    wanted["metadata"]["labels"] = {"l": "2"}
    with pytest.raises(ApplyConflict) as caught:
        _apply(document, wanted, "third")
    assert caught.value.message == (
        'Apply failed with 4 conflicts: conflicts with "first":\n- .metadata.labels.l\n- .spec.map.x\n'
        'conflicts with "other":\n- .spec.map.y\nconflicts with "plain" using example.com/v1:\n- .spec.map.z'
    )
    assert caught.value.code == 409 and caught.value.reason == "Conflict"
    assert caught.value.details is not None and caught.value.details["causes"][-1] == {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "plain" using example.com/v1',
        "field": ".spec.map.z",
    }
    forced = _apply(document, wanted, "third", force=True)
    assert list(_owners(forced)) == ["third"]
    assert forced["spec"]["map"] == {"x": "2", "y": "2", "z": "2"}


def test_one_conflict_is_told_in_one_line() -> None:
    document = _apply(None, widget(keyed=[{"k": "1", "v": "a"}]), "first")
    with pytest.raises(ApplyConflict) as caught:
        _apply(document, widget(keyed=[{"k": "1", "v": "b"}]), "second")
    assert caught.value.message == (
        'Apply failed with 1 conflict: conflict with "first": .spec.keyed[k="1"].v'
    )


def test_conflicts_tell_subresources() -> None:
    document = _apply(None, widget(count=1), "first", subresource="scale")
    with pytest.raises(ApplyConflict, match=r'conflict with "first" with subresource "scale": \.spec\.count'):
        _apply(document, widget(count=2), "second")


def test_a_plain_write_takes_fields_and_the_applier_then_conflicts() -> None:
    document = _apply(None, widget(map={"x": "1", "y": "1"}), "first")
    changed = deep_copy(document)
    changed["spec"]["map"]["x"] = "2"
    document = _update(document, changed, "writer")
    assert _owners(document) == {
        "first": {"f:spec": {"f:map": {"f:y": {}}}},
        "writer": {"f:spec": {"f:map": {"f:x": {}}}},
    }
    with pytest.raises(ApplyConflict):
        _apply(document, widget(map={"x": "1", "y": "1"}), "first")


def test_applying_the_value_that_is_there_shares_it() -> None:
    document = _update(None, widget(count=1), "writer")
    document = _apply(document, widget(count=1), "first")
    assert _owners(document)["first"] == {"f:spec": {"f:count": {}}}
    assert _owners(document)["writer"]["f:spec"]["f:count"] == {}
    assert "time" not in document["metadata"]["managedFields"][0]


def test_what_updaters_own_survives_an_applier_letting_go() -> None:
    document = _apply(None, widget(count=1, flag=True), "first")
    document = _update(None, {**widget(count=1, flag=True)}, "writer")
    document = _apply(document, widget(count=1, flag=True), "first")
    assert _apply(document, widget(flag=True), "first")["spec"] == {"count": 1, "flag": True}


def test_fields_that_nobody_owns_inside_an_element_go_with_it() -> None:
    document = _apply(None, widget(keyed=[{"k": "1"}]), "first")
    defaulted = deep_copy(document)
    defaulted["spec"]["keyed"][0]["v"] = "set by the server"
    assert "keyed" not in _apply(defaulted, widget(count=1), "first")["spec"]


def test_atomic_values_conflict_whole() -> None:
    document = _apply(None, widget(atomic=["p"], amap={"z": "1"}), "first")
    with pytest.raises(ApplyConflict) as caught:
        _apply(document, widget(atomic=["q"], amap={"y": "2"}), "second")
    assert [fieldset.format_path(conflict.path) for conflict in caught.value.conflicts] == [
        ".spec.amap",
        ".spec.atomic",
    ]


def test_fields_that_a_subresource_cannot_change_are_not_owned() -> None:
    created = _apply(None, widget(count=1), "first", reset=fieldset.of_fields("status"))
    status = {**widget(count=5), "status": {"x": 1}}
    document = _apply(created, status, "second", subresource="status", reset=fieldset.of_fields("spec"))
    assert _owners(document)["second"] == {"f:status": {".": {}, "f:x": {}}} or _owners(document)[
        "second"
    ] == {"f:status": {"f:x": {}}}
    assert "f:count" in _owners(document)["first"]["f:spec"]


def test_an_object_without_an_account_gets_one_with_the_first_apply() -> None:
    live = widget(count=1, flag=True)
    live["metadata"]["uid"] = "u"
    with pytest.raises(ApplyConflict, match=r'conflict with "before-first-apply" using example\.com/v1'):
        _apply(live, widget(count=2), "first")
    document = _apply(live, widget(count=1), "first")
    assert set(_owners(document)) == {"first", managed.BEFORE_FIRST_APPLY}


def test_a_configuration_with_managed_fields_is_refused() -> None:
    applied = widget()
    applied["metadata"]["managedFields"] = [{"manager": "x"}]
    with pytest.raises(StatusError) as caught:
        _apply(None, applied, "first")
    assert (caught.value.code, caught.value.message) == (400, "metadata.managedFields must be nil")


def test_a_configuration_of_the_wrong_form_is_refused() -> None:
    with pytest.raises(StatusError) as caught:
        _apply(None, widget(count="x"), "first")
    assert (caught.value.code, caught.value.reason) == (500, "")
    assert caught.value.message == (
        "failed to create typed patch object (/w; example.com/v1, Kind=Widget): "
        ".spec.count: expected numeric (int or float), got string"
    )


def _client_side_applied(config: JsonObject) -> JsonObject:
    document = deep_copy(config)
    document["metadata"]["annotations"] = {LAST_APPLIED_ANNOTATION: orjson.dumps(config).decode()}
    return _update(None, document, "kubectl-client-side-apply")


def test_kubectl_takes_over_what_it_applied_from_the_client() -> None:
    document = _client_side_applied(widget(map={"x": "1"}))
    with pytest.raises(ApplyConflict):
        _apply(document, widget(map={"x": "2"}), "somebody")
    applied = _apply(document, widget(map={"x": "2"}), "kubectl")
    assert applied["spec"]["map"] == {"x": "2"}
    kept = orjson.loads(applied["metadata"]["annotations"][LAST_APPLIED_ANNOTATION])
    assert kept["spec"] == {"map": {"x": "2"}}


def test_kubectl_does_not_take_what_others_changed_since() -> None:
    document = _client_side_applied(widget(map={"x": "1", "y": "1"}))
    changed = deep_copy(document)
    changed["spec"]["map"]["x"] = "other"
    document = _update(document, changed, "writer")
    with pytest.raises(ApplyConflict) as caught:
        _apply(document, widget(map={"x": "2", "y": "2"}), "kubectl")
    assert [fieldset.format_path(conflict.path) for conflict in caught.value.conflicts] == [".spec.map.x"]


_SPECS = st.fixed_dictionaries(
    {},
    optional={
        "map": st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3),
        "set": st.lists(st.sampled_from("abc"), unique=True, max_size=3),
        "keyed": st.lists(
            st.fixed_dictionaries({"k": st.sampled_from("123")}, optional={"v": st.sampled_from("xy")}),
            unique_by=lambda item: item["k"],
            max_size=3,
        ),
        "atomic": st.lists(st.sampled_from("ab"), max_size=2),
        "count": st.integers(0, 2),
        "free": st.dictionaries(st.sampled_from("ab"), st.integers(0, 1) | st.just({"c": 1}), max_size=2),
    },
)


@given(_SPECS, _SPECS)
def test_applying_twice_is_applying_once(before: JsonObject, spec: JsonObject) -> None:
    live = _apply(None, widget(**before), "other")
    once = _apply(live, widget(**spec), "me", force=True)
    assert _apply(once, widget(**spec), "me") == once


@given(_SPECS, _SPECS)
def test_without_force_nobody_s_values_change(theirs: JsonObject, mine: JsonObject) -> None:
    live = _apply(None, widget(**theirs), "them")
    try:
        result = _apply(live, widget(**mine), "me")
    except ApplyConflict:
        return
    # They own what they owned, and applying their configuration again finds nothing to change.
    assert _owners(result).get("them") == _owners(live).get("them")
    again = _apply(result, widget(**theirs), "them")
    assert _unordered(again["spec"]) == _unordered(result["spec"])


@given(_SPECS, _SPECS, _SPECS)
def test_letting_go_of_everything_leaves_the_other_s_configuration(
    first: JsonObject, theirs: JsonObject, mine: JsonObject
) -> None:
    live = _apply(_apply(None, widget(**first), "them"), widget(**theirs), "them")
    both = _apply(live, widget(**mine), "me", force=True)
    back = _apply(both, widget(**theirs), "them", force=True)
    nothing = {"apiVersion": API_VERSION, "kind": "Widget", "metadata": {"name": "w"}}
    left = _apply(back, nothing, "me").get("spec", {})
    assert _unordered(left) == _unordered(theirs)


def _unordered(spec: JsonObject) -> JsonObject:
    """A spec without empty parts, and with the lists sorted whose order nobody owns."""
    result = {key: value for key, value in spec.items() if value not in ([], {})}
    for key in ("set", "keyed"):
        if key in result:
            result[key] = sorted(result[key], key=lambda item: item["k"] if isinstance(item, dict) else item)
    return result

"""The account of who owns which fields, kept on ordinary writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kubecore.patch.widgets import API_VERSION, WIDGET, widget

from kubecore.json import JsonObject, deep_copy
from kubecore.patch import fieldset, managed
from kubecore.patch.fieldset import FieldSet
from kubecore.patch.managed import Write, track_update
from kubecore.schema.model import Schema, SchemaSet


def _write(manager: str, now: str = "2026-01-01T00:00:00Z", **options: Any) -> Write:
    return Write(manager, API_VERSION, now, **options)


def _entry(manager: str, fields: FieldSet, now: str = "2026-01-01T00:00:00Z", **more: Any) -> JsonObject:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": API_VERSION,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **more,
    }


def _tracked(old: JsonObject | None, new: JsonObject, write: Write) -> JsonObject:
    """`new` as it is stored after the write."""
    before = deep_copy(old) if old is not None else None
    entries = track_update(old, new, WIDGET, write)
    assert old == before, "the live object must not change"
    stored = deep_copy(new)
    stored["metadata"] = {**stored["metadata"], "uid": "u", "managedFields": entries}
    return stored


def _managers(document: JsonObject) -> dict[str, FieldSet]:
    return {entry["manager"]: entry["fieldsV1"] for entry in document["metadata"]["managedFields"]}


def test_the_creator_owns_what_it_set() -> None:
    created = _tracked(None, {**widget(map={"a": "1"}), "status": {"x": 1}}, _write("maker"))
    assert created["metadata"]["managedFields"] == [
        _entry(
            "maker",
            {
                "f:spec": {".": {}, "f:map": {".": {}, "f:a": {}}},
                "f:status": {".": {}, "f:x": {}},
            },
        )
    ]


def test_containers_which_are_always_there_belong_to_nobody() -> None:
    created = _tracked(None, widget(map={"a": "1"}), _write("maker", empty={"spec": {}}))
    assert _managers(created) == {"maker": {"f:spec": {"f:map": {".": {}, "f:a": {}}}}}


def test_a_writer_takes_what_it_changes_and_adds() -> None:
    created = _tracked(None, widget(map={"a": "1", "b": "1"}), _write("maker"))
    changed = _tracked(created, widget(map={"a": "2", "b": "1", "c": "1"}), _write("other"))
    assert _managers(changed) == {
        "maker": {"f:spec": {".": {}, "f:map": {".": {}, "f:b": {}}}},
        "other": {"f:spec": {"f:map": {"f:a": {}, "f:c": {}}}},
    }


def test_what_is_removed_is_owned_by_nobody() -> None:
    created = _tracked(None, widget(map={"a": "1"}, count=1), _write("maker"))
    added = _tracked(created, widget(map={"a": "1", "b": "1"}, count=1), _write("other"))
    removed = _tracked(added, widget(map={"a": "1"}, count=1), _write("remover"))
    assert _managers(removed) == _managers(created)


def test_a_writer_has_one_entry_whose_time_moves_with_its_changes() -> None:
    created = _tracked(None, widget(map={"a": "1"}), _write("m", "2026-01-01T00:00:00Z"))
    changed = _tracked(created, widget(map={"a": "2"}), _write("m", "2026-01-01T00:00:05Z"))
    (entry,) = changed["metadata"]["managedFields"]
    assert entry["time"] == "2026-01-01T00:00:05Z"
    assert entry["fieldsV1"] == _managers(created)["m"]


def test_a_write_without_a_change_leaves_the_account() -> None:
    created = _tracked(None, widget(map={"a": "1"}), _write("maker"))
    again = deep_copy(created)
    again["metadata"]["resourceVersion"] = "9"
    assert track_update(created, again, WIDGET, _write("idle")) == created["metadata"]["managedFields"]


def test_identity_and_what_the_server_sets_are_not_owned() -> None:
    plain: JsonObject = {"metadata": {"name": "w", "uid": "u", "creationTimestamp": "t", "generation": 1}}
    assert track_update(None, plain, WIDGET, _write("maker")) == []


def test_subresources_have_entries_of_their_own() -> None:
    created = _tracked(None, widget(count=1), _write("m", reset=fieldset.of_fields("status")))
    new = {**created, "status": {"x": 1}, "spec": {"count": 2}}
    entries = track_update(
        created, new, WIDGET, _write("m", subresource="status", reset=fieldset.of_fields("spec"))
    )
    assert entries[1] == _entry("m", {"f:status": {".": {}, "f:x": {}}}, subresource="status")
    assert entries[0]["fieldsV1"] == {"f:spec": {".": {}, "f:count": {}}}


@pytest.mark.parametrize("given_entries", [[], [{}]])
def test_clients_clear_the_account_and_then_nobody_keeps_one(given_entries: list[JsonObject]) -> None:
    created = _tracked(None, widget(count=1), _write("maker"))
    cleared = {**created, "metadata": {**created["metadata"], "managedFields": given_entries}}
    assert track_update(created, cleared, WIDGET, _write("m")) == []
    stored = {**created, "metadata": {"name": "w", "uid": "u"}}
    assert track_update(stored, {**stored, "spec": {"count": 2}}, WIDGET, _write("m")) == []


def test_entries_that_make_no_sense_are_ignored() -> None:
    created = _tracked(None, widget(count=1), _write("maker"))
    wrong = {
        **created,
        "metadata": {**created["metadata"], "managedFields": [{"manager": "x", "operation": "Odd"}]},
    }
    assert track_update(created, wrong, WIDGET, _write("m")) == created["metadata"]["managedFields"]


def test_a_creator_cannot_forge_the_account() -> None:
    forged = widget(count=1)
    forged["metadata"]["managedFields"] = [_entry("somebody", {"f:spec": {"f:count": {}}})]
    assert list(_managers(_tracked(None, forged, _write("maker")))) == ["maker"]


def test_writes_to_subresources_cannot_edit_the_account() -> None:
    created = _tracked(None, widget(count=1), _write("maker"))
    cleared = {**created, "metadata": {**created["metadata"], "managedFields": []}}
    entries = track_update(created, cleared, WIDGET, _write("m", subresource="status"))
    assert entries == created["metadata"]["managedFields"]


def test_objects_that_break_their_schema_keep_their_account() -> None:
    created = _tracked(None, widget(count=1), _write("maker"))
    broken = {**created, "spec": {"keyed": [{"v": "without a key"}]}}
    assert track_update(created, broken, WIDGET, _write("m")) == created["metadata"]["managedFields"]


def test_only_ten_updaters_are_told_apart() -> None:
    document = _tracked(None, widget(map={"base": "0"}), _write("maker", "2026-01-01T00:00:00Z"))
    for number in range(1, 14):
        new = deep_copy(document)
        new["spec"]["map"][f"k{number:02}"] = "1"
        document = _tracked(document, new, _write(f"m{number:02}", f"2026-01-01T00:00:{number:02}Z"))
    managers = _managers(document)
    assert len(managers) == managed.MAX_UPDATERS
    assert set(managers[managed.ANCIENT_CHANGES]["f:spec"]["f:map"]) == {
        ".",
        "f:base",
        "f:k01",
        "f:k02",
        "f:k03",
        "f:k04",
    }


def test_entries_are_ordered_by_operation_time_and_name() -> None:
    entries = [
        managed.Entry("b", "Update", "v1", "", "t2", {"f:x": {}}),
        managed.Entry("a", "Update", "v1", "", "t2", {"f:x": {}}),
        managed.Entry("z", "Apply", "v1", "", "t9", {"f:x": {}}),
        managed.Entry("c", "Update", "v1", "", "t1", {"f:x": {}}),
        managed.Entry("y", "Apply", "v1", "scale", "", {"f:x": {}}),
    ]
    encoded = managed.encode(entries)
    assert [entry["manager"] for entry in encoded] == ["y", "z", "c", "a", "b"]
    assert "time" not in encoded[0] and encoded[0]["subresource"] == "scale"
    assert sorted(managed.decode(encoded), key=lambda entry: entry.manager) == sorted(
        entries, key=lambda entry: entry.manager
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"operation": "Odd"}, "operation must be `Apply` or `Update`"),
        ({"operation": "Apply"}, "apiVersion must not be empty"),
        ({"operation": "Apply", "apiVersion": "v1"}, "missing fieldsType in managed fields entry 0"),
        (
            {"operation": "Apply", "apiVersion": "v1", "fieldsType": "X"},
            'invalid fieldsType "X" in managed fields entry 0',
        ),
        ("x", "managed fields entry must be an object"),
    ],
)
def test_entries_are_checked_when_read(entry: Any, message: str) -> None:
    with pytest.raises(managed.ManagedFieldsError) as caught:
        managed.decode([entry])
    assert str(caught.value) == message


def test_owners_of_parts_own_the_whole_once_a_field_became_atomic() -> None:
    entries = [
        managed.Entry("a", "Apply", API_VERSION, "", "", {"f:spec": {"f:amap": {"f:x": {}}, "f:count": {}}}),
        managed.Entry("b", "Apply", API_VERSION, "", "", {"f:spec": {"f:atomic": {".": {}, 'v:"p"': {}}}}),
        managed.Entry("c", "Apply", API_VERSION, "", "", {"f:spec": {"f:map": {"f:x": {}}}}),
    ]
    after = managed.reconcile(entries, WIDGET)
    assert [entry.fields for entry in after] == [
        {"f:spec": {"f:amap": {}, "f:count": {}}},
        {"f:spec": {"f:atomic": {}}},
        {"f:spec": {"f:map": {"f:x": {}}}},
    ]
    assert after[2] is entries[2]


_OTHER = Schema(
    {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"count": {"type": "integer"}}}},
    },
    SchemaSet(open_objects=False),
)


def test_owners_in_another_version_keep_their_fields_where_that_version_knows_the_object() -> None:
    versions = {API_VERSION: WIDGET, "example.com/v2": _OTHER}
    created = _tracked(None, widget(count=1), _write("maker", versions=versions))
    write = Write("other", "example.com/v2", "t", versions=versions)
    entries = track_update(created, {**created, "spec": {"count": 2}}, _OTHER, write)
    assert {entry["manager"]: entry["apiVersion"] for entry in entries} == {
        "maker": API_VERSION,
        "other": "example.com/v2",
    }


def test_the_account_ends_where_an_owner_s_version_does_not_know_the_object() -> None:
    versions = {API_VERSION: WIDGET, "example.com/v2": _OTHER}
    created = _tracked(None, widget(count=1), Write("maker", "example.com/v2", "t", versions=versions))
    changed = {**created, "spec": {"count": 1, "flag": True}}
    assert track_update(created, changed, WIDGET, _write("other", versions=versions)) == []


def test_owners_in_versions_that_are_gone_are_forgotten() -> None:
    created = _tracked(None, widget(count=1), Write("maker", "example.com/v0", "t"))
    write = _write("other", versions={API_VERSION: WIDGET})
    entries = track_update(created, {**created, "spec": {"count": 2}}, WIDGET, write)
    assert [entry["manager"] for entry in entries] == ["other"]


_MAPS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"), max_size=4)


@given(st.lists(st.tuples(st.sampled_from(["m1", "m2", "m3"]), _MAPS), min_size=1, max_size=6))
def test_every_field_has_exactly_one_owner_after_any_updates(
    writes: list[tuple[str, dict[str, str]]],
) -> None:
    document: JsonObject | None = None
    for manager, entries in [("m0", {"z": "0"}), *writes]:
        document = _tracked(document, widget(map={**entries, "z": "0"}), _write(manager))
    assert document is not None
    owned = [
        path[-1]
        for fields in _managers(document).values()
        for path in fieldset.paths(fields)
        if len(path) == 3
    ]
    assert sorted(owned) == sorted(f"f:{key}" for key in document["spec"]["map"])

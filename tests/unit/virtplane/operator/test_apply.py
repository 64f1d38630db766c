"""What is written, and what is left alone."""

from __future__ import annotations

from virtplane.operator.apply import contains, marked, needs_write, replacement

SERVICE = {
    "kind": "Service",
    "metadata": {"name": "a", "labels": {"x": "1"}},
    "spec": {"selector": {"a": "b"}, "ports": [{"port": 443}]},
}


def live(document: dict) -> dict:  # type: ignore[type-arg]
    """What an API server makes of it."""
    return {
        **document,
        "metadata": {**document["metadata"], "uid": "u", "resourceVersion": "7"},
        "spec": {**document["spec"], "clusterIP": "10.0.0.1", "type": "ClusterIP"},
    }


def test_what_the_server_fills_in_is_no_difference() -> None:
    assert not needs_write(live(marked(SERVICE)), marked(SERVICE))


def test_a_changed_field_is_written_again() -> None:
    changed = live(marked(SERVICE))
    changed["spec"]["selector"] = {"a": "c"}
    assert needs_write(changed, marked(SERVICE))


def test_a_field_that_is_wanted_no_longer_is_written_away() -> None:
    before = {**SERVICE, "spec": {**SERVICE["spec"], "externalName": "x"}}
    assert needs_write(live(marked(before)), marked(SERVICE))
    assert "externalName" not in replacement(live(marked(before)), marked(SERVICE))["spec"]


def test_addresses_and_foreign_labels_survive_a_write() -> None:
    found = live(marked(SERVICE))
    found["metadata"]["labels"] = {"x": "2", "theirs": "y"}
    written = replacement(found, marked(SERVICE))
    assert written["spec"]["clusterIP"] == "10.0.0.1"
    assert written["metadata"]["labels"] == {"x": "1", "theirs": "y"}
    assert written["metadata"]["resourceVersion"] == "7"


def test_lists_differ_by_length_and_objects_by_missing_members() -> None:
    assert contains({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]})
    assert not contains({"a": [1, 2]}, {"a": [1]})
    assert contains({}, {"a": False, "b": [], "c": ""})

"""The laws of server-side apply, against a model that knows nothing but leaves and their owners."""

from __future__ import annotations

import json
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kubecore.patch.widgets import API_VERSION, WIDGET, widget

from kubecore.json import JsonObject, deep_copy
from kubecore.patch.apply import ApplyConflict, apply_object
from kubecore.patch.fieldset import SELF, FieldSet
from kubecore.patch.managed import Write, track_update

Path = tuple[str, ...]
Leaves = dict[Path, object]

_ELEMENTS: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(
    {"k": st.sampled_from("123")},
    optional={
        "v": st.sampled_from("xy"),
        "inner": st.dictionaries(st.sampled_from("ab"), st.sampled_from("12"), min_size=1),
    },
)
_SPECS: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(
    {"amap": st.just({"always": "there"})},  # so that a spec is never empty, which is a value of its own
    optional={
        "map": st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), min_size=1, max_size=3),
        "set": st.lists(st.sampled_from("abc"), unique=True, min_size=1, max_size=3),
        "keyed": st.lists(_ELEMENTS, unique_by=lambda item: str(item["k"]), min_size=1, max_size=3),
        "atomic": st.lists(st.sampled_from("ab"), min_size=1, max_size=2),
        "count": st.integers(0, 2),
        "flag": st.booleans(),
    },
)
_CONTAINERS = ("map", "set", "keyed", "inner")
_MANAGERS = st.sampled_from(["one", "two", "three"])


def _leaves(document: JsonObject) -> Leaves:
    """What a document says, path by path; an element of a keyed list is a leaf as such."""
    found: Leaves = {}
    for name, value in document.get("spec", {}).items():
        if name == "map":
            found |= {(name, key): text for key, text in value.items()}
        elif name == "set":
            found |= {(name, item): True for item in value}
        elif name == "keyed":
            for item in value:
                found[name, item["k"]] = True
                if "v" in item:
                    found[name, item["k"], "v"] = item["v"]
                inner = item.get("inner", {})
                found |= {(name, item["k"], "inner", key): text for key, text in inner.items()}
        else:
            found[name,] = value
    return found


def _owned(document: JsonObject) -> dict[str, set[Path]]:
    """The leaves of each manager."""
    found: dict[str, set[Path]] = {}
    for entry in document["metadata"].get("managedFields", []):
        paths = _owned_paths(entry["fieldsV1"].get("f:spec", {}))
        found.setdefault(entry["manager"], set()).update(paths)
    return found


def _owned_paths(tree: FieldSet, path: Path = ()) -> Iterable[Path]:
    for element, node in tree.items():
        kind, _, name = element.partition(":")
        if element == SELF:
            if len(path) == 2 and path[0] == "keyed":
                yield path
        elif kind == "k":
            yield from _owned_paths(node, (*path, json.loads(name)["k"]))
        elif kind == "v":
            yield (*path, json.loads(name))
        elif path[:1] == ("keyed",) and name == "k":
            continue  # the key comes with its element
        elif name in _CONTAINERS:
            yield from _owned_paths(node, (*path, name))
        else:
            yield (*path, name)


class Model:
    """Values and owners of leaves."""

    def __init__(self) -> None:
        self.values: Leaves = {}
        self.owners: dict[Path, set[str]] = {}

    def apply(self, manager: str, wanted: Leaves, *, force: bool) -> bool:
        """Whether it was done; not where others own what would change."""
        changed = {path for path, value in wanted.items() if self.values.get(path, value) != value}
        if any(self.owners[path] - {manager} for path in changed) and not force:
            return False
        given_up = [path for path, owners in self.owners.items() if manager in owners and path not in wanted]
        for path in given_up:
            self.owners[path].discard(manager)
        for path, value in wanted.items():
            self.values[path] = value
            if path in changed:
                self.owners[path] = set()
            self.owners.setdefault(path, set()).add(manager)
        for path in [path for path, owners in self.owners.items() if not owners]:
            del self.owners[path], self.values[path]
        return True

    def owned(self) -> dict[str, set[Path]]:
        """The leaves of each manager."""
        found: dict[str, set[Path]] = {}
        for path, owners in self.owners.items():
            for manager in owners:
                found.setdefault(manager, set()).add(path)
        return found


def _write(manager: str) -> Write:
    return Write(manager, API_VERSION, "2026-01-01T00:00:00Z")


def _apply(live: JsonObject | None, spec: JsonObject, manager: str, *, force: bool = False) -> JsonObject:
    stored = deep_copy(apply_object(live, widget(**spec), WIDGET, _write(manager), force=force))
    stored["metadata"]["uid"] = "u"
    return stored


def _update(live: JsonObject, spec: JsonObject, manager: str) -> JsonObject:
    stored = {**live, "metadata": dict(live["metadata"]), "spec": spec}
    entries = track_update(live, stored, WIDGET, _write(manager))
    stored["metadata"]["managedFields"] = entries
    return stored


@given(st.lists(st.tuples(_MANAGERS, _SPECS, st.booleans()), min_size=1, max_size=6))
def test_any_sequence_of_applies_agrees_with_the_model(writes: list[tuple[str, JsonObject, bool]]) -> None:
    model, live = Model(), None
    for manager, spec, force in writes:
        done = model.apply(manager, _leaves(widget(**spec)), force=force)
        try:
            live = _apply(live, spec, manager, force=force)
        except ApplyConflict:
            assert not done
        else:
            assert done
        assert live is not None
        assert _leaves(live) == model.values
        assert {manager: owned for manager, owned in _owned(live).items() if owned} == model.owned()


@given(_SPECS, _SPECS)
def test_managers_of_disjoint_fields_commute(first: JsonObject, second: JsonObject) -> None:
    second = {key: value for key, value in second.items() if first.get(key, value) == value}
    one_two = _apply(_apply(None, first, "one"), second, "two")
    two_one = _apply(_apply(None, second, "two"), first, "one")
    assert _leaves(one_two) == _leaves(two_one)
    assert _owned(one_two) == _owned(two_one)


@given(_SPECS, _SPECS, _SPECS)
def test_a_field_that_is_applied_no_longer_goes_exactly_if_nobody_else_owns_it(
    before: JsonObject, theirs: JsonObject, after: JsonObject
) -> None:
    live = _apply(_apply(None, before, "me"), theirs, "they", force=True)
    mine, other = _owned(live).get("me", set()), _owned(live).get("they", set())
    wanted = _leaves(widget(**after))
    left = _leaves(_apply(live, after, "me", force=True))
    for path in mine - set(wanted):
        assert (path in left) == (path in other)


@given(_SPECS, _SPECS)
def test_force_takes_what_conflicts_and_nothing_else(theirs: JsonObject, mine: JsonObject) -> None:
    live = _apply(None, theirs, "they")
    had, wanted = _leaves(live), _leaves(widget(**mine))
    result = _apply(live, mine, "me", force=True)
    conflicting = {path for path in had if path in wanted and had[path] != wanted[path]}
    owned = _owned(result)
    assert owned.get("they", set()) == set(had) - conflicting
    assert owned.get("me", set()) == set(wanted)
    assert _leaves(result) == had | wanted


@given(st.lists(st.tuples(_MANAGERS, _SPECS, st.booleans()), max_size=4))
def test_all_that_is_there_is_owned_and_all_that_is_owned_is_there(
    writes: list[tuple[str, JsonObject, bool]],
) -> None:
    # Without any entry left, ownership would no longer be kept at all.
    kept = {**widget(), "status": {"kept": True}}
    live = apply_object(None, kept, WIDGET, _write("keeper"))
    live["metadata"]["uid"] = "u"
    for manager, spec, updates in writes:
        live = _update(live, spec, manager) if updates else _apply(live, spec, manager, force=True)
    union: set[Path] = set().union(*_owned(live).values())
    assert union == set(_leaves(live))


@given(_SPECS, _SPECS, _SPECS)
def test_applying_and_letting_go_never_drops_what_an_updater_set(
    theirs: JsonObject, mine: JsonObject, less: JsonObject
) -> None:
    live = _update(_apply(None, {"amap": {"always": "there"}}, "maker"), theirs, "updater")
    once = _apply(live, mine, "me", force=True)
    kept = _owned(once).get("updater", set())
    result = _apply(once, less, "me", force=True)
    values, had = _leaves(result), _leaves(live)
    wanted = _leaves(widget(**less))
    for path in kept:
        assert values[path] == wanted.get(path, had[path])


@given(_SPECS, _SPECS)
def test_fields_that_nobody_owns_stay(unowned: JsonObject, mine: JsonObject) -> None:
    live = widget(**unowned)
    live["metadata"]["uid"] = "u"
    once = _apply(live, mine, "me", force=True)
    assert set(_leaves(once)) >= set(_leaves(live)) | set(_leaves(widget(**mine)))


@given(_SPECS, _SPECS)
def test_a_refused_apply_changes_nothing(theirs: JsonObject, mine: JsonObject) -> None:
    live = _apply(None, theirs, "they")
    before = deep_copy(live)
    try:
        _apply(live, mine, "me")
    except ApplyConflict as conflict:
        told = {conflict.owner.manager for conflict in conflict.conflicts}
        assert told == {"they"}
    assert live == before

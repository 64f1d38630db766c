"""Sets of field paths: set algebra on the stored form."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubecore.patch import fieldset
from kubecore.patch.fieldset import FieldSet

_ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'])
_PATHS = st.sets(st.lists(_ELEMENTS, min_size=1, max_size=3).map(tuple), max_size=6)


def _tree(paths: set[tuple[str, ...]]) -> FieldSet:
    tree: FieldSet = {}
    for path in paths:
        tree = fieldset.union(tree, fieldset.of_path(path))
    return tree


@given(_PATHS)
def test_a_set_holds_exactly_its_paths(paths: set[tuple[str, ...]]) -> None:
    tree = _tree(paths)
    assert set(fieldset.paths(tree)) == paths
    assert all(fieldset.has(tree, path) for path in paths)


@given(_PATHS, _PATHS)
def test_the_operations_are_those_of_sets(left: set[tuple[str, ...]], right: set[tuple[str, ...]]) -> None:
    first, second = _tree(left), _tree(right)
    assert set(fieldset.paths(fieldset.union(first, second))) == left | right
    assert set(fieldset.paths(fieldset.difference(first, second))) == left - right
    assert set(fieldset.paths(fieldset.intersection(first, second))) == left & right
    assert fieldset.is_subset(first, second) == (left <= right)
    assert (_tree(left), _tree(right)) == (first, second), "the arguments must not change"


@given(_PATHS, _PATHS)
def test_recursive_difference_takes_what_is_below_along(
    left: set[tuple[str, ...]], right: set[tuple[str, ...]]
) -> None:
    kept = {path for path in left if not any(path[: len(other)] == other for other in right)}
    assert set(fieldset.paths(fieldset.recursive_difference(_tree(left), _tree(right)))) == kept


def test_a_container_that_is_a_member_carries_a_dot() -> None:
    tree = _tree({("f:data",), ("f:data", "f:x")})
    assert tree == {"f:data": {".": {}, "f:x": {}}}
    assert fieldset.difference(tree, {"f:data": {}}) == {"f:data": {"f:x": {}}}
    assert fieldset.difference(tree, {"f:data": {"f:x": {}}}) == {"f:data": {}}


def test_sets_of_dotted_fields() -> None:
    assert fieldset.of_fields("status", "metadata.labels") == {"f:status": {}, "f:metadata": {"f:labels": {}}}


def test_paths_are_listed_members_first_and_numbers_in_order() -> None:
    tree: FieldSet = {
        "f:b": {},
        "f:a": {"f:x": {}},
        "f:ports": {'k:{"port":443}': {}, 'k:{"port":80}': {}},
        "f:set": {'v:"b"': {}, 'v:"a"': {}, "v:3": {}, "v:true": {}},
        "f:list": {"i:10": {}, "i:2": {}},
    }
    assert [fieldset.format_path(path) for path in fieldset.paths(tree)] == [
        ".b",
        ".a.x",
        ".list[2]",
        ".list[10]",
        ".ports[port=80]",
        ".ports[port=443]",
        ".set[=3]",
        '.set[="a"]',
        '.set[="b"]',
        ".set[=true]",
    ]


def test_keys_print_every_field() -> None:
    assert fieldset.format_element('k:{"port":80,"protocol":"TCP"}') == '[port=80,protocol="TCP"]'

"""Label and field selectors: what they match, and the words of their errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubecore.objects.field_selectors import parse_field_selector
from kubecore.objects.fields import FieldPath
from kubecore.objects.selectors import (
    EVERYTHING,
    NOTHING,
    SelectorError,
    from_label_selector_object,
    label_selector_of_map,
    parse_label_selector,
    validate_label_selector_object,
)

_OBJECTS: dict[str, dict[str, str]] = {
    "a": {"app": "web", "tier": "front"},
    "b": {"app": "web", "tier": "back"},
    "c": {"app": "db"},
    "d": {},
    "e": {"app": "web", "empty": "", "n": "5"},
}


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=web", "abe"),
        ("app==web,tier=front", "a"),
        ("app!=web", "cd"),
        ("app", "abce"),
        ("!app", "d"),
        ("app in (web,db)", "abce"),
        ("app notin (web)", "cd"),
        ("tier notin (front,back),app", "ce"),
        ("empty=", "e"),
        ("empty in ()", "e"),
        ("empty in (,x)", "e"),
        (" app = web , tier = back ", "b"),
        ("", "abcde"),
        ("app=web,app=db", ""),
        ("n>4", "e"),
        ("n<4", ""),
        ("app>4", ""),
        ("in", ""),
    ],
)
def test_selectors_match_objects(selector: str, names: str) -> None:
    parsed = parse_label_selector(selector)
    assert "".join(name for name, labels in _OBJECTS.items() if parsed.matches(labels)) == names


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("app in web", "unable to parse requirement: found 'web' expected: '('"),
        ("app in (web", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("app=!", "unable to parse requirement: found '!', expected: identifier"),
        ("app=bad value", "found 'value', expected: ',' or 'end of string'"),
        ("app,,tier", "found ',', expected: identifier after ','"),
        ("app,", "found '', expected: identifier after ','"),
        ("app in (a),(b)", "found '(', expected: identifier after ','"),
        (
            "app>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, "
            "the value must be an integer",
        ),
        ("app>" + "9" * 5000, "for 'Gt', 'Lt' operators, the value must be an integer"),
        ("x=" + "v" * 64, f'values[0][x]: Invalid value: "{"v" * 64}": must be no more than 63 bytes'),
        ("-bad=x", 'unable to parse requirement: <nil>: Invalid value: "-bad": name part must consist'),
    ],
)
def test_errors_have_the_words_of_the_api(selector: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_label_selector(selector)
    assert message in str(caught.value)


def test_selectors_print_sorted_by_key() -> None:
    assert str(parse_label_selector("b in (y,x),a!=1,!c,d>3,e")) == "a!=1,b in (x,y),!c,d>3,e"


_KEYS = st.sampled_from(["a", "b", "example.com/c"])
_VALUES = st.sampled_from(["", "x", "y", "10"])


@given(
    st.lists(st.tuples(_KEYS, st.sampled_from(["in", "notin"]), st.sets(_VALUES, min_size=1)), max_size=3),
    st.dictionaries(_KEYS, _VALUES),
)
def test_a_printed_selector_means_the_same(
    requirements: list[tuple[str, str, set[str]]], labels: dict[str, str]
) -> None:
    text = ",".join(
        f"{key} {operator} ({','.join(sorted(values))})" for key, operator, values in requirements
    )
    selector = parse_label_selector(text)
    assert parse_label_selector(str(selector)).matches(labels) == selector.matches(labels)


def test_an_empty_selector_object_matches_everything_and_none_nothing() -> None:
    assert from_label_selector_object({}) == EVERYTHING
    assert from_label_selector_object(None) == NOTHING
    assert not NOTHING.matches({})
    assert EVERYTHING.is_everything and not NOTHING.is_everything


def test_selector_objects_combine_labels_and_expressions() -> None:
    selector = from_label_selector_object(
        {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "NotIn", "values": ["back"]},
                {"key": "gone", "operator": "DoesNotExist"},
            ],
        }
    )
    assert [name for name, labels in _OBJECTS.items() if selector.matches(labels)] == ["a", "e"]


def test_plain_maps_select_exact_values() -> None:
    assert label_selector_of_map({"app": "db"}).matches(_OBJECTS["c"])


@pytest.mark.parametrize(
    ("expression", "field", "detail"),
    [
        ({"key": "a", "operator": "In"}, "s.matchExpressions[0].values", "must be specified when"),
        (
            {"key": "a", "operator": "Exists", "values": ["x"]},
            "s.matchExpressions[0].values",
            "may not be specified",
        ),
        (
            {"key": "a", "operator": "Gt", "values": ["1"]},
            "s.matchExpressions[0].operator",
            "not a valid selector operator",
        ),
        ({"key": "bad key", "operator": "Exists"}, "s.matchExpressions[0].key", "name part must consist"),
        (
            {"key": "a", "operator": "In", "values": ["bad value"]},
            "s.matchExpressions[0].values[0]",
            "a valid label must be",
        ),
    ],
)
def test_wrong_expressions_are_reported_where_they_stand(
    expression: dict[str, Any], field: str, detail: str
) -> None:
    errors = validate_label_selector_object({"matchExpressions": [expression]}, FieldPath("s"))
    assert [error.field for error in errors] == [field]
    assert detail in errors[0].detail


def test_wrong_labels_are_reported_at_the_map() -> None:
    errors = validate_label_selector_object({"matchLabels": {"a b": "c", "d": "e f"}}, FieldPath("s"))
    assert [error.field for error in errors] == ["s.matchLabels", "s.matchLabels"]
    assert [error.bad_value for error in errors] == ["a b", "e f"]


@pytest.mark.parametrize(
    ("selector", "values", "matches"),
    [
        ("metadata.name=a", {"metadata.name": "a"}, True),
        ("metadata.name!=a", {"metadata.name": "a"}, False),
        ("metadata.name==a,spec.x=", {"metadata.name": "a"}, True),
        ("spec.x=a\\,b\\=c\\\\", {"spec.x": "a,b=c\\"}, True),
        ("", {}, True),
    ],
)
def test_field_selectors_match_values(selector: str, values: dict[str, str], matches: bool) -> None:
    parsed = parse_field_selector(selector)
    assert parsed.matches(values) is matches
    assert parse_field_selector(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("a=\\x", "invalid field selector: invalid escape sequence: \\x"),
    ],
)
def test_field_selector_errors_have_the_words_of_the_api(selector: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_field_selector(selector)
    assert str(caught.value) == message


def test_the_exact_value_of_a_field_can_be_asked_for() -> None:
    assert parse_field_selector("metadata.name=a,b!=c").exact("metadata.name") == "a"
    assert parse_field_selector("metadata.name!=a").exact("metadata.name") is None


def test_selector_objects_print_as_the_scale_of_a_workload_shows_them() -> None:
    selector = from_label_selector_object(
        {
            "matchLabels": {"app": "d"},
            "matchExpressions": [{"key": "b", "operator": "In", "values": ["y", "x"]}],
        }
    )
    assert str(selector) == "app=d,b in (x,y)"

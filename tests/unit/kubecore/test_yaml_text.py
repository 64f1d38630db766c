"""YAML text becomes the values that JSON has."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kubecore import errors, yaml_text
from kubecore.json import TooDeep


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-0x1F", -31),
        ("0o17", 15),
        ("017", 15),
        ("0b101", 5),
        ("1_000", 1000),
        ("2.50", 2.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("99999999999999999999", 1e20),
        ("22:22", "22:22"),
        ("2001-01-01", "2001-01-01"),
        ("08", 8.0),
        ("0x", "0x"),
        ("1.2.3", "1.2.3"),
        ("9" * 500, "9" * 500),
        ("yes", True),
        ("Off", False),
        ("y", True),
        ("yEs", "yEs"),
        ("~", None),
        ('"1"', "1"),
        ("!!str 1", "1"),
        ("!!int '7'", 7),
        ("!!float 3", 3.0),
        ("!!binary aGk=", "hi"),
        ("|\n  a\n  b", "a\nb\n"),
    ],
)
def test_scalars_have_the_types_of_kubernetes_parser(text: str, value: Any) -> None:
    found = yaml_text.load(f"v: {text}\n".encode())["v"]
    assert (found, type(found)) == (value, type(value))


def test_keys_become_texts() -> None:
    assert yaml_text.load(b"1: a\ntrue: b\n1.5: c\n'2': d") == {"1": "a", "true": "b", "1.5": "c", "2": "d"}


def test_merged_mappings_give_way_to_own_keys_and_to_earlier_ones() -> None:
    text = b"a: &a {k: 1, l: 1}\nb: &b {l: 2, m: 2}\nc: {m: 3, <<: [*a, *b]}\nd: {'<<': 4}"
    found = yaml_text.load(text)
    assert found["c"] == {"m": 3, "k": 1, "l": 1}
    assert found["d"] == {"<<": 4}


def test_what_aliases_stand_for_is_not_shared() -> None:
    found = yaml_text.load(b"a: &a {list: [1]}\nb: *a\n")
    found["a"]["list"].append(2)
    assert found["b"] == {"list": [1]}


@pytest.mark.parametrize("text", ["[" * 251, "- " * 251 + "x", '{"a":' * 251])
def test_nesting_ends_where_the_store_could_not_follow(text: str) -> None:
    with pytest.raises((yaml.YAMLError, TooDeep), match="max depth"):
        yaml_text.load(text.encode())


def test_aliases_of_aliases_cannot_nest_deeper_either() -> None:
    text = "a: &a " + "[" * 200 + "]" * 200 + "\nb: " + "[" * 200 + "*a" + "]" * 200
    with pytest.raises(TooDeep):
        yaml_text.load(text.encode())


def test_ordinary_aliases_are_not_excessive() -> None:
    lines = ["base: &base {image: i, args: [a, b, c]}", "list:"] + ["- *base"] * 20
    assert len(yaml_text.load("\n".join(lines).encode())["list"]) == 20


@pytest.mark.parametrize("text", ["v: .inf", "v: -.INF", "v: .NaN"])
def test_numbers_that_json_has_not_are_refused(text: str) -> None:
    with pytest.raises(errors.StatusError, match="unsupported value"):
        yaml_text.load(text.encode())

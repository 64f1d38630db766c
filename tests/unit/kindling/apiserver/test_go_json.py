"""Complaints about JSON text, and about values of wrong types, in known words."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindling.apiserver.kinds.schemas.builtin import builtin_schemas
from kindling.apiserver.registry.go_json import syntax_error
from kindling.apiserver.registry.go_types import type_error
from kubecore.repeated_fields import duplicate_fields, may_repeat_fields


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "unexpected end of JSON input"),
        ("", "unexpected end of JSON input"),
        ("not json", "invalid character 'o' in literal null (expecting 'u')"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ('{"a":"b"} trailing', "invalid character 't' after top-level value"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ("[1 2]", "invalid character '2' after array element"),
        ("\0", "invalid character '\\x00' looking for beginning of value"),
        ("'x'", "invalid character '\\'' looking for beginning of value"),
        ('{"ok": [1, 2.5e3, true, null, "\\u00e9"]}', ""),
    ],
)
def test_malformed_text_is_described_as_clients_know_it(text: str, complaint: str) -> None:
    assert syntax_error(text.encode()) == complaint


@pytest.mark.parametrize(
    ("kind", "document", "complaint"),
    [
        ("ConfigMap", {"data": [1]}, "array into Go struct field ConfigMap.data of type map[string]string"),
        (
            "ConfigMap",
            {"metadata": {"name": 5}},
            "number into Go struct field ObjectMeta.metadata.name of type string",
        ),
        (
            "ConfigMap",
            {"metadata": "x"},
            "string into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        ),
        (
            "Service",
            {"spec": {"ports": [{"port": "http"}]}},
            "string into Go struct field ServicePort.spec.ports.port of type int32",
        ),
        (
            "Service",
            {"spec": {"ports": [{"port": 99999999999}]}},
            "number 99999999999 into Go struct field ServicePort.spec.ports.port of type int32",
        ),
    ],
)
def test_values_of_wrong_types_are_described_by_struct_path_and_type(
    kind: str, document: dict[str, object], complaint: str
) -> None:
    schema = builtin_schemas().kind("", "v1", kind)
    assert type_error(document, schema) == f"json: cannot unmarshal {complaint}"


def test_numbers_are_shown_as_they_were_written() -> None:
    schema = builtin_schemas().kind("", "v1", "Service")
    raw = b'{"spec":{"ports":[{"port":8e1}]}}'
    document = {"spec": {"ports": [{"port": 80.0}]}}
    assert type_error(document, schema, raw).startswith("json: cannot unmarshal number 8e1 into")


def test_repeated_fields_are_found_at_any_depth() -> None:
    assert duplicate_fields(b'{"a":1,"a":2,"b":[{"c":1,"c":1,"c":2}]}') == ["a", "b[0].c"]


_KEYS = st.text(max_size=3) | st.sampled_from(['"', "a", "\\", "\u00e4"])


@given(st.lists(st.tuples(_KEYS, _KEYS), max_size=4), st.sampled_from([",", ", "]), st.booleans())
def test_no_repeated_field_is_overlooked_by_the_quick_look(
    pairs: list[tuple[str, str]], separator: str, ascii_only: bool
) -> None:
    members = separator.join(
        f"{json.dumps(key, ensure_ascii=ascii_only)}: {json.dumps(value, ensure_ascii=ascii_only)}"
        for key, value in pairs
    )
    raw = f"{{{members}}}".encode()
    if duplicate_fields(raw):
        assert may_repeat_fields(raw, orjson.dumps(orjson.loads(raw)))


def test_white_space_alone_is_no_reason_for_a_closer_look() -> None:
    raw = b'{ "a": 1, "b": ["\\"", "\\/"], "c": 1e3 }\n'
    assert not may_repeat_fields(raw, orjson.dumps(orjson.loads(raw)))

"""What ``kubectl explain`` says of each field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest

from kindling.cluster import network_definitions
from kubecore.json import JsonObject
from virtplane.api import cdi_crds, crds, volumegroupsnapshot_crds, volumesnapshot_crds
from virtplane.api.fields.kinds import KINDS
from virtplane.api.fields.state import State
from virtplane.api.markers import ApiStruct, describe
from virtplane.api.schema import object_schema

_BY_THE_SERVER = ("apiVersion", "kind", "metadata")
"""What every object has is described by API servers, whatever a definition says of it."""
_MACHINES_WITHIN = ("spec.source.virtualMachine.spec", "spec.source.virtualMachine.status")
"""A snapshot's content holds a machine."""
_LONGEST = 150
_MEAN = 90


def _definitions() -> list[JsonObject]:
    return [
        *(crds.custom_resource_definition(each) for each in (*crds.DEFINITIONS, crds.HOSTPATH_PROVISIONER)),
        *cdi_crds.custom_resource_definitions(),
        cdi_crds.installation_definition(),
        *volumesnapshot_crds.custom_resource_definitions(),
        *volumegroupsnapshot_crds.custom_resource_definitions(),
        *network_definitions.definitions(),
    ]


def _schema(definition: JsonObject) -> JsonObject:
    """The schema of the first version; those of others are the same."""
    schema: JsonObject = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


SCHEMAS = {each["spec"]["names"]["kind"]: _schema(each) for each in _definitions()}


def fields(schema: JsonObject, path: str = "") -> Iterator[tuple[str, JsonObject]]:
    """Every field of a kind with its schema, by its path; ``[]`` stands behind lists and maps of objects."""
    for name, member in schema.get("properties", {}).items():
        inner = f"{path}.{name}" if path else name
        if inner in _BY_THE_SERVER or inner in _MACHINES_WITHIN:
            continue
        yield inner, member
        yield from fields(member, inner)
    for below in ("items", "additionalProperties"):
        item: Any = schema.get(below)
        if isinstance(item, dict) and "properties" in item:
            yield f"{path}[]", item
            yield from fields(item, f"{path}[]")


def lines(schema: JsonObject) -> list[str]:
    """The lines of a description: that of the field, and that of what it holds."""
    return str(schema["description"]).split("\n")


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_field_is_described(kind: str) -> None:
    assert [path for path, schema in fields(SCHEMAS[kind]) if not schema.get("description")] == []


def test_the_walk_finds_a_field_without_description() -> None:
    inside = {"type": "object", "description": "An entry.", "properties": {"silent": {"type": "string"}}}
    schema = {"properties": {"list": {"type": "array", "description": "Entries.", "items": inside}}}
    assert [path for path, found in fields(schema) if not found.get("description")] == ["list[].silent"]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_descriptions_are_short_sentences(kind: str) -> None:
    """They are stored with each definition, and read in a terminal."""
    for path, schema in fields(SCHEMAS[kind]):
        for text in lines(schema):
            assert text.endswith(".") and len(text) <= _LONGEST, f"{path}: {text}"


def test_descriptions_are_short_on_the_whole() -> None:
    distinct = {text for kind in SCHEMAS for _, schema in fields(SCHEMAS[kind]) for text in lines(schema)}
    assert sum(map(len, distinct)) / len(distinct) < _MEAN


def _without_effect(kind: str) -> list[str]:
    return [f"spec.{path}" for path, entry in KINDS[kind].items() if _says_nothing(entry)]


def _says_nothing(entry: Any) -> bool:
    return entry.state is State.WARNS and not entry.warning


@pytest.mark.parametrize("kind", [kind for kind in SCHEMAS if kind in KINDS])
def test_fields_without_effect_say_so(kind: str) -> None:
    """Admission warns of these, by the table of what fields do; `kubectl explain` tells before."""
    found = {path: schema["description"] for path, schema in fields(SCHEMAS[kind])}
    assert [path for path in _without_effect(kind) if not _is_told(path, found)] == []


def _is_told(path: str, found: dict[str, str]) -> bool:
    """Whether the field, or one that contains it, says that there is no effect."""
    names = path.split(".")
    outer = (".".join(names[:length]) for length in range(len(names), 0, -1))
    return any("no effect" in found.get(each, "").lower() for each in outer)


class Inner(ApiStruct, kw_only=True):
    """What it is."""


class Outer(ApiStruct, kw_only=True):
    """Both."""

    bare: Inner = Inner()
    listed: Annotated[tuple[Inner, ...], describe("All of them.")] = ()
    named: Annotated[Inner | None, describe("What it is for.")] = None


def test_a_field_of_a_struct_shows_its_own_description_or_that_of_the_struct() -> None:
    shown = object_schema(Outer)["properties"]
    assert shown["bare"]["description"] == "What it is."
    assert shown["named"]["description"] == "What it is for."
    assert shown["listed"]["description"] == "All of them."
    assert shown["listed"]["items"]["description"] == "What it is."

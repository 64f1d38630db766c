"""What ``kubectl explain`` says of each field."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from functools import cache
from typing import Annotated

import pytest

from kubecore.json import JsonObject
from virtplane.api.fields.kinds import KINDS
from virtplane.api.fields.state import State
from virtplane.api.fields.structs import KNOWN
from virtplane.api.markers import ApiStruct, describe
from virtplane.api.schema import object_schema

_NOT_YET = """
backup_v1alpha1.backup cdi_v1beta1.cdi cdi_v1beta1.cdi_config cdi_v1beta1.data_import_cron
cdi_v1beta1.data_source cdi_v1beta1.data_volume cdi_v1beta1.data_volume_template
cdi_v1beta1.object_transfer cdi_v1beta1.storage_profile cdi_v1beta1.volume_sources clone_v1beta1.clone
conditions core_v1 export_v1.export forklift_v1beta1.populators
hostpathprovisioner_v1beta1.hostpathprovisioner kubevirt_v1.configuration kubevirt_v1.kubevirt
kubevirt_v1.migration_configuration meta_v1 snapshot_v1beta1.restore snapshot_v1beta1.snapshot
"""
NOT_YET = frozenset(f"virtplane.api.{module}" for module in _NOT_YET.split())
"""Modules with fields that are not described yet."""

SERVERS_OWN = ("apiVersion", "kind", "metadata")
"""Fields of every kind, which API servers describe whatever the definition says."""

STRUCTS = {entry.resource.kind: entry.struct for entry in KNOWN}


def members(struct: type[ApiStruct]) -> frozenset[type[ApiStruct]]:
    """The structs of a struct's fields."""
    hints = typing.get_type_hints(struct, include_extras=True)
    return frozenset(found for hint in hints.values() for found in _structs_in(hint))


def _structs_in(hint: object) -> Iterator[type[ApiStruct]]:
    if isinstance(hint, type) and issubclass(hint, ApiStruct):
        yield hint
    for argument in typing.get_args(hint):
        yield from _structs_in(argument)


@cache
def everything_in(kind: str) -> frozenset[type[ApiStruct]]:
    """The structs that objects of a kind are made of."""
    found: set[type[ApiStruct]] = set()
    left = {STRUCTS[kind]}
    while left:
        struct = left.pop()
        found.add(struct)
        left |= {each for each in members(struct) if each.schema_has_members} - found
    return frozenset(found)


def undescribed(schema: JsonObject, path: str = "") -> Iterator[str]:
    for name, member in schema.get("properties", {}).items():
        if not path and name in SERVERS_OWN:
            continue
        inner = f"{path}.{name}"
        if not member.get("description"):
            yield inner
        yield from undescribed(member, inner)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from undescribed(schema[name], f"{path}[]")


ALL_STRUCTS: frozenset[type[ApiStruct]] = frozenset(each for kind in STRUCTS for each in everything_in(kind))


DESCRIBED = sorted((each for each in ALL_STRUCTS if each.__module__ not in NOT_YET), key=str)


@pytest.mark.parametrize(
    "struct", DESCRIBED, ids=[f"{each.__module__}.{each.__name__}" for each in DESCRIBED]
)
def test_every_field_of_a_struct_has_a_description(struct: type[ApiStruct]) -> None:
    properties = object_schema(struct).get("properties", {})
    missing = [name for name, member in properties.items() if not member.get("description")]
    own = SERVERS_OWN if struct in STRUCTS.values() else ()
    assert [name for name in missing if name not in own] == []


@pytest.mark.parametrize(
    "kind",
    [kind for kind in STRUCTS if not any(each.__module__ in NOT_YET for each in everything_in(kind))],
)
def test_every_field_of_a_kind_has_a_description(kind: str) -> None:
    assert list(undescribed(object_schema(STRUCTS[kind]))) == []


def test_modules_that_are_not_described_yet_exist() -> None:
    assert {each.__module__ for each in ALL_STRUCTS} >= NOT_YET


def shown_above(schema: JsonObject, path: str) -> list[str]:
    """The descriptions of a field and of all that is around it."""
    texts = []
    for name in path.split("."):
        schema = schema["properties"][name.removesuffix("[]")]
        texts.append(schema.get("description", ""))
        if schema.get("type") == "array":
            schema = schema["items"]
            texts.append(schema.get("description", ""))
    return texts


@pytest.mark.parametrize("kind", [kind for kind in KINDS if STRUCTS[kind].__module__ not in NOT_YET])
def test_fields_without_effect_say_so(kind: str) -> None:
    schema = object_schema(STRUCTS[kind])
    silent = [
        path
        for path, field in KINDS[kind].items()
        if field.state is State.WARNS
        and not field.warning  # which says what effect there is
        and not any("no effect" in text.lower() for text in shown_above(schema, f"spec.{path}"))
    ]
    assert silent == []


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

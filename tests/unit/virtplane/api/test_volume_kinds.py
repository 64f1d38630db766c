"""The table of volume kinds."""

from __future__ import annotations

import typing

import pytest
from msgspec import Struct, structs

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.volumes import VOLUME_KINDS, Volume, VolumeKind, claim_name, kind_of

_BY_KIND = pytest.mark.parametrize("kind", VOLUME_KINDS, ids=lambda kind: kind.name)


def _struct(kind: VolumeKind) -> type[Struct]:
    """The struct of a kind's source."""
    (found,) = [item for item in structs.fields(Volume) if item.encode_name == kind.name]
    return _member(found.type)


def _member(annotated: object) -> type[Struct]:
    """The struct in ``Annotated[Struct | None, ...]``."""
    if typing.get_origin(annotated) is typing.Annotated:
        return _member(typing.get_args(annotated)[0])
    found = next(item for item in typing.get_args(annotated) if item is not type(None))
    assert isinstance(found, type) and issubclass(found, Struct)
    return found


def test_every_source_of_a_volume_has_a_kind() -> None:
    sources = {item.encode_name for item in structs.fields(Volume)} - {"name"}
    assert {kind.name for kind in VOLUME_KINDS} == sources
    assert len(VOLUME_KINDS) == len(sources)


@_BY_KIND
def test_what_the_table_says_of_a_source_is_in_its_struct(kind: VolumeKind) -> None:
    source = _struct(kind)
    for path in (reference.path for reference in kind.references):
        names = {item.name: item.type for item in structs.fields(source)}
        assert path[0] in names
        if len(path) > 1:
            assert path[1] in {item.name for item in structs.fields(_member(names[path[0]]))}
    if kind.required:
        assert kind.required in {item.encode_name for item in structs.fields(source)}
    if kind.is_hotpluggable:
        assert "hotpluggable" in {item.encode_name for item in structs.fields(source)}


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        ({"persistentVolumeClaim": {"claimName": "disk"}}, "disk"),
        ({"dataVolume": {"name": "disk"}}, "disk"),
        ({"memoryDump": {"claimName": "dump"}}, "dump"),
        ({"ephemeral": {"persistentVolumeClaim": {"claimName": "base"}}}, "base"),
        ({"ephemeral": {}}, ""),
        ({"emptyDisk": {"capacity": "1Gi"}}, ""),
        ({}, ""),
    ],
)
def test_a_volume_names_the_claim_behind_it(source: JsonObject, claim: str) -> None:
    assert claim_name(decode(Volume, {"name": "v", **source})) == claim


def test_a_volume_without_a_source_has_no_kind() -> None:
    assert kind_of(Volume(name="v")) is None


def test_kinds_with_claims_say_what_the_guest_has_of_them() -> None:
    assert all(bool(kind.claim) == bool(kind.claim_is) for kind in VOLUME_KINDS)

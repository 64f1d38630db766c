"""Who owns the replicas, seen through the scale subresource and back."""

from __future__ import annotations

from typing import Any

from kubecore.json import JsonObject
from kubecore.patch import scale

_PATHS: dict[str, Any] = {"apps/v1": scale.REPLICAS, "example.com/v1": None}


def _entry(manager: str, fields: JsonObject, **more: Any) -> JsonObject:
    return {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": "apps/v1",
        "time": "t1",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **more,
    }


_PARENT = [
    _entry("first", {"f:spec": {"f:paused": {}, "f:replicas": {}}}),
    _entry("second", {"f:spec": {"f:paused": {}}}),
    _entry("third", {"f:spec": {"f:replicas": {}}}, apiVersion="old/v1"),
]


def test_the_scale_shows_only_owners_of_the_replicas() -> None:
    assert scale.to_scale(_PARENT, _PATHS) == [
        _entry("first", {"f:spec": {"f:replicas": {}}}, apiVersion="autoscaling/v1")
    ]


def test_an_owner_who_kept_the_replicas_keeps_its_entry() -> None:
    assert scale.to_parent(_PARENT, scale.to_scale(_PARENT, _PATHS), "apps/v1", _PATHS) == _PARENT[:2]


def test_replicas_that_were_taken_move_to_an_entry_without_a_time() -> None:
    taken = _entry(
        "scaler", {"f:spec": {"f:replicas": {}}}, apiVersion="autoscaling/v1", subresource="scale", time="t2"
    )
    moved = _entry("scaler", {"f:spec": {"f:replicas": {}}}, subresource="scale")
    del moved["time"]
    assert scale.to_parent(_PARENT, [taken], "apps/v1", _PATHS) == [
        moved,
        _entry("first", {"f:spec": {"f:paused": {}}}),
        _entry("second", {"f:spec": {"f:paused": {}}}),
    ]


def test_an_entry_with_nothing_left_falls_away() -> None:
    only = [_entry("first", {"f:spec": {"f:replicas": {}}})]
    assert scale.to_parent(only, [], "apps/v1", _PATHS) == []


def test_kinds_of_custom_resources_keep_replicas_where_they_say() -> None:
    assert scale.replicas_path(".spec.size.count") == ("f:spec", "f:size", "f:count")

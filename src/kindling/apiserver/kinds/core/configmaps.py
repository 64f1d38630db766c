"""ConfigMaps."""

from __future__ import annotations

from collections.abc import Iterator

from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.checks import messages
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_object
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, too_long
from kubecore.objects.names import is_config_map_key
from kubecore.resources import CONFIG_MAPS

MAX_BYTES = 1024 * 1024
"""Limit of a secret's or config map's data."""
IMMUTABLE = "field is immutable when `immutable` is set"


def valid_keys(path: FieldPath, data: JsonObject) -> Iterator[FieldError]:
    """Keys that can be names of files."""
    for key in data:
        yield from messages(path.key(key), key, is_config_map_key)


def decoded_size(data: JsonObject) -> int:
    """The bytes of values in base64."""
    return sum(len(value) * 3 // 4 for value in data.values())


def _validate(obj: JsonObject) -> Iterator[FieldError]:
    """Keys, their uniqueness, and the size."""
    data, binary, path = get_object(obj, "data"), get_object(obj, "binaryData"), FieldPath("data")
    for key in data:
        yield from messages(path.key(key), key, is_config_map_key)
        if key in binary:
            yield invalid(path.key(key), key, "duplicate of key present in binaryData")
    yield from valid_keys(FieldPath("binaryData"), binary)
    if sum(len(value.encode()) for value in data.values()) + decoded_size(binary) > MAX_BYTES:
        yield too_long("[]", MAX_BYTES)


def frozen_data(new: JsonObject, old: JsonObject, fields: tuple[str, ...]) -> Iterator[FieldError]:
    """The errors about `fields` of an object that was marked immutable (config maps and secrets)."""
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield forbidden("immutable", IMMUTABLE)
    yield from (
        forbidden(field, IMMUTABLE) for field in fields if (new.get(field) or {}) != (old.get(field) or {})
    )


def _validate_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """The data of an immutable config map cannot change."""
    yield from frozen_data(new, old, ("data", "binaryData"))
    yield from _validate(new)


class ConfigMapStrategy(BuiltinStrategy):
    """Text and binary data, frozen when `immutable`."""

    metadata_checks = (1, 1)
    has_status = False
    tracks_generation = False
    rules = Rules(_validate, update=_validate_update)


def definitions() -> list[ResourceDefinition]:
    """Config maps."""
    table = p.Table(
        p.NAME,
        p.plain("Data", lambda obj: len(get_object(obj, "data")) + len(get_object(obj, "binaryData"))),
        p.AGE,
    )
    return [builtin(CONFIG_MAPS, ConfigMapStrategy(), short=("cm",), table=table)]

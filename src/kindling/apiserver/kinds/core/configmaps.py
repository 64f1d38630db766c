"""ConfigMaps."""

from __future__ import annotations

from collections.abc import Iterator

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, Table, plain
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_object
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, too_long
from kubecore.objects.names import is_config_map_key
from kubecore.resources import CONFIG_MAPS

MAX_BYTES = 1024 * 1024
"""Limit of a secret's or config map's data."""
IMMUTABLE = "field is immutable when `immutable` is set"


class ConfigMapStrategy(BuiltinStrategy):
    """Text and binary data, frozen when `immutable`."""

    has_status = False
    tracks_generation = False

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """Keys, their uniqueness, and the size."""
        found: list[FieldError] = []
        data, binary = get_object(obj, "data"), get_object(obj, "binaryData")
        for key in data:
            path = FieldPath("data").key(key)
            found += [invalid(path, key, message) for message in is_config_map_key(key)]
            if key in binary:
                found.append(invalid(path, key, "duplicate of key present in binaryData"))
        for key in binary:
            found += [invalid(FieldPath("binaryData").key(key), key, text) for text in is_config_map_key(key)]
        total = sum(len(value.encode()) for value in data.values())
        total += sum(len(value) * 3 // 4 for value in binary.values())
        if total > MAX_BYTES:
            found.append(too_long("[]", MAX_BYTES))
        return found

    def validate_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """The data of an immutable config map cannot change."""
        return [*frozen_data(new, old, ("data", "binaryData")), *self.validate(ctx, new)]


def frozen_data(new: JsonObject, old: JsonObject, fields: tuple[str, ...]) -> Iterator[FieldError]:
    """The errors about `fields` of an object that was marked immutable (config maps and secrets)."""
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield forbidden("immutable", IMMUTABLE)
    yield from (
        forbidden(field, IMMUTABLE) for field in fields if (new.get(field) or {}) != (old.get(field) or {})
    )


def definitions() -> list[ResourceDefinition]:
    """Config maps."""
    table = Table(
        NAME,
        plain("Data", lambda obj: len(get_object(obj, "data")) + len(get_object(obj, "binaryData"))),
        AGE,
    )
    return [builtin(CONFIG_MAPS, ConfigMapStrategy(), short=("cm",), table=table)]

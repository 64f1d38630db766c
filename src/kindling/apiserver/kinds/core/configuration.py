"""ConfigMaps, Secrets and ServiceAccounts."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin, labels_of
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, Table, age, plain
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, required, too_long
from kubecore.objects.names import is_config_map_key
from kubecore.resources import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS

MAX_BYTES = 1024 * 1024
"""Limit of a secret's or config map's data."""
IMMUTABLE = "field is immutable when `immutable` is set"
TOKEN_TYPE = "kubernetes.io/service-account-token"
ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"
MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"


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
        """Frozen data stays."""
        return _validate_frozen(new, old, ("data", "binaryData")) + self.validate(ctx, new)


def _validate_frozen(new: JsonObject, old: JsonObject, fields: tuple[str, ...]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    found = []
    if not new.get("immutable"):
        found.append(forbidden("immutable", IMMUTABLE))
    return found + [
        forbidden(field, IMMUTABLE) for field in fields if (new.get(field) or {}) != (old.get(field) or {})
    ]


class SecretStrategy(BuiltinStrategy):
    """Secrets by type; stringData is merged into data."""

    has_status = False
    tracks_generation = False

    def complete(self, obj: JsonObject) -> None:
        """Opaque unless said otherwise."""
        obj.setdefault("type", "Opaque")
        text = obj.pop("stringData", None)
        if text:
            data = obj.setdefault("data", {})
            for key, value in text.items():
                data[key] = base64.b64encode(str(value).encode()).decode()

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """The type stays when it is not given."""
        super().prepare_for_update(ctx, new, old)
        if not new.get("type"):
            new["type"] = old.get("type", "Opaque")

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """Keys, size, and what the type demands."""
        data = get_object(obj, "data")
        found: list[FieldError] = []
        for key in data:
            found += [invalid(FieldPath("data").key(key), key, message) for message in is_config_map_key(key)]
        if sum(len(value) * 3 // 4 for value in data.values()) > MAX_BYTES:
            found.append(too_long("data", MAX_BYTES))
        return found + _validate_type(obj, data)

    def validate_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """The type never changes, frozen data neither."""
        found = []
        if new.get("type") != old.get("type"):
            found.append(invalid("type", new.get("type"), "field is immutable"))
        return found + _validate_frozen(new, old, ("data",)) + self.validate(ctx, new)

    def selectable_fields(self, obj: JsonObject) -> Mapping[str, str]:
        """The type."""
        return labels_of(obj, "type")


_REQUIRED_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def _validate_type(obj: JsonObject, data: JsonObject) -> list[FieldError]:
    kind = obj.get("type", "")
    path = FieldPath("data")
    if kind == TOKEN_TYPE and not get_object(obj, "metadata", "annotations").get(ACCOUNT_ANNOTATION):
        return [required(FieldPath("metadata", "annotations").key(ACCOUNT_ANNOTATION))]
    if kind == "kubernetes.io/basic-auth" and not data.keys() & {"username", "password"}:
        return [required(path.key("username")), required(path.key("password"))]
    found = [required(path.key(key)) for key in _REQUIRED_KEYS.get(kind, ()) if key not in data]
    if kind in ("kubernetes.io/ssh-auth",) and not found and not data["ssh-privatekey"]:
        found.append(required(path.key("ssh-privatekey")))
    if kind in ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson") and not found:
        key = _REQUIRED_KEYS[kind][0]
        problem = _json_problem(data[key])
        if problem:
            found.append(invalid(path.key(key), "<secret contents redacted>", problem))
    return found


def _json_problem(encoded: str) -> str:
    """What is wrong with a base64 JSON document, as Go's decoder says it; empty when nothing is."""
    try:
        text = base64.b64decode(encoded)
        if not text:
            return "unexpected end of JSON input"
        document = json.loads(text)
    except (binascii.Error, UnicodeDecodeError):
        return "invalid character in string literal"
    except json.JSONDecodeError as error:
        if error.pos >= len(error.doc):
            return "unexpected end of JSON input"
        return f"invalid character '{error.doc[error.pos]}' looking for beginning of value"
    if not isinstance(document, dict):
        return "json: cannot unmarshal value into Go value of type map[string]interface {}"
    return ""


class ServiceAccountStrategy(BuiltinStrategy):
    """Accounts of workloads."""

    has_status = False
    returns_deleted_object = True
    tracks_generation = False

    def warnings(self, ctx: RequestContext, obj: JsonObject, old: JsonObject | None) -> list[str]:
        """The deprecated annotation."""
        now = get_object(obj, "metadata", "annotations")
        before = get_object(old, "metadata", "annotations") if old else {}
        if MOUNTABLE in now and MOUNTABLE not in before:
            return [
                f"metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; "
                "prefer separate namespaces to isolate access to mounted secrets"
            ]
        return []


def _name(obj: JsonObject) -> str:
    return get_str(obj, "metadata", "name")


def _config_map_cells(obj: JsonObject) -> list[Any]:
    return [_name(obj), len(get_object(obj, "data")) + len(get_object(obj, "binaryData")), age(obj)]


def _secret_cells(obj: JsonObject) -> list[Any]:
    return [_name(obj), obj.get("type", ""), len(get_object(obj, "data")), age(obj)]


def _account_cells(obj: JsonObject) -> list[Any]:
    return [_name(obj), age(obj)]


def definitions() -> list[ResourceDefinition]:
    """ConfigMaps, Secrets, ServiceAccounts (their token subresource is the server's)."""
    return [
        builtin(
            CONFIG_MAPS,
            ConfigMapStrategy(),
            short=("cm",),
            table=Table((NAME, plain("Data"), AGE), _config_map_cells),
        ),
        builtin(
            SECRETS,
            SecretStrategy(),
            table=Table((NAME, plain("Type"), plain("Data"), AGE), _secret_cells),
            fields=("type",),
        ),
        builtin(
            SERVICE_ACCOUNTS,
            ServiceAccountStrategy(),
            short=("sa",),
            table=Table((NAME, AGE), _account_cells),
        ),
    ]

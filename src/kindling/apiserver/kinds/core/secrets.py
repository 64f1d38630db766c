"""Secrets."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin, labels_of
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, Table, plain
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_object
from kubecore.objects.fields import FieldError, FieldPath, invalid, required, too_long
from kubecore.objects.names import is_config_map_key
from kubecore.resources import SECRETS

from .configmaps import MAX_BYTES, frozen_data

TOKEN_TYPE = "kubernetes.io/service-account-token"
ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"


class SecretStrategy(BuiltinStrategy):
    """Secrets by type; stringData is merged into data."""

    has_status = False
    tracks_generation = False

    def complete(self, obj: JsonObject) -> None:
        """Default to type Opaque, and merge stringData into data."""
        obj.setdefault("type", "Opaque")
        text = obj.pop("stringData", None)
        if text:
            data = obj.setdefault("data", {})
            for key, value in text.items():
                data[key] = base64.b64encode(str(value).encode()).decode()

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Keep the type if the client does not send one."""
        super().prepare_for_update(ctx, new, old)
        if not new.get("type"):
            new["type"] = old.get("type", "Opaque")

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """Validate the keys, the size, and the rules of the type."""
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
        return [*found, *frozen_data(new, old, ("data",)), *self.validate(ctx, new)]

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
    """The error of Go's decoder for a base64-encoded JSON document; empty if it is valid."""
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


def definitions() -> list[ResourceDefinition]:
    """Secrets."""
    table = Table(NAME, plain("Type", "type"), plain("Data", lambda obj: len(get_object(obj, "data"))), AGE)
    return [builtin(SECRETS, SecretStrategy(), table=table, fields=("type",))]

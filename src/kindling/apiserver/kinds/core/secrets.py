"""Secrets."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.checks import immutable
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kindling.apiserver.registry.go_json import read_leniently, syntax_error
from kubecore.json import JsonObject, get_object
from kubecore.objects.fields import FieldError, FieldPath, invalid, required, too_long
from kubecore.resources import SECRETS

from .configmaps import MAX_BYTES, decoded_size, frozen_data, valid_keys

TOKEN_TYPE = "kubernetes.io/service-account-token"
ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"


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
    except binascii.Error:
        return "invalid character in string literal"
    if problem := syntax_error(text):
        return problem
    try:
        document = read_leniently(text)
    except ValueError:
        return "json: cannot unmarshal number into Go value of type float64"
    if not isinstance(document, dict):
        return "json: cannot unmarshal value into Go value of type map[string]interface {}"
    return ""


def validate_secret(obj: JsonObject) -> Iterator[FieldError]:
    """Keys, size, and what the type demands."""
    data = get_object(obj, "data")
    yield from valid_keys(FieldPath("data"), data)
    if decoded_size(data) > MAX_BYTES:
        yield too_long("data", MAX_BYTES)
    yield from _validate_type(obj, data)


def validate_secret_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """The type never changes, frozen data neither."""
    yield from immutable("type", new.get("type"), old.get("type"))
    yield from frozen_data(new, old, ("data",))
    yield from validate_secret(new)


class SecretStrategy(BuiltinStrategy):
    """Secrets by type; stringData is merged into data."""

    metadata_checks = (1, 1)
    has_status = False
    tracks_generation = False
    rules = Rules(validate_secret, update=validate_secret_update)

    def complete(self, obj: JsonObject) -> None:
        """Default to type Opaque, and merge stringData into data."""
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


def definitions() -> list[ResourceDefinition]:
    """Secrets."""
    table = p.Table(
        p.NAME, p.plain("Type", "type"), p.plain("Data", lambda obj: len(get_object(obj, "data"))), p.AGE
    )
    return [builtin(SECRETS, SecretStrategy(), table=table, fields=("type",))]

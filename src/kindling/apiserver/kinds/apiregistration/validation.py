"""APIServices: name, priorities, service and certificates."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from kindling.apiserver.kinds.machinery import fields as f
from kubecore.json import JsonObject, get_str
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, invalid


def validate_api_service(obj: JsonObject) -> Iterator[FieldError]:
    """The rules of an APIService."""
    group, version = get_str(obj, "spec", "group"), get_str(obj, "spec", "version")
    name, wanted = get_str(obj, "metadata", "name"), f"{version}.{group}"
    if name != wanted:
        text = f'must be `spec.version+"."+spec.group`: "{wanted}"'
        yield invalid(FieldPath("metadata", "name"), name, text)
    yield from _RULES(obj)


def _priority(limit: int) -> f.Check:
    text = f"must be positive and less than {limit}"
    return lambda path, value: [] if 0 < value <= limit else [invalid(path, value, text)]


def _local(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    bundle = spec.get("caBundle")
    if bundle:
        shown = f"{_decoded_length(bundle)} bytes"
        yield invalid(path.child("caBundle"), shown, "local APIServices may not have a caBundle")
    if spec.get("insecureSkipTLSVerify"):
        text = "local APIServices may not have insecureSkipTLSVerify"
        yield invalid(path.child("insecureSkipTLSVerify"), True, text)


def _secure(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
        yield invalid(path.child("insecureSkipTLSVerify"), True, "may not be true if caBundle is present")


def _port(path: FieldPath, port: int) -> Iterator[FieldError]:
    if not 1 <= port <= 65535:
        yield invalid(path, port, "port is not valid: must be between 1 and 65535, inclusive")


_RULES = f.spec(
    f.may("group", f.SUBDOMAIN),
    f.always("version", "", f.named(names.is_dns1035_label)),
    f.always("groupPriorityMinimum", 0, _priority(20000)),
    f.always("versionPriority", 0, _priority(1000)),
    f.when(f.equals("service", None), _local),
    f.unless(f.equals("service", None), _secure),
    f.given("service", *f.needed("namespace", "name"), f.given("port", _port)),
)


def _decoded_length(encoded: str) -> int:
    try:
        return len(base64.b64decode(encoded))
    except binascii.Error:
        return len(encoded)

"""APIServices: name, priorities, service and certificates."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.fields import FieldError, FieldPath, invalid, required
from kubecore.objects.names import is_dns1035_label, is_dns1123_subdomain


def validate_api_service(obj: JsonObject) -> Iterator[FieldError]:
    """The rules of an APIService."""
    spec = get_object(obj, "spec")
    path = FieldPath("spec")
    group, version = spec.get("group", ""), spec.get("version", "")
    name, wanted = get_str(obj, "metadata", "name"), f"{version}.{group}"
    if name != wanted:
        text = f'must be `spec.version+"."+spec.group`: "{wanted}"'
        yield invalid(FieldPath("metadata", "name"), name, text)
    yield from (
        invalid(path.child("group"), group, text) for text in (is_dns1123_subdomain(group) if group else [])
    )
    yield from (invalid(path.child("version"), version, text) for text in is_dns1035_label(version))
    for field, limit in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        value = spec.get(field, 0)
        if not 0 < value <= limit:
            yield invalid(path.child(field), value, f"must be positive and less than {limit}")
    bundle, insecure, service = spec.get("caBundle"), spec.get("insecureSkipTLSVerify"), spec.get("service")
    if service is None:
        if bundle:
            yield invalid(
                path.child("caBundle"),
                f"{_decoded_length(bundle)} bytes",
                "local APIServices may not have a caBundle",
            )
        if insecure:
            yield invalid(
                path.child("insecureSkipTLSVerify"),
                True,
                "local APIServices may not have insecureSkipTLSVerify",
            )
        return
    if insecure and bundle:
        yield invalid(path.child("insecureSkipTLSVerify"), True, "may not be true if caBundle is present")
    if not service.get("namespace"):
        yield required(path.child("service", "namespace"))
    if not service.get("name"):
        yield required(path.child("service", "name"))
    port = service.get("port", 443)
    if not 1 <= port <= 65535:
        text = "port is not valid: must be between 1 and 65535, inclusive"
        yield invalid(path.child("service", "port"), port, text)


def _decoded_length(encoded: str) -> int:
    try:
        return len(base64.b64decode(encoded))
    except binascii.Error:
        return len(encoded)

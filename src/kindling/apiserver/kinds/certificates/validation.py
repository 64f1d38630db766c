"""CertificateSigningRequests."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from kindling.apiserver.kinds.machinery.fields import check_fields, needed
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    Verbatim,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kubecore.objects.names import is_dns1123_label, is_dns1123_subdomain

from . import signing_requests

_SPEC = FieldPath("spec")
USAGES = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)
_KNOWN = ("Approved", "Denied", "Failed")
MIN_SECONDS = 600


def validate_request(obj: JsonObject) -> list[FieldError]:
    """A request that can be read, for a named signer and known usages."""
    spec = get_object(obj, "spec")
    found: list[FieldError] = []
    problem = _request_problem(spec.get("request") or "")
    if problem:
        # The server shows the bytes of what it could not read.
        request = spec.get("request")
        shown = Verbatim(_bytes(request)) if request else request
        found.append(invalid(_SPEC.child("request"), shown, problem))
    usages = get_list(spec, "usages")
    if not usages:
        found.append(required(_SPEC.child("usages")))
    for position, usage in enumerate(usages):
        at = _SPEC.child("usages").index(position)
        if usage not in USAGES:
            found.append(not_supported(at, usage, USAGES))
        if usage in usages[:position]:
            found.append(duplicate(at, usage))
    found += _validate_signer(spec.get("signerName", ""), _SPEC.child("signerName"))
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < MIN_SECONDS:
        text = f"may not specify a duration less than {MIN_SECONDS} seconds (10 minutes)"
        found.append(invalid(_SPEC.child("expirationSeconds"), seconds, text))
    return found


def _request_problem(encoded: str) -> str:
    try:
        pem = base64.b64decode(encoded, validate=False)
    except binascii.Error:
        pem = b""
    if (
        b"-----BEGIN CERTIFICATE REQUEST-----" not in pem
        and b"-----BEGIN NEW CERTIFICATE REQUEST-----" not in pem
    ):
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        signing_requests.load(pem)
    except ValueError as error:
        return str(error)
    return ""


def _bytes(encoded: str) -> str:
    try:
        raw = base64.b64decode(encoded)
    except binascii.Error:
        raw = b""
    return f"[{', '.join(hex(byte) for byte in raw)}]"


def _validate_signer(name: str, path: FieldPath) -> list[FieldError]:
    if not name:
        return [required(path)]
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        text = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid(path, name, text)]
    found = [invalid(path, domain, text) for text in is_dns1123_subdomain(domain)]
    if "." not in domain:
        text = "should be a domain with at least two segments separated by dots"
        found.append(invalid(path, domain, text))
    for part in rest.split("."):
        found += [invalid(path, part, text) for text in is_dns1123_label(part)]
    return found


def validate_request_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """The spec is restored before this is asked."""
    return []


def validate_conditions(new: JsonObject, old: JsonObject, *, approval: bool) -> list[FieldError]:
    """Each type once, decisions not both; `approval` may add decisions, ``/status`` may not."""
    path = FieldPath("status", "conditions")
    conditions = get_list(new, "status", "conditions")
    found: list[FieldError] = []
    seen: set[str] = set()
    for position, condition in enumerate(conditions):
        here = path.index(position)
        kind, status = condition.get("type", ""), condition.get("status", "")
        found += check_fields(condition, here, *needed("type"))
        if kind in seen:
            found.append(duplicate(here.child("type"), kind))
        seen.add(kind)
        if not status:
            found.append(required(here.child("status")))
        elif kind in _KNOWN and status != "True":
            found.append(not_supported(here.child("status"), status, ["True"]))
        elif status not in ("True", "False", "Unknown"):
            found.append(not_supported(here.child("status"), status, ["True", "False", "Unknown"]))
        if kind in ("Approved", "Denied") and {"Approved", "Denied"} <= seen:
            text = "Approved and Denied conditions are mutually exclusive"
            found.append(invalid(path, kind, text))
    return found + _validate_decisions(new, old, path, approval=approval)


def _validate_decisions(
    new: JsonObject, old: JsonObject, path: FieldPath, *, approval: bool
) -> list[FieldError]:
    found: list[FieldError] = []
    for kind in _KNOWN:
        now, before = _of(new, kind), _of(old, kind)
        if before and not now:
            found.append(forbidden(path, f'updates may not remove a condition of type "{kind}"'))
        elif now and not before and not approval and kind != "Failed":
            found.append(forbidden(path, f'updates may not add a condition of type "{kind}"'))
    return found


def _of(obj: JsonObject, kind: str) -> list[Any]:
    return [item for item in get_list(obj, "status", "conditions") if item.get("type") == kind]

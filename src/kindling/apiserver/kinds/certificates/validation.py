"""CertificateSigningRequests."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
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


def validate_request(obj: JsonObject) -> Iterator[FieldError]:
    """A request that can be read, for a named signer and known usages."""
    spec = get_object(obj, "spec")
    problem = _request_problem(spec.get("request") or "")
    if problem:
        # The message shows the bytes that could not be decoded.
        request = spec.get("request")
        shown = Verbatim(_bytes(request)) if request else request
        yield invalid(_SPEC.child("request"), shown, problem)
    usages = get_list(spec, "usages")
    if not usages:
        yield required(_SPEC.child("usages"))
    for position, usage in enumerate(usages):
        at = _SPEC.child("usages").index(position)
        if usage not in USAGES:
            yield not_supported(at, usage, USAGES)
        if usage in usages[:position]:
            yield duplicate(at, usage)
    yield from _validate_signer(spec.get("signerName", ""), _SPEC.child("signerName"))
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < MIN_SECONDS:
        text = f"may not specify a duration less than {MIN_SECONDS} seconds (10 minutes)"
        yield invalid(_SPEC.child("expirationSeconds"), seconds, text)


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


def _validate_signer(name: str, path: FieldPath) -> Iterator[FieldError]:
    if not name:
        yield required(path)
        return
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        text = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield invalid(path, name, text)
        return
    yield from (invalid(path, domain, text) for text in is_dns1123_subdomain(domain))
    if "." not in domain:
        yield invalid(path, domain, "should be a domain with at least two segments separated by dots")
    for part in rest.split("."):
        yield from (invalid(path, part, text) for text in is_dns1123_label(part))


def validate_request_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """The strategy has restored the spec before this is called."""
    return []


def validate_conditions(new: JsonObject, old: JsonObject, *, approval: bool) -> Iterator[FieldError]:
    """Each type once, decisions not both; `approval` may add decisions, ``/status`` may not."""
    path = FieldPath("status", "conditions")
    conditions = get_list(new, "status", "conditions")
    seen: set[str] = set()
    for position, condition in enumerate(conditions):
        here = path.index(position)
        kind, status = condition.get("type", ""), condition.get("status", "")
        yield from check_fields(condition, here, *needed("type"))
        if kind in seen:
            yield duplicate(here.child("type"), kind)
        seen.add(kind)
        if not status:
            yield required(here.child("status"))
        elif kind in _KNOWN and status != "True":
            yield not_supported(here.child("status"), status, ["True"])
        elif status not in ("True", "False", "Unknown"):
            yield not_supported(here.child("status"), status, ["True", "False", "Unknown"])
        if kind in ("Approved", "Denied") and {"Approved", "Denied"} <= seen:
            yield invalid(path, kind, "Approved and Denied conditions are mutually exclusive")
    yield from _validate_decisions(new, old, path, approval=approval)


def _validate_decisions(
    new: JsonObject, old: JsonObject, path: FieldPath, *, approval: bool
) -> Iterator[FieldError]:
    for kind in _KNOWN:
        now, before = _of(new, kind), _of(old, kind)
        if before and not now:
            yield forbidden(path, f'updates may not remove a condition of type "{kind}"')
        elif now and not before and not approval and kind != "Failed":
            yield forbidden(path, f'updates may not add a condition of type "{kind}"')


def _of(obj: JsonObject, kind: str) -> list[Any]:
    return [item for item in get_list(obj, "status", "conditions") if item.get("type") == kind]

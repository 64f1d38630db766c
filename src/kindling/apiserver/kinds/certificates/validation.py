"""CertificateSigningRequests."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from kindling.apiserver.kinds.machinery import fields as f
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects.fields import FieldError, FieldPath, Verbatim, duplicate, forbidden, invalid
from kubecore.objects.names import is_dns1123_label, is_dns1123_subdomain

from . import signing_requests

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
_TOO_SHORT = f"may not specify a duration less than {MIN_SECONDS} seconds (10 minutes)"


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


def _signer(path: FieldPath, name: str) -> Iterator[FieldError]:
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


def _request(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    request = spec.get("request")
    problem = _request_problem(request or "")
    if problem:
        # The server shows the bytes of what it could not read.
        yield invalid(path.child("request"), Verbatim(_bytes(request)) if request else request, problem)


validate_request = f.spec(
    _request,
    f.must("usages", f.items(f.choice(*USAGES), f.Once())),
    f.must("signerName", _signer),
    f.given("expirationSeconds", f.at_least(MIN_SECONDS, _TOO_SHORT)),
)
"""A request that can be read, for a named signer and known usages."""


def validate_conditions(new: JsonObject, old: JsonObject, *, approval: bool) -> Iterator[FieldError]:
    """Each type once, decisions not both; `approval` may add decisions, ``/status`` may not."""
    path, seen = FieldPath("status", "conditions"), set[str]()
    for position, condition in enumerate(get_list(new, "status", "conditions")):
        here, kind = path.index(position), condition.get("type", "")
        yield from f.check_fields(condition, here, f.must("type"))
        if kind in seen:
            yield duplicate(here.child("type"), kind)
        seen.add(kind)
        values = ("True",) if kind in _KNOWN else ("True", "False", "Unknown")
        yield from f.check_fields(condition, here, f.must("status", f.choice(*values)))
        if kind in ("Approved", "Denied") and {"Approved", "Denied"} <= seen:
            yield invalid(path, kind, "Approved and Denied conditions are mutually exclusive")
    yield from _validate_decisions(new, old, path, approval=approval)


def validate_request_status(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A write of ``/status``: conditions but for decisions, and the certificate that was issued."""
    yield from validate_conditions(new, old, approval=False)
    issued = get_str(new, "status", "certificate")
    if not issued or issued == get_str(old, "status", "certificate"):
        return
    problem = signing_requests.problem_of_certificates(base64.b64decode(issued))
    if problem:
        yield invalid(FieldPath("status", "certificate"), "<certificate data>", problem)


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

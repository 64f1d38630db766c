"""Tokens: what they say, and which ones are believed."""

from __future__ import annotations

import base64
import hmac

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from kubecore.json import JsonObject
from virtplane.api.resources import VOLUME_SNAPSHOTS
from virtplane.storage.cdi.tokens import (
    InvalidToken,
    Operation,
    Payload,
    Signer,
    Verifier,
    new_signing_key,
)

_NOW = 1_800_000_000.0
_SECRET = new_signing_key()
_PRIVATE = base64.b64decode(_SECRET["id_rsa"])
_PUBLIC = base64.b64decode(_SECRET["id_rsa.pub"])
_CLONE = Payload(
    Operation.CLONE, "src", "ns", VOLUME_SNAPSHOTS, {"targetNamespace": "other", "targetName": "dv"}
)


def _signer(seconds: int = 300, issuer: str = "cdi-apiserver") -> Signer:
    return Signer(issuer, _PRIVATE, seconds, clock=lambda: _NOW)


def _verifier(now: float = _NOW) -> Verifier:
    return Verifier("cdi-apiserver", _PUBLIC, clock=lambda: now)


def test_what_was_signed_is_read() -> None:
    found = _verifier().verify(_signer().sign(_CLONE))
    assert (found.operation, found.name, found.namespace) == ("Clone", "src", "ns")
    assert (found.group, found.resource) == ("snapshot.storage.k8s.io", "volumesnapshots")
    assert found.params == {"targetNamespace": "other", "targetName": "dv"}


def test_claims_are_those_of_cdi() -> None:
    token = _signer().sign(Payload(Operation.UPLOAD, "claim", "ns"))
    decoded = jwt.decode(token, RSAKey.import_key(_PUBLIC), algorithms=["PS256"])
    assert decoded.header == {"alg": "PS256"}
    assert decoded.claims == {
        "iss": "cdi-apiserver",
        "iat": int(_NOW),
        "nbf": int(_NOW),
        "exp": int(_NOW) + 300,
        "operation": "Upload",
        "name": "claim",
        "namespace": "ns",
        "resource": {"group": "", "version": "v1", "resource": "persistentvolumeclaims"},
    }


@pytest.mark.parametrize(
    ("now", "valid"), [(_NOW - 11, False), (_NOW - 9, True), (_NOW + 309, True), (_NOW + 311, False)]
)
def test_tokens_are_valid_for_a_time(now: float, valid: bool) -> None:
    token = _signer().sign(_CLONE)
    if valid:
        assert _verifier(now).verify(token).name == "src"
    else:
        with pytest.raises(InvalidToken):
            _verifier(now).verify(token)


def _forged(header: JsonObject, key: RSAKey) -> str:
    claims = {**_CLONE.claims(), "iss": "cdi-apiserver", "exp": int(_NOW) + 300}
    return jwt.encode(header, claims, key, algorithms=[header["alg"]])


def _signed_with_the_public_key() -> str:
    """By HMAC, whose secret the public key is not."""
    head = base64.urlsafe_b64encode(b'{"alg":"HS256"}').rstrip(b"=").decode()
    signed = f"{head}.{_signer().sign(_CLONE).split('.')[1]}"
    signature = hmac.digest(_PUBLIC, signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def test_tokens_of_others_are_refused() -> None:
    stranger = RSAKey.import_key(base64.b64decode(new_signing_key()["id_rsa"]))
    own = RSAKey.import_key(_PRIVATE)
    forged = [
        "",
        "a.b.c",
        "x" * 100_000,
        _signer(issuer="somebody").sign(_CLONE),
        _forged({"alg": "PS256"}, stranger),
        _forged({"alg": "RS256"}, own),
        _signed_with_the_public_key(),
        jwt.encode({"alg": "PS256"}, {**_CLONE.claims(), "iss": "cdi-apiserver"}, own, algorithms=["PS256"]),
    ]
    for token in forged:
        with pytest.raises(InvalidToken):
            _verifier().verify(token)


def test_no_algorithm_is_no_signature() -> None:
    head = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    _, claims, _ = _signer().sign(_CLONE).split(".")
    with pytest.raises(InvalidToken):
        _verifier().verify(f"{head}.{claims}.")

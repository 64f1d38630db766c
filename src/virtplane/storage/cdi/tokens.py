"""Tokens: what a user may do with one claim or snapshot, signed by who has asked the API server about it.

Upload tokens go to users, clone tokens into an annotation of their DataVolume, which others could copy: a
token names its operation, its source and, for clones, its target, and must be compared with them.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from kubecore.json import JsonObject, get_object, get_str
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, ResourceType
from virtplane.api import cdi_names

ALGORITHM = "PS256"
SHORT_SECONDS = 5 * 60
"""How long tokens of cdi-apiserver are valid."""
LONG_SECONDS = 10 * 365 * 24 * 3600
"""How long those are that the controller exchanges clone tokens for."""
LEEWAY_SECONDS = 10
_KEY_BITS = 2048
_MOST_CHARACTERS = 16 * 1024


class Operation(StrEnum):
    """What a token allows."""

    CLONE = "Clone"
    UPLOAD = "Upload"


class InvalidToken(Exception):
    """A token is not signed by the key, is no longer or not yet valid, or says nothing that makes sense."""


@dataclass(frozen=True, slots=True)
class Payload:
    """What a token says: that `operation` is allowed on one object."""

    operation: Operation
    name: str
    namespace: str
    resource: ResourceType = PERSISTENT_VOLUME_CLAIMS
    params: Mapping[str, str] = field(default_factory=dict)

    def claims(self) -> JsonObject:
        """The payload as the claims of a token."""
        found: JsonObject = {
            "operation": str(self.operation),
            "name": self.name,
            "namespace": self.namespace,
            "resource": {
                "group": self.resource.group,
                "version": self.resource.version,
                "resource": self.resource.plural,
            },
        }
        return found | ({"params": dict(self.params)} if self.params else {})


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """What a verified token says. The resource is as written there."""

    operation: str
    name: str
    namespace: str
    group: str
    resource: str
    params: Mapping[str, str]


def new_signing_key() -> dict[str, str]:
    """The data of a new Secret `cdi_names.SIGNING_KEY`, encoded as secrets are."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return {
        cdi_names.SIGNING_KEY_PRIVATE: base64.b64encode(private).decode(),
        cdi_names.SIGNING_KEY_PUBLIC: base64.b64encode(public).decode(),
    }


class Signer:
    """Signs tokens of one issuer. Raises ValueError for an invalid key (PEM)."""

    def __init__(
        self, issuer: str, private_key: bytes, seconds: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._issuer = issuer
        self._key = RSAKey.import_key(private_key)
        self._seconds = seconds
        self._clock = clock

    def sign(self, payload: Payload) -> str:
        """A token that is valid from now on."""
        now = int(self._clock())
        times = {"iss": self._issuer, "iat": now, "nbf": now, "exp": now + self._seconds}
        claims = {**payload.claims(), **times}
        # CDI's tokens have no type.
        return jwt.encode({"alg": ALGORITHM}, claims, self._key, algorithms=[ALGORITHM], default_type=None)


class Verifier:
    """Verifies tokens of one issuer. Raises ValueError for an invalid key (PEM, private or public)."""

    def __init__(self, issuer: str, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._issuer = issuer
        self._key = RSAKey.import_key(key)
        self._clock = clock

    def verify(self, token: str) -> VerifiedToken:
        """What the token says. Raises InvalidToken."""
        if len(token) > _MOST_CHARACTERS:
            raise InvalidToken("the token is too long")
        try:
            claims = jwt.decode(token, self._key, algorithms=[ALGORITHM]).claims
        except (JoseError, ValueError) as error:
            raise InvalidToken(f"the token cannot be verified: {error}") from error
        if claims.get("iss") != self._issuer:
            raise InvalidToken(f"the token was not issued by {self._issuer}")
        self._check_times(claims)
        resource, params = get_object(claims, "resource"), get_object(claims, "params")
        return VerifiedToken(
            operation=get_str(claims, "operation"),
            name=get_str(claims, "name"),
            namespace=get_str(claims, "namespace"),
            group=get_str(resource, "group"),
            resource=get_str(resource, "resource"),
            params={key: value for key, value in params.items() if isinstance(value, str)},
        )

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        now = self._clock()
        expires, begins = claims.get("exp"), claims.get("nbf")
        if not isinstance(expires, int | float) or now > expires + LEEWAY_SECONDS:
            raise InvalidToken("the token is no longer valid")
        if isinstance(begins, int | float) and now < begins - LEEWAY_SECONDS:
            raise InvalidToken("the token is not valid yet")

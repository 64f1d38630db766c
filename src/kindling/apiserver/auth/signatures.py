"""RSA keys and signatures of tokens. Loaded by ``keys`` when the first token needs it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, RSAKey

from kubecore.json import JsonObject

_ALGORITHM = "RS256"
_KEY_BITS = 2048


def new_key() -> bytes:
    """A new private key, PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _key_id(key: RSAKey) -> str:
    """The id that Kubernetes gives a key: the hash of its public half."""
    der = key.as_bytes("DER", private=False)
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).rstrip(b"=").decode()


def _import(pem: bytes) -> RSAKey:
    key = RSAKey.import_key(pem)
    return RSAKey.import_key(pem, {"kid": _key_id(key), "use": "sig", "alg": _ALGORITHM})


class KeyRing:
    """Signs with the first key and accepts signatures of all. Raises ValueError for an invalid key."""

    def __init__(self, pems: Sequence[bytes]) -> None:
        self._keys = [_import(pem) for pem in pems]
        self._set = KeySet(list(self._keys))

    def published(self) -> JsonObject:
        """The public keys as the issuer publishes them."""
        return {
            "keys": [
                {
                    "use": "sig",
                    "kty": "RSA",
                    "kid": key.kid,
                    "alg": _ALGORITHM,
                    **{part: value for part, value in key.as_dict(private=False).items() if part in "ne"},
                }
                for key in self._keys
            ]
        }

    def sign(self, claims: JsonObject) -> str:
        """A token."""
        key = self._keys[0]
        return jwt.encode({"alg": _ALGORITHM, "kid": key.kid}, claims, key)

    def verified(self, token: str) -> Mapping[str, Any] | None:
        """The claims of a token that one of the keys signed, else None."""
        try:
            return jwt.decode(token, self._set, algorithms=[_ALGORITHM]).claims
        except (JoseError, ValueError):
            return None

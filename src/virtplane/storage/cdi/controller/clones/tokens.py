"""Who may clone from another namespace: the tokens in annotations, which anybody there could have written.

cdi-apiserver gives a new DataVolume a token for some minutes once its user has proved his rights. The
controller exchanges it for a long one that is bound to the uid of the DataVolume, and that for one bound to
the uid of its claim: who copies it to another object, or makes another object of that name, has nothing.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Callable
from dataclasses import dataclass

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import get_object, get_str
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, SECRETS, ResourceType
from virtplane.api import cdi_names
from virtplane.storage.cdi.tokens import (
    LONG_SECONDS,
    InvalidToken,
    Operation,
    Payload,
    Signer,
    VerifiedToken,
    Verifier,
)

_UID = "uid"


class NoSigningKey(Exception):
    """There is no key yet, or none that can be used. The text says which."""


@dataclass(frozen=True, slots=True)
class Permission:
    """What a token must allow: one source for one target."""

    namespace: str
    name: str
    target_namespace: str
    target_name: str
    resource: ResourceType = PERSISTENT_VOLUME_CLAIMS

    def is_given_by(self, token: VerifiedToken) -> bool:
        """Whether the token is about this source and this target, whoever it is bound to."""
        said = (token.operation, token.namespace, token.name, token.group, token.resource)
        wanted = (Operation.CLONE, self.namespace, self.name, self.resource.group, self.resource.plural)
        target = (token.params.get("targetNamespace"), token.params.get("targetName"))
        return said == wanted and target == (self.target_namespace, self.target_name)

    def payload(self, uid: str) -> Payload:
        """The same for one object alone."""
        params = {"targetNamespace": self.target_namespace, "targetName": self.target_name, _UID: uid}
        return Payload(Operation.CLONE, self.name, self.namespace, self.resource, params)


@dataclass(frozen=True, slots=True)
class CloneTokens:
    """Verifies and exchanges tokens with one key."""

    short: Verifier
    long: Verifier
    signer: Signer

    @classmethod
    def of_key(cls, pem: bytes, clock: Callable[[], float] = time.time) -> CloneTokens:
        """With a private key (PEM). Raises ValueError for an invalid one."""
        return cls(
            Verifier(cdi_names.API_SERVER_ISSUER, pem, clock),
            Verifier(cdi_names.CONTROLLER_ISSUER, pem, clock),
            Signer(cdi_names.CONTROLLER_ISSUER, pem, LONG_SECONDS, clock),
        )

    def exchanged(self, token: str, permission: Permission, uid: str) -> str:
        """A long token for the object `uid` in exchange for one of cdi-apiserver. Raises InvalidToken."""
        if not permission.is_given_by(self.short.verify(token)):
            raise InvalidToken("invalid token")
        return self.signer.sign(permission.payload(uid))

    def passed_on(self, token: str, permission: Permission, owner_uid: str, uid: str) -> str:
        """A long token for the object `uid` in exchange for that of `owner_uid`. Raises InvalidToken."""
        self.expect(token, permission, owner_uid)
        return self.signer.sign(permission.payload(uid))

    def expect(self, token: str, permission: Permission, uid: str) -> None:
        """Raise InvalidToken unless `token` is a long one that gives `permission` to the object `uid`."""
        found = self.long.verify(token)
        if not uid or found.params.get(_UID) != uid or not permission.is_given_by(found):
            raise InvalidToken("invalid token")


class SigningKey:
    """The tokens of the key that cdi-apiserver keeps in its Secret, read when one is needed."""

    def __init__(self, client: Client, namespace: str) -> None:
        """`namespace` is that of the installation."""
        self._client, self._namespace = client, namespace
        self._pem = b""
        self._tokens: CloneTokens | None = None

    async def tokens(self) -> CloneTokens:
        """Those of the key as it is now. Raises NoSigningKey, StatusError."""
        pem = await self._read()
        if self._tokens is None or pem != self._pem:
            try:
                self._tokens = await asyncio.to_thread(CloneTokens.of_key, pem)
            except ValueError as error:
                raise NoSigningKey(f"Secret {cdi_names.SIGNING_KEY} holds no RSA key: {error}") from error
            self._pem = pem
        return self._tokens

    async def _read(self) -> bytes:
        try:
            found = await self._client.get(SECRETS, cdi_names.SIGNING_KEY, self._namespace)
        except StatusError as error:
            if is_not_found(error):
                raise NoSigningKey(f"there is no Secret {self._namespace}/{cdi_names.SIGNING_KEY}") from error
            raise
        try:
            return base64.b64decode(
                get_str(get_object(found, "data"), cdi_names.SIGNING_KEY_PRIVATE), validate=True
            )
        except binascii.Error as error:
            raise NoSigningKey(f"Secret {cdi_names.SIGNING_KEY} holds no base64: {error}") from error

"""The key that tokens are signed with: a Secret that cdi-apiserver makes once."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging

from kubecore import errors, resources
from kubecore.client import Client, ConnectionFailed
from kubecore.json import JsonObject, get_object, get_str
from virtplane.api import cdi_labels, cdi_names
from virtplane.storage.cdi.tokens import SHORT_SECONDS, Signer, new_signing_key

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 2.0
_CHECK_SECONDS = 60.0


class UnusableKey(Exception):
    """The Secret has no private key that can sign."""


class SigningKey:
    """The signer of the key that the Secret has now; None until there is one."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        """That of the installation."""
        self._pem = b""
        self.signer: Signer | None = None

    async def run(self) -> None:
        """Make the Secret where it is missing, and follow its changes, until cancelled."""
        while True:
            has_key = await self.refresh()
            await asyncio.sleep(_CHECK_SECONDS if has_key else _RETRY_SECONDS)

    async def refresh(self) -> bool:
        """Use the key as it is now; False if there is none, which is logged."""
        try:
            pem = _private_key(await self._secret())
            if pem != self._pem:
                self.signer, self._pem = await asyncio.to_thread(_signer, pem), pem
        except (errors.StatusError, ConnectionFailed, UnusableKey) as error:
            logger.warning(
                "tokens cannot be signed with Secret %s/%s, trying again: %s",
                self.namespace,
                cdi_names.SIGNING_KEY,
                error,
            )
            return False
        return True

    async def _secret(self) -> JsonObject:
        try:
            return await self._client.get(resources.SECRETS, cdi_names.SIGNING_KEY, self.namespace)
        except errors.StatusError as error:
            if not errors.is_not_found(error):
                raise
        document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": cdi_names.SIGNING_KEY,
                "namespace": self.namespace,
                "labels": {cdi_labels.COMPONENT: "", "app.kubernetes.io/component": "storage"},
            },
            "data": await asyncio.to_thread(new_signing_key),
        }
        try:
            return await self._client.create(resources.SECRETS, document, self.namespace)
        except errors.StatusError as error:
            if not errors.is_already_exists(error):
                raise
            return await self._client.get(resources.SECRETS, cdi_names.SIGNING_KEY, self.namespace)


def _private_key(secret: JsonObject) -> bytes:
    try:
        return base64.b64decode(
            get_str(get_object(secret, "data"), cdi_names.SIGNING_KEY_PRIVATE), validate=True
        )
    except binascii.Error as error:
        raise UnusableKey(f"{cdi_names.SIGNING_KEY_PRIVATE} is not in base64") from error


def _signer(pem: bytes) -> Signer:
    try:
        return Signer(cdi_names.API_SERVER_ISSUER, pem, SHORT_SECONDS)
    except ValueError as error:
        raise UnusableKey(f"{cdi_names.SIGNING_KEY_PRIVATE} is no RSA key: {error}") from error

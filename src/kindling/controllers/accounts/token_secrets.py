"""Secrets of type ``kubernetes.io/service-account-token``: filled in, and removed with their account."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from kindling.apiserver.auth.service_accounts import SECRET_TYPE, SECRET_UID, TokenAuthority
from kindling.controllers.environment import Environment
from kubecore.errors import StatusError, ignoring
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import SECRETS, SERVICE_ACCOUNTS, ResourceType
from kubecore.runtime import DONE, Key, Result

NAME = "serviceaccount-token-controller"
ACCOUNT_NAME = "kubernetes.io/service-account.name"
ACCOUNT_UID = "kubernetes.io/service-account.uid"


class _NoObjects:
    """A stand-in reader for the signer, which looks up no objects here."""

    def get(self, _resource: ResourceType, _namespace: str | None, _name: str) -> JsonObject | None:
        return None

    def list(self, _resource: ResourceType, _namespace: str | None = None) -> Sequence[JsonObject]:
        return ()

    def exists(self, _resource: ResourceType, _namespace: str | None, _name: str) -> bool:
        return False


def signer(key: bytes) -> Callable[[JsonObject, JsonObject], str]:
    """Returns a function that signs the token of an account and a secret with a private key (PEM).

    The key must be one that the API server accepts.
    """
    return TokenAuthority([key], "", (), _NoObjects()).issue_legacy


def is_filled(secret: JsonObject, root_ca: str) -> bool:
    """Whether the secret has all its keys and its own token."""
    data = get_object(secret, "data")
    return has_own_token(secret) and bool(data.get("namespace")) and data.get("ca.crt") == _encode(root_ca)


def has_own_token(secret: JsonObject) -> bool:
    """Whether the token's claims name this secret, not an earlier one of the same name.

    The signature is not verified here: the API server does that at each use.
    """
    try:
        token = base64.b64decode(str(get_object(secret, "data").get("token", ""))).decode()
        payload = token.split(".")[1]
        claims: Any = orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, IndexError):
        return False
    return isinstance(claims, dict) and claims.get(SECRET_UID) == meta.uid(secret)


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def filled(secret: JsonObject, account: JsonObject, token: str, root_ca: str) -> JsonObject:
    """The secret with everything that its users expect; a token of its own is kept."""
    updated = deep_copy(secret)
    data = updated["data"] = dict(get_object(secret, "data"))
    if not has_own_token(secret):
        data["token"] = _encode(token)
    data["namespace"] = _encode(meta.namespace(secret))
    if root_ca:
        data["ca.crt"] = _encode(root_ca)
    updated["metadata"]["annotations"] = {
        **meta.annotations(secret),
        ACCOUNT_NAME: meta.name(account),
        ACCOUNT_UID: meta.uid(account),
    }
    return updated


class TokenSecrets:
    """Keyed by secret. Without a signing key there is nothing it could do, and it stays idle."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        self._root_ca = environment.root_ca
        self._sign = environment.sign_token
        self._secrets = environment.manager.informer(SECRETS, field_selector=f"type={SECRET_TYPE}")
        self._accounts = environment.manager.informer(SERVICE_ACCOUNTS)
        controller = environment.controller(NAME, self.reconcile)
        controller.watch(self._secrets)
        controller.watch(self._accounts, self._secrets_of)

    def _secrets_of(self, account: JsonObject) -> list[Key]:
        return [
            meta.key(secret)
            for secret in self._secrets.list(meta.namespace(account))
            if meta.annotations(secret).get(ACCOUNT_NAME) == meta.name(account)
        ]

    async def reconcile(self, key: Key) -> Result:
        """Fill in one secret, or delete it when its account does not exist."""
        secret = self._secrets.get(*key)
        if secret is None or meta.is_being_deleted(secret) or self._sign is None:
            return DONE
        account = await self._account(key[0], get_str(meta.annotations(secret), ACCOUNT_NAME))
        uid = meta.annotations(secret).get(ACCOUNT_UID)
        with ignoring(404):
            if account is None or (uid and uid != meta.uid(account)):
                await self._client.delete(SECRETS, key[1], key[0], uid=meta.uid(secret))
            elif not is_filled(secret, self._root_ca) or not uid:
                token = self._sign(account, secret)
                await self._client.update(SECRETS, filled(secret, account, token, self._root_ca))
        return DONE

    async def _account(self, namespace: str, name: str) -> JsonObject | None:
        found = self._accounts.get(namespace, name)
        if found is not None or not name:
            return found
        try:
            return await self._client.get(SERVICE_ACCOUNTS, name, namespace)
        except StatusError as error:
            if error.code == 404:
                return None
            raise

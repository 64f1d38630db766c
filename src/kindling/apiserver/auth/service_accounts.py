"""Service account tokens: issuing and validating them."""

from __future__ import annotations

import base64
import hmac
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubecore import errors
from kubecore.json import JsonObject, get_object
from kubecore.objects import meta
from kubecore.resources import NODES, PODS, SECRETS, SERVICE_ACCOUNTS, ResourceType

from ..registry.context import ObjectReader, UserInfo
from .keys import Keys

_LEGACY_ISSUER = "kubernetes/serviceaccount"
_LEGACY = "kubernetes.io/serviceaccount/"
SECRET_UID = f"{_LEGACY}secret.uid"
SECRET_TYPE = "kubernetes.io/service-account-token"
_LEEWAY_SECONDS = 10
_CREDENTIAL = "authentication.kubernetes.io/"
_MAX_REMEMBERED = 5_000
_MAX_REMEMBERED_CHARACTERS = 4096
"""Of one token. Whoever may ask for tokens may name as many audiences in one as a header has room for."""


@dataclass(frozen=True, slots=True)
class BoundObject:
    """The object that a token is bound to: a pod, secret or node."""

    kind: str
    name: str
    uid: str
    node_name: str = ""
    node_uid: str = ""


@dataclass(frozen=True, slots=True)
class TokenUser:
    """The user of a valid token, and the token's audiences."""

    user: UserInfo
    audiences: tuple[str, ...]


class TokenAuthority:
    """Signs with the first key and accepts all of them, so that keys can be rotated without a gap."""

    def __init__(
        self, keys: Sequence[bytes], issuer: str, audiences: Sequence[str], objects: ObjectReader
    ) -> None:
        self._keys = Keys(keys)
        self.issuer = issuer
        self.audiences = tuple(audiences) or (issuer,)
        self._objects = objects
        self._verified: dict[str, Mapping[str, Any]] = {}

    def jwks(self) -> JsonObject:
        """The public keys as the issuer publishes them."""
        return self._keys.ring.published()

    def issue(
        self,
        account: JsonObject,
        audiences: Sequence[str],
        seconds: int,
        bound: BoundObject | None = None,
    ) -> tuple[str, float]:
        """(token, expiry as seconds since the epoch) for a service account."""
        now = int(time.time())
        metadata = account["metadata"]
        private: JsonObject = {
            "namespace": metadata["namespace"],
            "serviceaccount": {"name": metadata["name"], "uid": metadata["uid"]},
        }
        if bound is not None:
            private[bound.kind.lower()] = {"name": bound.name, "uid": bound.uid}
            if bound.node_name:
                private["node"] = {"name": bound.node_name}
                if bound.node_uid:
                    private["node"]["uid"] = bound.node_uid
        claims = {
            "aud": list(audiences),
            "exp": now + seconds,
            "iat": now,
            "iss": self.issuer,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": private,
            "nbf": now,
            "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
        }
        return self._keys.ring.sign(claims), float(now + seconds)

    def issue_legacy(self, account: JsonObject, secret: JsonObject) -> str:
        """The token for a secret of type kubernetes.io/service-account-token; invalid once the secret is
        deleted.
        """
        metadata = account["metadata"]
        return self._keys.ring.sign(
            {
                "iss": _LEGACY_ISSUER,
                f"{_LEGACY}namespace": metadata["namespace"],
                f"{_LEGACY}secret.name": meta.name(secret),
                SECRET_UID: meta.uid(secret),
                f"{_LEGACY}service-account.name": metadata["name"],
                f"{_LEGACY}service-account.uid": metadata["uid"],
                "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
            }
        )

    async def check(self, token: str) -> UserInfo | None:
        """The user of a token for this server's audience; None for tokens of other issuers."""
        if token.count(".") != 2:
            return None
        found = self.review(token, self.audiences)
        if found is None:
            raise errors.unauthorized()
        return found.user

    def review(self, token: str, audiences: Sequence[str]) -> TokenUser | None:
        """The user of a token that is valid for one of `audiences`, else None."""
        claims = self._claims(token)
        if claims is None:
            return None
        now = time.time()
        if float(claims.get("exp", now + 1)) < now or float(claims.get("nbf", 0)) > now + _LEEWAY_SECONDS:
            return None
        if claims.get("iss") == _LEGACY_ISSUER:
            user = self._legacy_user(claims, token)
            return TokenUser(user, tuple(audiences)) if user is not None else None
        if claims.get("iss") != self.issuer:
            return None
        meant = claims.get("aud") or []
        common = tuple(audience for audience in audiences if audience in meant)
        if not common:
            return None
        user = self._bound_user(claims)
        return TokenUser(user, common) if user is not None else None

    def _claims(self, token: str) -> Mapping[str, Any] | None:
        """The verified claims; signatures are checked once per token."""
        found = self._verified.get(token)
        if found is None:
            found = self._keys.ring.verified(token)
            if found is None:
                return None
            if len(token) <= _MAX_REMEMBERED_CHARACTERS:
                if len(self._verified) >= _MAX_REMEMBERED:
                    self._verified.clear()
                self._verified[token] = found
        return found

    def _account(self, namespace: str, name: str, uid: str) -> JsonObject | None:
        account = self._objects.get(SERVICE_ACCOUNTS, namespace, name)
        return account if account is not None and account["metadata"]["uid"] == uid else None

    def _legacy_user(self, claims: Mapping[str, Any], token: str) -> UserInfo | None:
        namespace = str(claims.get(f"{_LEGACY}namespace"))
        name = str(claims.get(f"{_LEGACY}service-account.name"))
        uid = str(claims.get(f"{_LEGACY}service-account.uid"))
        secret = self._objects.get(SECRETS, namespace, str(claims.get(f"{_LEGACY}secret.name")))
        if self._account(namespace, name, uid) is None or not _holds(secret, token, claims.get(SECRET_UID)):
            return None
        return account_user(namespace, name, uid)

    def _bound_user(self, claims: Mapping[str, Any]) -> UserInfo | None:
        private = claims.get("kubernetes.io") or {}
        namespace = str(private.get("namespace"))
        account = private.get("serviceaccount") or {}
        name, uid = str(account.get("name")), str(account.get("uid"))
        if self._account(namespace, name, uid) is None:
            return None
        extra: dict[str, tuple[str, ...]] = {}
        if claims.get("jti"):
            extra[f"{_CREDENTIAL}credential-id"] = (f"JTI={claims['jti']}",)
        for kind, resource in (("pod", PODS), ("secret", SECRETS), ("node", NODES)):
            bound = private.get(kind)
            if not bound:
                continue
            required = kind != "node" or "pod" not in private
            if required and not self._exists(resource, namespace, bound):
                return None
            if kind != "secret":
                extra[f"{_CREDENTIAL}{kind}-name"] = (bound["name"],)
                if bound.get("uid"):
                    extra[f"{_CREDENTIAL}{kind}-uid"] = (bound["uid"],)
        return account_user(namespace, name, uid, extra)

    def _exists(self, resource: ResourceType, namespace: str, bound: Mapping[str, Any]) -> bool:
        found = self._objects.get(
            resource, namespace if resource.namespaced else None, str(bound.get("name"))
        )
        return found is not None and found["metadata"]["uid"] == bound.get("uid")


def _holds(secret: JsonObject | None, token: str, uid: object) -> bool:
    """Whether a legacy token's secret still contains it. A new secret of the same name does not count, even
    with the same token in it.
    """
    if secret is None or secret.get("type") != SECRET_TYPE or meta.is_being_deleted(secret):
        return False
    if not uid or meta.uid(secret) != uid:
        return False
    held = get_object(secret, "data").get("token")
    return isinstance(held, str) and hmac.compare_digest(held, base64.b64encode(token.encode()).decode())


def account_user(
    namespace: str, name: str, uid: str, extra: Mapping[str, tuple[str, ...]] | None = None
) -> UserInfo:
    """The user that stands for a service account."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return UserInfo(f"system:serviceaccount:{namespace}:{name}", uid, groups, extra or {})

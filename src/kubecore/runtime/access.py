"""Authentication and authorization of non-resource paths (``/metrics``) by bearer token.

The rule is that of kube-rbac-proxy and of Kubernetes' own components: a TokenReview gives the user, a
SubjectAccessReview says whether the user may get the path.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable

from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.resources import ResourceType

logger = logging.getLogger(__name__)

_TOKEN_REVIEWS = ResourceType("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False)
_ACCESS_REVIEWS = ResourceType(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False
)
_REMEMBERED_SECONDS = 10.0
"""How long a reader who may stays one, as in Kubernetes' components."""
_MOST_REMEMBERED = 16
_MOST_REVIEWS = 4
"""Reviews at one time, so that strangers cannot have this process flood the API server."""
_MOST_WAITING = 64
"""Requests that wait for one; more are told to come again."""


class TokenAccess:
    """Checks tokens through `client`, whose account may create both kinds of reviews.

    With a `user`, nobody else is let in, and only with a token that is for the `audience`.
    """

    def __init__(
        self,
        client: Client,
        clock: Callable[[], float] = time.monotonic,
        *,
        user: str = "",
        audience: str = "",
    ) -> None:
        self._client = client
        self._user = user
        self._audience = audience
        self._clock = clock
        self._allowed: dict[tuple[bytes, str], float] = {}
        self._reviews = asyncio.Semaphore(_MOST_REVIEWS)
        self._waiting = 0

    async def status(self, authorization: str, path: str) -> int:
        """The HTTP status for a reader of `path` who sent this Authorization header.

        200, 401 without a valid token, 403 without the right, 429 while many others ask, 503 when the API
        server cannot tell.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return 401
        key = (hashlib.sha256(token.encode()).digest(), path)
        now = self._clock()
        self._allowed = {known: until for known, until in self._allowed.items() if until > now}
        if key in self._allowed:
            return 200
        if self._waiting >= _MOST_WAITING:
            return 429
        self._waiting += 1
        try:
            async with self._reviews:
                status = await self._review(token, path)
        except (StatusError, ConnectionFailed, TimeoutError) as error:
            logger.warning(
                "a request for %s was answered with 503: its token cannot be reviewed: %s", path, error
            )
            return 503
        finally:
            self._waiting -= 1
        if status == 200 and len(self._allowed) < _MOST_REMEMBERED:
            self._allowed[key] = now + _REMEMBERED_SECONDS
        return status

    async def _review(self, token: str, path: str) -> int:
        wanted: JsonObject = {"token": token}
        if self._audience:
            wanted["audiences"] = [self._audience]
        review = _document(_TOKEN_REVIEWS, wanted)
        found = get_object(await self._client.create(_TOKEN_REVIEWS, review), "status")
        user = get_object(found, "user")
        name = get_str(user, "username")
        if found.get("authenticated") is not True or not name:
            return 401
        if self._user:
            # An API server that knows nothing of audiences names none.
            is_meant = self._audience in get_list(found, "audiences")
            return 200 if name == self._user and is_meant else 403
        spec: JsonObject = {
            "user": name,
            "groups": get_list(user, "groups"),
            "extra": get_object(user, "extra"),
            "uid": get_str(user, "uid"),
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        answer = await self._client.create(_ACCESS_REVIEWS, _document(_ACCESS_REVIEWS, spec))
        return 200 if get_object(answer, "status").get("allowed") is True else 403


def _document(kind: ResourceType, spec: JsonObject) -> JsonObject:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}

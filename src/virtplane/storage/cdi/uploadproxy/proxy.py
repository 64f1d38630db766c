"""The upload proxy's paths: checks the token, waits for the upload server, moves the bytes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import aiohttp
from aiohttp import web

from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.tokens import InvalidToken, VerifiedToken
from virtplane.storage.cdi.uploadproxy import targets
from virtplane.storage.cdi.uploadproxy.targets import Rejected

_log = logging.getLogger(__name__)

PATHS = tuple(
    f"/{version}/{name}"
    for version in ("v1beta1", "v1alpha1")
    for name in ("upload", "upload-async", "upload-form", "upload-form-async")
)
_WAIT_SECONDS = 10.0
_POLL_SECONDS = 1.0
_ANSWER_BYTES = 64 << 10
_PASSED_ON = ("Content-Type", "Content-Length", "x-cdi-content-type")
_CORS = {"Access-Control-Allow-Origin": "*"}
_PREFLIGHT = {
    **_CORS,
    "Access-Control-Allow-Methods": "POST, HEAD, OPTIONS",
    "Access-Control-Allow-Headers": "*",
}


class Cluster(Protocol):
    """What the proxy needs of the cluster."""

    async def verified(self, token: str) -> VerifiedToken:
        """What a token says. Raises InvalidToken."""

    async def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """A claim. Raises StatusError, ConnectionFailed."""

    async def session(self) -> aiohttp.ClientSession:
        """A client with the proxy's certificate. Raises OSError, StatusError, ConnectionFailed."""


class UploadProxy:
    """Answers uploads; `sleep` and the seconds are there for tests."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        wait: float = _WAIT_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cluster, self._wait, self._sleep = cluster, wait, sleep

    def application(self) -> web.Application:
        """The paths of both versions."""
        application = web.Application(client_max_size=0)
        application.router.add_get("/healthz", _healthy)
        for path in PATHS:
            for method in ("POST", "HEAD"):
                application.router.add_route(method, path, self._upload)
            application.router.add_route("OPTIONS", path, _preflight)
        return application

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        token = targets.bearer(request.headers.get("Authorization", ""))
        if not token:
            return _answer(400)
        try:
            allowed = await self._cluster.verified(token)
        except InvalidToken as error:
            _log.info("refused a token: %s", error)
            return _answer(401)
        if not targets.allows_upload(allowed):
            return _answer(400)
        try:
            url = targets.server_url(allowed.name, await self._ready_claim(allowed), request.path)
        except Rejected as error:
            return _answer(503, str(error))
        return await self._forward(request, url)

    async def _ready_claim(self, allowed: VerifiedToken) -> PersistentVolumeClaim:
        """The claim whose upload server takes the upload. Raises Rejected."""
        name, waited = allowed.name, 0.0
        while True:
            claim = await self._cluster.claim(allowed.namespace, name)
            if claim is None:
                raise Rejected(f"rejecting Upload Request for PVC {name} that doesn't exist")
            problem = f"timed out waiting for the upload pod of PVC {name}"
            if prime := targets.prime_name(claim):
                filled = await self._cluster.claim(allowed.namespace, prime)
                if filled is not None and targets.check(name, filled):
                    return filled
                if filled is None:
                    problem = f"rejecting Upload Request for PVC {name}, PVC' wasn't created yet"
            elif targets.check(name, claim):
                return claim
            if waited >= self._wait:
                raise Rejected(problem)
            waited += _POLL_SECONDS
            await self._sleep(_POLL_SECONDS)

    async def _forward(self, request: web.Request, url: str) -> web.StreamResponse:
        """Send the request on, and the answer back."""
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        body = request.content if request.method == "POST" else None
        try:
            session = await self._cluster.session()
            async with session.request(
                request.method, url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                content = await answer.content.read(_ANSWER_BYTES)
                return _answer(answer.status, content.decode(errors="replace"))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.error("an upload to %s broke off: %s", url, error)
            return _answer(502, f"error in upload-proxy: {error}")


def _answer(status: int, text: str = "") -> web.Response:
    return web.Response(status=status, text=text, headers=_CORS)


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="OK")


async def _preflight(_: web.Request) -> web.Response:
    return web.Response(headers=_PREFLIGHT)

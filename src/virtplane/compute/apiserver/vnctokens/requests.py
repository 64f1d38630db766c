"""Requests for tokens, answered as upstream's vm-console-proxy answers them: errors are plain texts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from kubecore import errors
from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects.durations import seconds_of
from virtplane.api.resources import SUBRESOURCES_GROUP, VIRTUAL_MACHINES
from virtplane.compute.apiserver.vnctokens.issuer import Issuer, NotOurs
from virtplane.serving.gate import asker
from virtplane.serving.rights import Authorizer

_DEFAULT_SECONDS = 600
_LONGEST_DURATION = 100
"""Characters: Go writes no duration that long."""
_DEADLINE_SECONDS = 30.0
_AT_ONCE = 32
_Failure = (StatusError, ConnectionFailed)


class Tokens:
    """Answers requests for tokens while `is_enabled`. `issuing` has the rights of the issuer's account."""

    def __init__(
        self, authorizer: Authorizer, issuing: Client, is_enabled: Callable[[], bool], most: int = _AT_ONCE
    ) -> None:
        self._authorizer = authorizer
        self._client = issuing
        self._issuer = Issuer(issuing)
        self._is_enabled = is_enabled
        self._free = most

    async def create(self, request: web.Request) -> web.Response:
        """A token for the display of the machine that the path names."""
        if not self._is_enabled():
            raise errors.page_not_found()
        if not self._free:
            raise errors.too_many_requests("too many tokens are being issued, please try again", 1)
        self._free -= 1
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                return await self._create(request)
        except TimeoutError as error:
            raise errors.timeout("the token could not be issued in time", 1) from error
        finally:
            self._free += 1

    async def _create(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        try:
            seconds = _seconds(request.query.get("duration", ""))
        except ValueError as error:
            return web.Response(status=400, text=f"failed to parse duration: {error}")
        if not await self._may_open(request, namespace, name):
            return web.Response(status=401)
        try:
            vm = await self._client.get(VIRTUAL_MACHINES, name, namespace)
        except _Failure as error:
            if errors.is_not_found(error):
                return web.Response(status=404, text=f"VirtualMachine does not exist: {error}")
            return web.Response(status=500, text=f"error getting VirtualMachine: {error}")
        return await self._issue(vm, seconds)

    async def _issue(self, vm: JsonObject, seconds: int) -> web.Response:
        try:
            account_uid = await self._issuer.prepare(vm)
        except (*_Failure, NotOurs) as error:
            return web.Response(status=500, text=f"error creating resources: {error}")
        try:
            return web.json_response(await self._issuer.token(vm, account_uid, seconds))
        except _Failure as error:
            return web.Response(status=500, text=f"failed to request token: {error}")

    async def _may_open(self, request: web.Request, namespace: str, name: str) -> bool:
        """Whether the user may open the display himself."""
        user = asker(request)
        if user is None or not user.groups:
            return False
        wanted: JsonObject = {
            "group": SUBRESOURCES_GROUP,
            "version": "v1",
            "namespace": namespace,
            "resource": "virtualmachineinstances",
            "subresource": "vnc",
            "name": name,
            "verb": "get",
        }
        try:
            return not await self._authorizer.refusal(user, wanted)
        except _Failure:
            return False


def _seconds(text: str) -> int:
    """The whole seconds of a duration. Raises ValueError with Go's words."""
    if len(text) > _LONGEST_DURATION:
        raise ValueError("it is too long")
    return int(seconds_of(text)) if text else _DEFAULT_SECONDS

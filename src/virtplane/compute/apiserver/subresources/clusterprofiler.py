"""``start-cluster-profiler``, ``stop-cluster-profiler`` and ``dump-cluster-profiler``."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

import aiohttp
import msgspec
import orjson
from aiohttp import web

from kubecore import resources
from kubecore.client import Client
from kubecore.json import JsonObject, get_int, get_list, get_str
from kubecore.objects import meta
from virtplane import profiling
from virtplane.api import account_names, ports
from virtplane.api.config import ClusterConfig

_PODS = re.compile(r"virt-(api|operator|handler|controller)-")
_TIMEOUT_SECONDS = 5.0
_TOKEN_SECONDS = 600
"""The shortest life that Kubernetes gives a token."""
_PAGE, _LARGEST_PAGE = 10, 20
_MOST_BYTES = 8 << 20
"""Of one component. A page of them is in memory at a time, and a node may be another's by now."""
_QUOTED = 500

PortOf = Callable[[JsonObject], int]


class Failed(Exception):
    """A component did not do what was asked."""


class Wanted(msgspec.Struct, rename="camel"):
    """What to dump: the body of a request."""

    label_selector: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    page_size: int = 0


def health_port(pod: JsonObject) -> int:
    """Where a pod of a component answers for its health: where the kubelet asks it."""
    for container in get_list(pod, "spec", "containers")[:1]:
        return get_int(container, "readinessProbe", "httpGet", "port") or ports.HEALTH
    return ports.HEALTH


class ClusterProfiler:
    """The components' profilers, behind one API. `port_of` is for tests."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        config: Callable[[], ClusterConfig],
        port_of: PortOf = health_port,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._config = config
        self._port_of = port_of

    async def start(self, _: web.Request) -> web.Response:
        """Have all components start their profilers anew."""
        return await self._tell_all(profiling.START)

    async def stop(self, _: web.Request) -> web.Response:
        """Have all components stop their profilers."""
        return await self._tell_all(profiling.STOP)

    async def dump(self, request: web.Request) -> web.Response:
        """The profiles of some components, page by page."""
        if not self._config().is_profiled:
            return web.Response(status=403, text=profiling.refusal(profiling.DUMP))
        try:
            wanted = msgspec.json.decode(await request.read() or b"{}", type=Wanted)
        except msgspec.DecodeError as error:
            return web.Response(status=400, text=f"Can not unmarshal Request body to struct, error: {error}")
        found = [pod for pod in await self._pods(wanted.label_selector) if meta.name(pod) > wanted.continue_]
        size = min(wanted.page_size, _LARGEST_PAGE) if wanted.page_size > 0 else _PAGE
        page = found[:size]
        if not page:
            return web.Response(status=204)
        try:
            answers = await self._ask(page, profiling.DUMP)
            results = {
                meta.name(pod): orjson.loads(answer) for pod, answer in zip(page, answers, strict=True)
            }
        except (Failed, orjson.JSONDecodeError) as error:
            return web.Response(status=500, text=f"Internal error encountered: {error}")
        document: JsonObject = {"componentResults": results}
        if len(found) > size:
            document["continue"] = meta.name(page[-1])
        return web.json_response(document)

    async def _tell_all(self, path: str) -> web.Response:
        if not self._config().is_profiled:
            return web.Response(status=403, text=profiling.refusal(path))
        found = await self._pods()
        if not found:
            return web.Response(status=500, text="Internal error encountered: no component pods found")
        try:
            await self._ask(found, path)
        except Failed as error:
            return web.Response(status=500, text=f"Internal error encountered: {error}")
        return web.Response()

    async def _pods(self, selector: str = "") -> list[JsonObject]:
        """The ready pods of components, by name."""
        selectors = ",".join(filter(None, ("kubevirt.io", selector)))
        listing = await self._client.list(resources.PODS, self._namespace, label_selector=selectors)
        found = [
            pod
            for pod in get_list(listing, "items")
            if _PODS.match(meta.name(pod)) and _is_ready(pod) and get_str(pod, "status", "podIP")
        ]
        return sorted(found, key=meta.name)

    async def _ask(self, pods: Sequence[JsonObject], path: str) -> list[bytes]:
        """What the pods answer. Raises Failed, StatusError."""
        token = await self._token()
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
            return list(await asyncio.gather(*(self._answer(session, pod, path) for pod in pods)))

    async def _answer(self, session: aiohttp.ClientSession, pod: JsonObject, path: str) -> bytes:
        address = get_str(pod, "status", "podIP")
        host = f"[{address}]" if ":" in address else address
        # Its certificate is nobody's: the token is worth nothing elsewhere, and profiles are no secrets.
        url = f"https://{host}:{self._port_of(pod)}{path}"
        try:
            async with session.get(url, ssl=False, allow_redirects=False) as response:
                body = bytearray()
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > _MOST_BYTES:
                        raise Failed(f"{meta.name(pod)}: its profile has more than {_MOST_BYTES >> 20} MiB")
                if response.status != 200:
                    said = bytes(body[:_QUOTED]).decode(errors="replace")
                    raise Failed(f"{meta.name(pod)}: {response.status} {said}")
                return bytes(body)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Failed(f"{meta.name(pod)}: {error or type(error).__name__}") from error

    async def _token(self) -> str:
        """A token of virt-api's account that opens nothing but profilers. Raises StatusError."""
        spec = {"audiences": [profiling.AUDIENCE], "expirationSeconds": _TOKEN_SECONDS}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        made = await self._client.create(
            resources.SERVICE_ACCOUNTS,
            request,
            self._namespace,
            subresource="token",
            name=account_names.VIRT_API,
        )
        return get_str(made, "status", "token")


def _is_ready(pod: JsonObject) -> bool:
    conditions = get_list(pod, "status", "conditions")
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)

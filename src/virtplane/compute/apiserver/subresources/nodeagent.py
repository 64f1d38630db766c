"""The client of virt-handler: find the one on the VMI's node and call it with mutual TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.json import get_list, get_str
from kubecore.objects import meta
from virtplane.api import paths, ports
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.streams import MAX_MESSAGE_BYTES, SUBPROTOCOL
from virtplane.compute.apiserver.subresources import refusals
from virtplane.compute.apiserver.subresources.answers import words

_TIMEOUT_SECONDS = 10.0
_ANSWER_SECONDS = 60.0
"""How long an answer may take that is passed on while it comes: its reader may have a slow line."""
_AUTHORITIES = "kubevirt-ca"


class NodeAgentError(Exception):
    """The node agent cannot be reached, or its certificate is not a node agent's."""


class Redirected(aiohttp.ClientError):
    """The node agent answers that somebody else is to be asked."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the node agent answered."""

    status: int
    reason: str
    body: bytes


class NodeAgents:
    """The node agents of the cluster. `certificates` holds this component's client certificate."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        certificates: Path = Path(paths.HANDLER_CLIENT_CERTIFICATES),
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._certificates = certificates
        # Agents are reached by address; their certificates carry the name of their service.
        self._server_name = f"virt-handler.{namespace}.pod.cluster.local"

    async def base_url(self, vmi: VirtualMachineInstance) -> str:
        """The URL under which the agent on the instance's node serves it. Raises StatusError."""
        phase = refusals.phase(vmi)
        if phase not in ("Running", "Scheduled"):
            text = f"Unable to connect to VirtualMachineInstance because phase is {phase}"
            raise errors.bad_request(f"{text} instead of Running or Scheduled")
        node = vmi.status.node_name or ""
        listing = await self._client.list(
            resources.PODS,
            self._namespace,
            label_selector="kubevirt.io=virt-handler",
            field_selector=f"spec.nodeName={node}",
        )
        for pod in get_list(listing, "items"):
            address = get_str(pod, "status", "podIP")
            if address and not meta.is_being_deleted(pod):
                host = f"[{address}]" if ":" in address else address
                path = f"namespaces/{vmi.metadata.namespace}/virtualmachineinstances/{vmi.metadata.name}"
                return f"https://{host}:{ports.HANDLER}/v1/{path}"
        raise errors.bad_request(f"No virt-handler on node {node} found")

    async def request(
        self, vmi: VirtualMachineInstance, method: str, action: str, body: bytes = b""
    ) -> Reply:
        """Send a request to virt-handler. Raises StatusError if the node has none, NodeAgentError
        otherwise.
        """
        url = f"{await self.base_url(vmi)}/{action}"
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.request(
                    method,
                    url,
                    data=body,
                    ssl=await self._tls(),
                    server_hostname=self._server_name,
                    allow_redirects=False,
                ) as response,
            ):
                return Reply(response.status, response.reason or "", await words(response))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise NodeAgentError(str(error)) from error

    @asynccontextmanager
    async def answering(
        self, vmi: VirtualMachineInstance, action: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer whose content is still to come, and may be of any length.

        Raises StatusError or NodeAgentError before there is one; what ends it early is aiohttp's error.
        """
        url = f"{await self.base_url(vmi)}/{action}"
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS, connect=_TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            try:
                response = await session.get(
                    url, ssl=await self._tls(), server_hostname=self._server_name, allow_redirects=False
                )
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise NodeAgentError(str(error)) from error
            async with response:
                yield response

    @asynccontextmanager
    async def stream(
        self, vmi: VirtualMachineInstance, action: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A byte stream of the guest. Raises StatusError or NodeAgentError before it is open."""
        url = f"{await self.base_url(vmi)}/{action}"
        refusals: list[str] = []
        async with aiohttp.ClientSession(trace_configs=[_noting_refusals(refusals)]) as session:
            try:
                socket = await session.ws_connect(
                    url,
                    protocols=(SUBPROTOCOL,),
                    ssl=await self._tls(),
                    server_hostname=self._server_name,
                    max_msg_size=MAX_MESSAGE_BYTES,
                )
            except aiohttp.WSServerHandshakeError as error:
                text = f"Can't connect to websocket ({error.status}): websocket: bad handshake"
                raise NodeAgentError(": application info: ".join([text, *refusals])) from error
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise NodeAgentError(str(error)) from error
            try:
                yield socket
            finally:
                await socket.close()

    async def _tls(self) -> ssl.SSLContext:
        bundle = await self._client.get(resources.CONFIG_MAPS, _AUTHORITIES, self._namespace)
        return await asyncio.to_thread(self._context, get_str(bundle, "data", "ca-bundle"))

    def _context(self, authorities: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cadata=authorities)
        context.load_cert_chain(self._certificates / "tls.crt", self._certificates / "tls.key")
        return context


def _noting_refusals(texts: list[str]) -> aiohttp.TraceConfig:
    """Adds the server's message to `texts` when it refuses a websocket: aiohttp's errors lack it.

    It also ends a request that is sent elsewhere: aiohttp follows that with websockets, and with the
    certificate that opens every guest's console. A node that was taken over would choose whose.
    """

    async def note(
        _session: aiohttp.ClientSession, _context: object, answered: aiohttp.TraceRequestEndParams
    ) -> None:
        response = answered.response
        if response.status != 101 and response.content_type == "text/plain":
            texts.append((await words(response)).decode(errors="replace"))

    trace = aiohttp.TraceConfig()
    trace.on_request_end.append(note)
    trace.on_request_redirect.append(_refuse_redirect)
    return trace


async def _refuse_redirect(
    _session: aiohttp.ClientSession, _context: object, _redirected: aiohttp.TraceRequestRedirectParams
) -> None:
    raise Redirected("virt-handler sends elsewhere, where virt-api does not go")

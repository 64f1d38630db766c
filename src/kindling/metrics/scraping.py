"""Reads the counters of nodes from their agents, when somebody wants them."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp
import msgspec

from kindling.metrics.samples import SHORTEST_SECONDS, NodeUsage, Reading, Summary, usage
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import meta

_log = logging.getLogger(__name__)

FRESH_SECONDS = 10.0
"""How old a reading may be that answers without another one."""
STALE_SECONDS = 120.0
"""Use since a reading that is older says little about now."""
_TIMEOUT_SECONDS = 10.0
_REST = 3.0
"""After a failure, a node is left alone for so many times as long as that took: those who ask meanwhile, and
those who have waited for the same answer, are told at once.
"""
_MAX_BYTES = 32 * 1024 * 1024
_DEFAULT_PORT = 10250


class Unreachable(Exception):
    """A node's agent did not answer, or not with statistics."""


@dataclass(frozen=True, slots=True)
class Agent:
    """Where the agent of a node listens."""

    node: str
    address: str
    port: int


def agent_of(node: JsonObject) -> Agent | None:
    """The agent of a node that has told its address; of several, the first."""
    address = next(
        (
            entry.get("address")
            for entry in get_list(node, "status", "addresses")
            if entry.get("type") == "InternalIP"
        ),
        None,
    )
    port = get_object(node, "status", "daemonEndpoints", "kubeletEndpoint").get("Port")
    if not isinstance(address, str):
        return None
    return Agent(meta.name(node), address, port if isinstance(port, int) else _DEFAULT_PORT)


class Scraper:
    """Keeps the last two readings of each node."""

    def __init__(self, read: Callable[[Agent], Awaitable[Summary]]) -> None:
        self._read = read
        self._readings: dict[str, tuple[Reading, ...]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._silent: dict[str, tuple[float, str]] = {}
        """Nodes that are left alone: until when, and why."""

    async def usages(self, agents: Iterable[Agent]) -> dict[str, NodeUsage]:
        """The recent usage of each node whose agent answers."""
        wanted = list(agents)
        found = await asyncio.gather(*(self._usage(agent) for agent in wanted), return_exceptions=True)
        usages: dict[str, NodeUsage] = {}
        for agent, outcome in zip(wanted, found, strict=True):
            if isinstance(outcome, Unreachable):
                _log.warning("node %s gives no metrics, ask again: %s", agent.node, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                usages[agent.node] = outcome
        return usages

    def retain(self, nodes: set[str]) -> None:
        """Forget all other nodes."""
        for name in set(self._readings) - nodes:
            del self._readings[name]
        for name in set(self._locks) - nodes:
            del self._locks[name]
        for name in set(self._silent) - nodes:
            del self._silent[name]

    async def _usage(self, agent: Agent) -> NodeUsage:
        async with self._locks.setdefault(agent.node, asyncio.Lock()):
            now = asyncio.get_running_loop().time()
            until, failure = self._silent.get(agent.node, (0.0, ""))
            if now < until:
                raise Unreachable(failure)
            recent = [each for each in self._readings.get(agent.node, ()) if now - each.at < STALE_SECONDS]
            if not recent or now - recent[-1].at > FRESH_SECONDS:
                recent.append(await self._reading(agent))
            if len(recent) == 1:
                # Somebody asks for the first time in a while.
                await asyncio.sleep(max(0.0, recent[0].at + SHORTEST_SECONDS - now))
                recent.append(await self._reading(agent))
            self._readings[agent.node] = tuple(recent[-2:])
            return usage(recent[-2], recent[-1])

    async def _reading(self, agent: Agent) -> Reading:
        begun = asyncio.get_running_loop().time()
        try:
            summary = await self._read(agent)
        except Unreachable as error:
            now = asyncio.get_running_loop().time()
            self._silent[agent.node] = (now + (now - begun) * _REST, str(error))
            raise
        return Reading(asyncio.get_running_loop().time(), datetime.now(UTC), summary)


def reader(session: aiohttp.ClientSession, tls: ssl.SSLContext) -> Callable[[Agent], Awaitable[Summary]]:
    """Reads over HTTPS. The agent's certificate must name the node: anybody may listen at an address."""
    decode = msgspec.json.Decoder(Summary).decode

    async def read(agent: Agent) -> Summary:
        host = f"[{agent.address}]" if ":" in agent.address else agent.address
        url = f"https://{host}:{agent.port}/stats/summary?only_cpu_and_memory=true"
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                async with session.get(
                    url, ssl=tls, server_hostname=agent.node, allow_redirects=False
                ) as answer:
                    body = await answer.content.read(_MAX_BYTES) if answer.status == 200 else b""
                    while body and (more := await answer.content.read(_MAX_BYTES)):
                        body += more
                        if len(body) > _MAX_BYTES:
                            raise Unreachable("its statistics are too long")
                    if answer.status != 200:
                        raise Unreachable(f"it answered {answer.status}")
            return decode(body)
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
            raise Unreachable(str(error) or type(error).__name__) from error

    return read

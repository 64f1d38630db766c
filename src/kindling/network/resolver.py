"""The cluster's DNS server: answers for services and pods, and forwards every other query."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from kindling.network import dns
from kindling.network.external import parse
from kindling.network.services import MAX_PARTS, SERVICE_NAME_LABEL
from kubecore.json import JsonObject, get_bool, get_int, get_list, get_object, get_str

_log = logging.getLogger(__name__)

DOMAIN = "cluster.local"
_FORWARD_SECONDS = 3.0
_ALIASED = (dns.A, dns.AAAA, dns.CNAME, dns.ANY)
_MAX_ALIASES = 8
_IDLE_SECONDS = 10.0
"""How long a TCP connection may take for its next question."""
_QUESTIONS, _CONNECTIONS = (256, 32), (256, 16)
"""How many of each there may be at once: questions to other servers and TCP connections, of all and of one
client. They hold sockets of a process that has other work as well."""


_Targets = dict[str, dict[tuple[int, str], None]]
"""SRV: name -> (port, target), in order."""


@dataclass(frozen=True)
class Names:
    """All names of the cluster. Keys are lower-case names without the final dot."""

    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    services: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    """SRV: name -> (port, target)"""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """ExternalName services."""
    reverse: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, services: Iterable[JsonObject], slices: Iterable[JsonObject]) -> Names:
        """The names that services and their endpoints make."""
        addresses: dict[str, tuple[str, ...]] = {}
        srv: _Targets = {}
        aliases: dict[str, str] = {}
        reverse: dict[str, str] = {}
        by_service: dict[tuple[str, str], list[JsonObject]] = {}
        for item in slices:
            name = get_object(item, "metadata", "labels").get(SERVICE_NAME_LABEL, "")
            by_service.setdefault((get_str(item, "metadata", "namespace"), name), []).append(item)
        for service in services:
            key = (get_str(service, "metadata", "namespace"), get_str(service, "metadata", "name"))
            base = f"{key[1]}.{key[0]}.svc.{DOMAIN}"
            given = get_list(service, "spec", "clusterIPs") or [get_str(service, "spec", "clusterIP")]
            own = tuple(str(address) for address in map(parse, given) if address is not None)
            if get_str(service, "spec", "type") == "ExternalName":
                aliases[base] = get_str(service, "spec", "externalName")
            elif given[0] == "None":
                _headless(base, service, by_service.get(key, ()), addresses, srv)
            elif own:
                addresses[base] = own
                reverse |= dict.fromkeys(own, base)
                for port in get_list(service, "spec", "ports"):
                    _add_srv(srv, base, port, base)
        return cls(addresses, {name: tuple(found) for name, found in srv.items()}, aliases, reverse)

    def lookup(self, question: dns.Question) -> tuple[int, list[dns.Record]] | None:
        """The answer to a question about the cluster, None when it is about something else."""
        name = question.name.rstrip(".")
        if name.endswith(".arpa"):
            known = self.reverse.get(_reversed(name))
            return (dns.NO_ERROR, [dns.Record(dns.PTR, known)]) if known else None
        if not _in_cluster(name):
            return None
        aliases, name = self._follow(name, question.kind)
        if aliases and (question.kind == dns.CNAME or not _in_cluster(name)):
            return dns.NO_ERROR, aliases
        owner = name if aliases else ""
        records = list(aliases)
        addresses = self.addresses.get(name) or _pod_address(name)
        found_addresses = [(dns.AAAA if ":" in address else dns.A, address) for address in addresses]
        records += [
            dns.Record(kind, address, owner=owner)
            for kind, address in found_addresses
            if question.kind in (kind, dns.ANY)
        ]
        if question.kind in (dns.SRV, dns.ANY):
            found = self.services.get(name, ())
            records += [dns.Record(dns.SRV, target, port, owner=owner) for port, target in found]
        known_name = bool(addresses) or name in self.services or name in self.aliases or name in self._parents
        return (dns.NO_ERROR if records or known_name else dns.NAME_ERROR), records

    def _follow(self, name: str, kind: int) -> tuple[list[dns.Record], str]:
        """Follow aliases from `name`; returns the CNAME records and the last name."""
        followed: list[dns.Record] = []
        while kind in _ALIASED and name in self.aliases and len(followed) < _MAX_ALIASES:
            target = self.aliases[name].rstrip(".").lower()
            followed.append(dns.Record(dns.CNAME, target, owner=name))
            name = target
            if kind == dns.CNAME:
                break
        return followed, name

    @cached_property
    def _parents(self) -> frozenset[str]:
        """The names that have names below them: pods ask for names that do not exist all the time."""
        found = set()
        for known in (*self.addresses, *self.aliases):
            while (known := known.partition(".")[2]) not in found and known:
                found.add(known)
        return frozenset(found)


def _in_cluster(name: str) -> bool:
    return name == DOMAIN or name.endswith(f".{DOMAIN}")


def _headless(
    base: str,
    service: JsonObject,
    slices: Sequence[JsonObject],
    addresses: dict[str, tuple[str, ...]],
    srv: _Targets,
) -> None:
    everybody = get_bool(service, "spec", "publishNotReadyAddresses")
    found: list[str] = []
    for item in slices:
        endpoints = get_list(item, "endpoints")
        ports = get_list(item, "ports")
        if len(ports) * len(endpoints) > MAX_PARTS:
            ports = []  # There are no rules for so many, either.
        for endpoint in endpoints:
            if not everybody and not get_bool(endpoint, "conditions", "ready", default=True):
                continue
            own = [
                str(address) for address in map(parse, get_list(endpoint, "addresses")) if address is not None
            ]
            found += own
            host = get_str(endpoint, "hostname")
            if host and own:
                # A pod is in one slice of each family.
                others = addresses.get(f"{host}.{base}", ())
                addresses[f"{host}.{base}"] = tuple(dict.fromkeys((*others, *own)))
                for port in ports:
                    _add_srv(srv, base, port, f"{host}.{base}")
    if found:
        addresses[base] = tuple(sorted(set(found)))


def _add_srv(srv: _Targets, base: str, port: JsonObject, target: str) -> None:
    if get_str(port, "name"):
        protocol = get_str(port, "protocol", default="TCP").lower()
        key = f"_{get_str(port, 'name')}._{protocol}.{base}"
        srv.setdefault(key, {})[get_int(port, "port"), target] = None


def _pod_address(name: str) -> tuple[str, ...]:
    """``10-1-2-3.namespace.pod.cluster.local``, and ``fd00--7.namespace.pod.cluster.local``"""
    labels = name.split(".")
    if len(labels) != 5 or labels[2] != "pod":
        return ()
    parts = labels[0].split("-")
    address = parse((":" if len(parts) != 4 or "" in parts else ".").join(parts))
    return (str(address),) if address is not None else ()


def _reversed(name: str) -> str:
    """The address that a name below in-addr.arpa or ip6.arpa stands for; empty for another name."""
    digits = name.rsplit(".", 2)[0].split(".")[::-1]
    if name.endswith(".in-addr.arpa"):
        return ".".join(digits)
    address = None
    if name.endswith(".ip6.arpa") and len(digits) == 32 and all(len(digit) == 1 for digit in digits):
        address = parse(":".join("".join(digits[start : start + 4]) for start in range(0, 32, 4)))
    return str(address) if address is not None else ""


class _Places:
    """Limits concurrent requests, in total and per client, so that a few clients cannot starve the others.

    A client may have a quarter of what is left, and one place at least: the fuller it is, the less each gets.
    """

    def __init__(self, of_all: int, of_one: int) -> None:
        self._of_all = of_all
        self._of_one = of_one
        self._taken: Counter[str] = Counter()

    @contextmanager
    def take(self, client: str) -> Iterator[bool]:
        """Whether the request may start; its place is held until the end of the block."""
        left = self._of_all - self._taken.total()
        if left <= 0 or self._taken[client] >= min(self._of_one, max(1, left // 4)):
            yield False
            return
        self._taken[client] += 1
        try:
            yield True
        finally:
            self._taken[client] -= 1
            if not self._taken[client]:
                del self._taken[client]


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._transport: asyncio.DatagramTransport | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not every loop's transport derives from DatagramTransport, though all behave like one.
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        task = asyncio.ensure_future(self._respond(data, addr))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _respond(self, data: bytes, addr: tuple[str, int]) -> None:
        response = await self._resolver.respond(data, addr[0], by_datagram=True)
        if response is not None and self._transport is not None:
            self._transport.sendto(response, addr)


class _Once(asyncio.DatagramProtocol):
    """Sends one query to a server and waits for the first answer with the query's identifier."""

    def __init__(self, query: bytes) -> None:
        self._query = query
        self.response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.DatagramTransport, transport).sendto(self._query)

    def datagram_received(self, data: bytes, _addr: tuple[str, int]) -> None:
        if not self.response.done() and data[:2] == self._query[:2]:
            self.response.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.response.done():
            self.response.set_exception(exc)


class Resolver:
    """Serves `names` on a port of its own at `address`, by UDP and TCP."""

    def __init__(self, address: str, upstream_servers: Sequence[str], *, upstream_port: int = 53) -> None:
        self.address = address
        self.port = 0
        self.names = Names()
        self._upstream = list(upstream_servers)
        self._upstream_port = upstream_port
        self._questions = _Places(*_QUESTIONS)
        self._connections = _Places(*_CONNECTIONS)

    async def run(self) -> None:
        """Serve until cancelled."""
        server = await asyncio.start_server(self._on_connection, self.address, 0)
        self.port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(self), local_addr=(self.address, self.port)
        )
        try:
            async with server:
                await server.serve_forever()
        finally:
            transport.close()

    async def respond(self, message: bytes, client: str = "", *, by_datagram: bool = False) -> bytes | None:
        """The response to a query from a client's address; None if the bytes are not a query.

        A datagram leaves out records that do not fit; the client then repeats the query by TCP.
        """
        try:
            question = dns.parse_query(message)
        except dns.MalformedMessage as error:
            _log.debug("a malformed DNS query of %s is not answered: %s", client, error)
            return None
        found = self.names.lookup(question)
        if found is None:
            forwarded = await self._forward(message, client, by_datagram=by_datagram)
            return forwarded or dns.answer(question, dns.SERVER_FAILURE)
        code, records = found
        try:
            if records and records[-1].kind == dns.CNAME and not _in_cluster(records[-1].value):
                records += await self._resolve_elsewhere(question, records[-1].value, client)
            return dns.answer(question, code, records, by_datagram=by_datagram)
        except dns.MalformedMessage as error:
            _log.warning(
                "%s cannot be answered, correct the service's externalName: %s", question.name, error
            )
            return dns.answer(question, dns.SERVER_FAILURE)

    async def _resolve_elsewhere(self, question: dns.Question, name: str, client: str) -> list[dns.Record]:
        """The upstream servers' records for the target of an ExternalName service; None if they do not
        answer.
        """
        if question.kind not in (dns.A, dns.AAAA):
            return []
        response = await self._forward(dns.query(question.identifier, name, question.kind), client)
        if response is None:
            return []
        try:
            return dns.parse_response(response)
        except dns.MalformedMessage as error:
            _log.warning("the upstream DNS server's answer for %s is ignored: %s", name, error)
            return []

    async def _forward(self, message: bytes, client: str, *, by_datagram: bool = False) -> bytes | None:
        """An upstream server's answer; None without one, or when too many queries are being forwarded."""
        with self._questions.take(client) as is_admitted:
            return await self._ask_servers(message, by_datagram=by_datagram) if is_admitted else None

    async def _ask_servers(self, message: bytes, *, by_datagram: bool) -> bytes | None:
        """The first answer; where that leaves records out and the client has a connection, the one by TCP."""
        for server in self._upstream:
            try:
                response = await self._ask(server, message)
                if dns.is_truncated(response) and not by_datagram:
                    response = await self._ask_by_tcp(server, message)
            except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
                _log.debug("upstream DNS server %s does not answer: %s", server, error)
                continue
            return response
        return None

    async def _ask(self, server: str, message: bytes) -> bytes:
        """Raises TimeoutError, OSError."""
        transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Once(message), remote_addr=(server, self._upstream_port)
        )
        try:
            return await asyncio.wait_for(protocol.response, _FORWARD_SECONDS)
        finally:
            transport.close()

    async def _ask_by_tcp(self, server: str, message: bytes) -> bytes:
        """Raises TimeoutError, OSError, IncompleteReadError."""
        async with asyncio.timeout(_FORWARD_SECONDS):
            reader, writer = await asyncio.open_connection(server, self._upstream_port)
            try:
                writer.write(struct.pack(">H", len(message)) + message)
                return await _read_message(reader)
            finally:
                writer.close()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        client = peer[0] if peer else ""
        try:
            with self._connections.take(client) as is_admitted:
                if is_admitted:
                    await self._converse(reader, writer, client)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError) as error:
            _log.debug("connection of %s ended: %s", client, error)
        finally:
            writer.close()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: str
    ) -> None:
        """Answer queries until the client disconnects. Raises TimeoutError when it is too slow."""
        while True:
            async with asyncio.timeout(_IDLE_SECONDS):
                message = await _read_message(reader)
            response = await self.respond(message, client)
            if response is not None:
                writer.write(struct.pack(">H", len(response)) + response)
                async with asyncio.timeout(_IDLE_SECONDS):
                    await writer.drain()


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    """A message of a TCP connection, which its length precedes. Raises IncompleteReadError, OSError."""
    (size,) = struct.unpack(">H", await reader.readexactly(2))
    return await reader.readexactly(size)

"""The API server under load: TLS, 16 connections, 1 KB objects, RBAC and synchronous writes on.

    python -m bench.apiserver [--seconds 5] [--profile]

The server runs on the first core of this machine and the load generator on the second. With ``--profile``
the same load is put on a server with a sampler in it, and what is printed is where its CPU time goes: such a
server is slower, so its figures are not taken.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.figures import heading, machine, percentile, row, say
from bench.phases import Profile, report
from bench.server import ADMIN_TOKEN, PORT, TOKEN, Server
from bench.wire import Connection, Watcher

_OBJECTS = "/api/v1/namespaces/{}/configmaps"
_CLIENT_CORE = 1
_LISTED = 2000
_FILL_SECONDS = 120.0


def _object(name: str, sent: str = "") -> bytes:
    data = {"sent": sent, "text": "x" * 760}
    metadata = {"name": name, "labels": {"app": "bench", "part": "load"}}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}).encode()


async def _prepare(server: Server, *namespaces: str) -> None:
    """Namespaces, and the right to config maps alone."""
    admin = await server.connect(ADMIN_TOKEN)
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]
    group = "rbac.authorization.k8s.io"
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": "bench"}
    subjects = [{"apiGroup": group, "kind": "User", "name": "bench"}]
    documents = [
        (f"/apis/{group}/v1/clusterroles", {"metadata": {"name": "bench"}, "rules": rules}),
        (
            f"/apis/{group}/v1/clusterrolebindings",
            {"metadata": {"name": "bench"}, "roleRef": reference, "subjects": subjects},
        ),
        *(("/api/v1/namespaces", {"metadata": {"name": name}}) for name in namespaces),
    ]
    for path, document in documents:
        status, answer = await admin.request("POST", path, json.dumps(document).encode())
        if status != 201:
            raise RuntimeError(answer.decode())
    admin.close()


@dataclass(frozen=True, slots=True)
class Load:
    """What a load of requests came to."""

    name: str
    count: int
    per_second: float
    slow: float
    """99th percentile of a request, in milliseconds."""
    target: float = 0
    """Requests per second."""


async def _load(
    connections: list[Connection],
    name: str,
    requests: Iterator[tuple[str, str, bytes]],
    seconds: float,
    target: float = 0,
) -> Load:
    """Send requests until they or the time are used up."""
    limit = time.monotonic() + seconds
    took: list[float] = []

    async def work(connection: Connection) -> None:
        for method, path, body in requests:
            begun = time.monotonic()
            status, answer = await connection.request(method, path, body)
            now = time.monotonic()
            took.append(now - begun)
            if status >= 300:
                raise RuntimeError(f"{method} {path}: {status} {answer[:300]!r}")
            if now > limit:
                return

    begun = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for connection in connections:
            group.create_task(work(connection))
    per_second = len(took) / (time.monotonic() - begun)
    return Load(name, len(took), per_second, percentile(took, 0.99) * 1000, target)


async def _loads(server: Server, seconds: float) -> AsyncIterator[Load]:
    """One kind of request after the other."""
    path, listed = _OBJECTS.format("bench"), _OBJECTS.format("listed")
    made = itertools.count()
    names: list[str] = []

    def creates() -> Iterator[tuple[str, str, bytes]]:
        for number in made:
            names.append(f"object-{number}")
            yield "POST", path, _object(names[-1])

    def each(method: str, body: Callable[[str], bytes]) -> Iterator[tuple[str, str, bytes]]:
        return ((method, f"{path}/{name}", body(name)) for name in itertools.cycle(names))

    async with server.connections() as connections:
        yield await _load(connections, "create", creates(), seconds, 700)
        updates = each("PUT", lambda name: _object(name, str(time.monotonic())))
        yield await _load(connections, "update", updates, seconds, 700)
        yield await _load(connections, "get", each("GET", lambda _: b""), seconds, 1500)
        yield await _load(connections, "list", itertools.repeat(("GET", listed, b"")), seconds, 40)
        deletes = (("DELETE", f"{path}/{name}", b"") for name in list(names))
        yield await _load(connections, "delete", deletes, seconds, 700)


async def _fill(server: Server, namespace: str, count: int) -> None:
    path = _OBJECTS.format(namespace)
    async with server.connections() as connections:
        creates = (("POST", path, _object(f"o-{number}")) for number in range(count))
        await _load(connections, "fill", creates, _FILL_SECONDS)


async def _report_rates(server: Server, seconds: float) -> None:
    heading("requests per second, 16 connections", "this", "P99", "target")
    async for load in _loads(server, seconds):
        row(
            {"list": "list of 2,000"}.get(load.name, load.name),
            f"{load.per_second:.0f}/s",
            beside=f"{load.slow:.0f} ms",
            target=f"{load.target:.0f}/s",
            met=load.per_second >= load.target,
        )


@dataclass(frozen=True, slots=True)
class Watched:
    """What watchers saw of changes."""

    changes: int
    per_second: float
    ages: list[float]
    """Of each event, in seconds."""
    resident: float
    """MiB with all watchers."""


async def _watch(server: Server, watchers: int, seconds: float) -> Watched:
    path = _OBJECTS.format("watched")
    loop = asyncio.get_running_loop()
    ages: list[float] = []
    writer = await server.connect()
    await writer.request("POST", path, _object("changing", "0"))
    _, listed = await writer.request("GET", path)
    version = json.loads(listed)["metadata"]["resourceVersion"]
    transports = []
    for _ in range(watchers):
        query = f"{path}?watch=true&resourceVersion={version}&allowWatchBookmarks=false"
        factory = functools.partial(Watcher, query, TOKEN, ages)
        transport, protocol = await loop.create_connection(factory, "127.0.0.1", PORT, ssl=server.context)
        transports.append(transport)
        await asyncio.wait_for(protocol.started, 10)
    resident = server.rss()
    if server.profiled:
        await server.profile()  # connecting is not what is looked at
    changes = int(20 * seconds)
    begun = time.monotonic()
    for number in range(changes):
        await asyncio.sleep(max(0.0, begun + number / 20 - time.monotonic()))
        await writer.request("PUT", f"{path}/changing", _object("changing", f"{time.monotonic():.6f}"))
    rate = changes / (time.monotonic() - begun)
    for _ in range(50):
        if len(ages) >= changes * watchers:
            break
        await asyncio.sleep(0.1)
    for transport in transports:
        transport.close()
    return Watched(changes, rate, ages, resident)


async def _report_watchers(server: Server, watchers: int, seconds: float) -> None:
    found = await _watch(server, watchers, seconds)
    heading(f"{watchers} watchers, {found.per_second:.1f} changes/s", "this", "", "target")
    slow = percentile(found.ages, 0.99) * 1000
    row("age of an event, P50", f"{percentile(found.ages, 0.5) * 1000:.0f} ms")
    row("age of an event, P99", f"{slow:.0f} ms", target="100 ms", met=slow <= 100)
    seen = 100 * len(found.ages) / (found.changes * watchers)
    row("events seen of those sent", f"{seen:.2f} %", target="100 %")
    row("resident with all watchers", f"{found.resident:.0f} MiB")


async def _report_store(server: Server) -> None:
    heading("10,000 objects", "this", "", "target")
    await server.stop()
    await server.start()
    await asyncio.sleep(3)
    before = server.rss()
    await _fill(server, "stored", 10_000)
    await asyncio.sleep(3)
    each = (server.rss() - before) * 1024 / 10_000
    row("resident for each stored object", f"{each:.1f} KiB", target="20 KiB", met=each <= 20)
    await server.stop()
    again = [await _restart(server) for _ in range(3)]
    row(
        "ready after a start",
        f"{percentile(again, 0.5):.2f} s",
        target="2 s",
        met=percentile(again, 0.5) <= 2,
    )


async def _restart(server: Server) -> float:
    await server.stop()
    return await server.start()


async def _measure(options: argparse.Namespace, folder: Path) -> None:
    server = Server(folder)
    try:
        heading("an empty server", "this", "", "target")
        await server.start()
        await _prepare(server, "bench", "listed", "watched", "stored")
        starts = [await _restart(server) for _ in range(5)]
        middle = percentile(starts, 0.5)
        row("ready after a start", f"{middle:.2f} s", target="0.8 s", met=middle <= 0.8)
        await asyncio.sleep(5)
        idle = server.rss()
        row("resident, idle", f"{idle:.0f} MiB", target="70 MiB", met=idle <= 70)
        await _fill(server, "listed", _LISTED)
        await _report_rates(server, options.seconds)
        await _report_watchers(server, options.watchers, options.seconds)
        await _report_store(server)
    finally:
        await server.stop()


async def _profile(options: argparse.Namespace, folder: Path) -> None:
    """Where the time goes."""
    server = Server(folder, profiled=True)
    profiles: dict[str, tuple[Profile, int]] = {}
    try:
        await server.start()
        await _prepare(server, "bench", "listed", "watched")
        await _fill(server, "listed", _LISTED)
        await server.profile()
        async for load in _loads(server, options.seconds):
            profiles[load.name] = (await server.profile(), load.count)
        found = await _watch(server, options.watchers, options.seconds)
        profiles["event"] = (await server.profile(), len(found.ages))
    finally:
        await server.stop()
    report(profiles)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="bench.apiserver", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each kind of request is made")
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--profile", action="store_true", help="show where the time goes instead")
    options = parser.parse_args()
    say(machine())
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {_CLIENT_CORE})
    with tempfile.TemporaryDirectory(prefix="bench-api-") as folder:
        uvloop.run((_profile if options.profile else _measure)(options, Path(folder)))
    say()
    say(machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The API server under load: TLS, 16 connections, 1 KB objects, RBAC and synchronous writes on.

    python -m bench.apiserver [--seconds 5]

The server runs on the first core of this machine and the load generator on the second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import uvloop

from bench.figures import heading, machine, percentile, row, say
from bench.wire import Connection, Watcher

_PORT = 16443
_CONNECTIONS = 16
_TOKEN, _ADMIN_TOKEN = "bench-token", "admin-token"
_OBJECTS = "/api/v1/namespaces/{}/configmaps"
_SERVER_CORE, _CLIENT_CORE = 0, 1


class Server:
    """An API server of its own in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE
        tokens = f'{_TOKEN},bench,1,"benchers"\n{_ADMIN_TOKEN},admin,2,"system:masters"\n'
        (folder / "tokens.csv").write_text(tokens)
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        command += ["-nodes", "-subj", "/CN=bench", "-keyout", "key.pem", "-out", "cert.pem"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)

    async def start(self) -> float:
        """Seconds until ``/readyz`` says yes."""
        begun = time.monotonic()
        options = {"state-dir": self._folder, "token-file": self._folder / "tokens.csv", "port": _PORT}
        options |= {"tls-cert": self._folder / "cert.pem", "tls-key": self._folder / "key.pem"}
        command = [sys.executable, "-m", "kindling.apiserver.main", "--bind=127.0.0.1"]
        with (self._folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *("taskset", "-c", str(_SERVER_CORE)),
                *command,
                *(f"--{name}={value}" for name, value in options.items()),
                stderr=log,
                stdout=log,
            )
        while True:
            if self._process.returncode is not None:
                raise RuntimeError((self._folder / "log").read_text()[-2000:])
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                connection = await self.connect(_ADMIN_TOKEN)
                status, _ = await connection.request("GET", "/readyz")
                connection.close()
                if status == 200:
                    return time.monotonic() - begun
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            await self._process.wait()
            self._process = None

    async def connect(self, token: str = _TOKEN) -> Connection:
        """One more connection."""
        return await Connection.open(_PORT, token, self.context)

    @contextlib.asynccontextmanager
    async def connections(self) -> AsyncIterator[list[Connection]]:
        """The sixteen."""
        made = [await self.connect() for _ in range(_CONNECTIONS)]
        try:
            yield made
        finally:
            for each in made:
                each.close()

    def rss(self) -> float:
        """Resident MiB."""
        assert self._process is not None
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0


def _object(name: str, sent: str = "") -> bytes:
    data = {"sent": sent, "text": "x" * 760}
    metadata = {"name": name, "labels": {"app": "bench", "part": "load"}}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}).encode()


async def _prepare(server: Server, *namespaces: str) -> None:
    """Namespaces, and the right to config maps alone."""
    admin = await server.connect(_ADMIN_TOKEN)
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


async def _rate(
    connections: list[Connection],
    requests: Iterator[tuple[str, str, bytes]],
    seconds: float,
) -> tuple[float, float]:
    """Requests per second until they or the time are used up, and the 99th percentile of a request (ms)."""
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
    return len(took) / (time.monotonic() - begun), percentile(took, 0.99) * 1000


async def _report_rates(server: Server, seconds: float) -> None:
    path = _OBJECTS.format("bench")
    made = itertools.count()
    names: list[str] = []

    def creates() -> Iterator[tuple[str, str, bytes]]:
        for number in made:
            names.append(f"object-{number}")
            yield "POST", path, _object(names[-1])

    def each(method: str, body: Callable[[str], bytes]) -> Iterator[tuple[str, str, bytes]]:
        return ((method, f"{path}/{name}", body(name)) for name in itertools.cycle(names))

    heading("requests per second, 16 connections", "this", "P99", "target")
    async with server.connections() as connections:
        await _report(connections, "create", creates(), seconds, 700)
        updates = each("PUT", lambda name: _object(name, str(time.monotonic())))
        await _report(connections, "update", updates, seconds, 700)
        await _report(connections, "get", each("GET", lambda _: b""), seconds, 1500)
        listed = _OBJECTS.format("listed")
        await _rate(connections, (("POST", listed, _object(f"o-{number}")) for number in range(2000)), 600)
        await _report(connections, "list of 2,000", itertools.repeat(("GET", listed, b"")), seconds, 40)
        deletes = (("DELETE", f"{path}/{name}", b"") for name in list(names))
        await _report(connections, "delete", deletes, seconds, 700)


async def _report(
    connections: list[Connection],
    name: str,
    requests: Iterator[tuple[str, str, bytes]],
    seconds: float,
    target: float,
) -> None:
    rate, slow = await _rate(connections, requests, seconds)
    row(name, f"{rate:.0f}/s", beside=f"{slow:.0f} ms", target=f"{target:.0f}/s", met=rate >= target)


async def _report_watchers(server: Server, watchers: int, seconds: float) -> None:
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
        transport, protocol = await loop.create_connection(
            lambda query=query: Watcher(query, _TOKEN, ages), "127.0.0.1", _PORT, ssl=server.context
        )
        transports.append(transport)
        await asyncio.wait_for(protocol.started, 10)
    size = server.rss()
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
    heading(f"{watchers} watchers, {rate:.1f} changes/s", "this", "", "target")
    slow = percentile(ages, 0.99) * 1000
    row("age of an event, P50", f"{percentile(ages, 0.5) * 1000:.0f} ms")
    row("age of an event, P99", f"{slow:.0f} ms", target="100 ms", met=slow <= 100)
    row("events seen of those sent", f"{100 * len(ages) / (changes * watchers):.2f} %", target="100 %")
    row("resident with all watchers", f"{size:.0f} MiB")


async def _report_store(server: Server) -> None:
    heading("10,000 objects", "this", "", "target")
    await server.stop()
    await server.start()
    await asyncio.sleep(3)
    before = server.rss()
    path = _OBJECTS.format("stored")
    async with server.connections() as connections:
        await _rate(connections, (("POST", path, _object(f"o-{number}")) for number in range(10_000)), 600)
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
        await _report_rates(server, options.seconds)
        await _report_watchers(server, options.watchers, options.seconds)
        await _report_store(server)
    finally:
        await server.stop()


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="bench.apiserver", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each kind of request is made")
    parser.add_argument("--watchers", type=int, default=1000)
    options = parser.parse_args()
    say(machine())
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {_CLIENT_CORE})
    with tempfile.TemporaryDirectory(prefix="bench-api-") as folder:
        uvloop.run(_measure(options, Path(folder)))
    say()
    say(machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""An API server that is killed again and again, writers that know what was acknowledged, and watchers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

TOKEN = "token-of-kills"
PATH = "/api/v1/namespaces/default/configmaps"
SHARED = "shared"
_GONE = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError)
"""How a connection ends whose server is killed."""


class Server:
    """The process; its database, log and certificates lie in `folder`."""

    def __init__(self, folder: Path, port: int, *options: str) -> None:
        self.folder, self.port = folder, port
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        authority = trustme.CA()
        self.context = ssl.create_default_context()
        authority.configure_trust(self.context)
        certificate = authority.issue_cert("127.0.0.1")
        certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / "tls.pem"))
        (folder / "tokens.csv").write_text(f'{TOKEN},admin,1,"system:masters"\n')

    async def launch(self) -> None:
        """Start the process."""
        files = dict.fromkeys(("tls-cert", "tls-key"), self.folder / "tls.pem")
        files |= {"storage": self.folder / "state" / "db", "token-file": self.folder / "tokens.csv"}
        with (self.folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kindling.apiserver.main", f"--port={self.port}"),
                *(f"--{name}={value}" for name, value in files.items()),
                *self._options,
                stdout=log,
                stderr=log,
                env={"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")},
            )

    async def wait_ready(self, seconds: float = 20.0) -> None:
        """Until it answers. Raises AssertionError with the log's end when it does not."""
        async with asyncio.timeout(seconds):
            while True:
                assert self._process is not None
                if self._process.returncode is not None:
                    raise AssertionError((self.folder / "log").read_text()[-3000:])
                with contextlib.suppress(*_GONE):
                    async with Connection(self).opened() as connection:
                        if (await connection.request("GET", "/readyz"))[0] == 200:
                            return
                await asyncio.sleep(0.02)

    async def end(self, number: int = signal.SIGKILL) -> None:
        """Send a signal and wait for the end."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
            await self._process.wait()
        self._process = None


class Connection:
    """One TLS connection that speaks as much HTTP as this needs."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Connection]:
        """Connect; hang up at the end."""
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._server.port, ssl=self._server.context, limit=1 << 24
        )
        try:
            yield self
        finally:
            self._writer.transport.abort()

    async def send(self, method: str, path: str, body: object = None, kind: str = "application/json") -> int:
        """Send a request; the status of the answer, whose head is read."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        head += f"Content-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
        self._writer.write(head.encode() + content)
        self._head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        return int(self._head[9:12])

    async def request(
        self, method: str, path: str, body: object = None, kind: str = "application/json"
    ) -> tuple[int, Any]:
        """Status and document of the answer."""
        status = await self.send(method, path, body, kind)
        at = self._head.find(b"content-length: ")
        if at >= 0:
            length = int(self._head[at + 16 : self._head.index(b"\r", at)])
            content = await self._reader.readexactly(length)
        else:
            content = b"".join([chunk async for chunk in self.chunks()])
        return status, json.loads(content) if content.startswith(b"{") else content.decode()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The parts of a chunked answer: of a watch, one line each."""
        while True:
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            part = await self._reader.readexactly(size + 2)
            if not size:
                return
            yield part[:-2]


@dataclass(frozen=True, slots=True)
class Known:
    """A state of an object: the number that its content follows from, and its resourceVersion."""

    number: int
    revision: int = 0  # unknown


def content(number: int) -> dict[str, str]:
    """Data that follows from a number: two members that must agree, and many bytes that must, too."""
    return {"first": str(number), "text": chr(97 + number % 26) * (number * 37 % 2500), "last": str(number)}


def known(obj: dict[str, Any]) -> Known:
    """The state of an object. Raises AssertionError for one that is half of this and half of that."""
    number = int(obj["data"]["first"])
    assert obj["data"] == content(number), f"half applied: {str(obj)[:300]}"
    return Known(number, int(obj["metadata"]["resourceVersion"]))


@dataclass
class Ledger:
    """What all writers were told."""

    acknowledged: dict[int, str] = field(default_factory=dict)
    """resourceVersion -> name."""
    newest: int = 0
    deletions: int = 0

    def enter(self, revision: int, name: str, before: int) -> None:
        """A write was acknowledged that began when `before` was the newest acknowledged revision."""
        assert revision not in self.acknowledged, f"revision {revision} was given out twice"
        assert revision > before, f"revision {revision} of {name} after {before}"
        self.acknowledged[revision] = name
        self.newest = max(self.newest, revision)


class Writer:
    """A client with objects of its own, and one member of an object that all share."""

    def __init__(self, identity: int, ledger: Ledger, chance: random.Random) -> None:
        self._ledger, self._chance = ledger, chance
        self.member = f"writer{identity}"
        self.objects: dict[str, Known | None] = {f"object-{identity}-{index}": None for index in range(5)}
        self.shared = 0
        self.doubt: tuple[str, Known | None] | None = None
        """The write whose answer did not come: (name, state if it was done)."""
        self._number = identity * 1_000_000

    async def run(self, server: Server) -> None:
        """Write until the server is gone."""
        with contextlib.suppress(*_GONE):
            async with Connection(server).opened() as connection:
                while True:
                    await self._write(connection)

    async def _write(self, connection: Connection) -> None:
        self._number += 1
        number, before = self._number, self._ledger.newest
        name = self._chance.choice([*self.objects, SHARED])
        self.doubt = (name, Known(number))
        if name == SHARED:
            patch = {"data": {self.member: str(number)}}
            answer = await self._acknowledged(connection, "PATCH", name, patch)
            assert answer["data"][self.member] == str(number)
            self.shared = number
        elif self.objects[name] is None:
            answer = await self._acknowledged(connection, "POST", "", document(name, number))
        elif (choice := self._chance.random()) < 0.2:
            self.doubt = (name, None)
            await self._acknowledged(connection, "DELETE", name)
            self.objects[name], self.doubt = None, None
            self._ledger.deletions += 1
            return
        elif choice < 0.6:
            current = self.objects[name]
            assert current is not None
            revision = str(current.revision)
            answer = await self._acknowledged(connection, "PUT", name, document(name, number, revision))
        else:
            answer = await self._acknowledged(connection, "PATCH", name, {"data": content(number)})
        self.doubt = None
        self._ledger.enter(int(answer["metadata"]["resourceVersion"]), name, before)
        if name != SHARED:
            self.objects[name] = known(answer)
            assert self.objects[name] == Known(number, int(answer["metadata"]["resourceVersion"]))

    async def _acknowledged(self, connection: Connection, method: str, name: str, body: object = None) -> Any:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        status, answer = await connection.request(method, f"{PATH}/{name}".rstrip("/"), body, kind)
        assert status in (200, 201), f"{method} {name}: {status} {answer}"
        return answer

    def verify(self, found: dict[str, Any]) -> int:
        """Compare with what is stored after a restart; settle the write in doubt. How many there were."""
        doubt, self.doubt = self.doubt, None
        for name, expected in self.objects.items():
            actual = known(found[name]) if name in found else None
            if doubt is not None and doubt[0] == name and actual != expected:
                wanted = doubt[1].number if doubt[1] else None
                assert (actual.number if actual else None) == wanted, f"{name}: neither before nor after"
                # Of a write that was not acknowledged the revision is unknown, but it must be a new one.
                if actual is not None:
                    self._ledger.enter(actual.revision, name, expected.revision if expected else 0)
                self.objects[name] = actual
                continue
            assert actual == expected, f"{name} is {actual}, but {expected} was acknowledged"
        shared = int(found[SHARED].get("data", {}).get(self.member, "0"))
        in_doubt = doubt[1].number if doubt and doubt[1] and doubt[0] == SHARED else None
        assert shared in (self.shared, in_doubt), f"{self.member} is {shared}, not {self.shared}"
        self.shared = shared
        return int(doubt is not None)


def document(name: str, number: int, revision: str = "") -> dict[str, Any]:
    """A config map."""
    metadata = {"name": name} | ({"resourceVersion": revision} if revision else {})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": content(number)}


class Watcher:
    """Follows all changes over any number of servers' lives; `pause_seconds` between connections."""

    def __init__(self, server: Server, pause_seconds: float = 0.01) -> None:
        self._server, self._pause = server, pause_seconds
        self.replica: dict[str, Any] = {}
        self.revisions: set[int] = set()
        """Of every change that was seen."""
        self.last = 0
        self.connections = self.relists = self.deletions = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            with contextlib.suppress(*_GONE):
                async with Connection(self._server).opened() as connection:
                    if not self.last:
                        await self._list(connection)
                    await self._watch(connection)
            await asyncio.sleep(self._pause)

    async def _list(self, connection: Connection) -> None:
        status, listed = await connection.request("GET", PATH)
        assert status == 200, listed
        self.replica = {item["metadata"]["name"]: item for item in listed["items"]}
        self.last = int(listed["metadata"]["resourceVersion"])

    async def _watch(self, connection: Connection) -> None:
        self.connections += 1
        end = "" if self._pause < 1 else "&timeoutSeconds=1"
        status = await connection.send("GET", f"{PATH}?watch=true&resourceVersion={self.last}{end}")
        assert status == 200
        async for line in connection.chunks():
            event = json.loads(line)
            obj = event["object"]
            if event["type"] == "ERROR":
                assert (obj["code"], obj["reason"]) == (410, "Expired"), obj
                assert obj["message"].startswith(f"too old resource version: {self.last} (")
                self.last, self.relists = 0, self.relists + 1
                return
            self._see(event["type"], obj)

    def _see(self, event_type: str, obj: dict[str, Any]) -> None:
        name, revision = obj["metadata"]["name"], int(obj["metadata"]["resourceVersion"])
        assert revision > self.last, f"{revision} after {self.last}"
        self.last = revision
        self.revisions.add(revision)
        assert (event_type == "ADDED") == (name not in self.replica), f"{event_type} of {name}"
        if event_type == "DELETED":
            self.deletions += 1
            del self.replica[name]
        else:
            # Items of a list do not repeat what the list says.
            self.replica[name] = {key: part for key, part in obj.items() if key not in ("apiVersion", "kind")}

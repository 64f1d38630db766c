"""An API server in a process of its own under attack, beside a client that must not notice.

The server, the well-behaved client and the attacker are three processes, so that none waits for another's
interpreter. Clocks are monotonic ones of the same machine and comparable.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import trustme
from tests.support.starvation import starvation, starvation_measured

ADMIN_TOKEN = "hostile-admin"
NEIGHBOUR_TOKEN = "good-neighbour"
_NEIGHBOUR = Path(__file__).with_name("neighbour.py")
_NAMESPACES = "/api/v1/namespaces"
_READY_SECONDS = 30.0
SETTLED_REQUESTS = 50
"""So many requests of the neighbour are waited for before an attack and after it."""


@dataclass(slots=True)
class Reply:
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float = 0.0

    @property
    def document(self) -> dict[str, Any]:
        """The body as JSON."""
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def message(self) -> str:
        """The message of a Status."""
        return str(self.document.get("message", ""))

    @property
    def reason(self) -> str:
        """The reason of a Status."""
        return str(self.document.get("reason", ""))


@dataclass
class Neighbour:
    """What the well-behaved client saw: (moment, milliseconds) of each pair of requests."""

    process: asyncio.subprocess.Process
    seen: list[tuple[float, float]] = field(default_factory=list)
    failure: str = ""
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self) -> None:
        """Collect its lines until it ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            text = line.decode()
            self.heard.set()
            if text.startswith("failed"):
                self.failure = text
                return
            moment, took = text.split()
            self.seen.append((float(moment), float(took)))

    async def settle(self, requests: int = SETTLED_REQUESTS) -> None:
        """Wait until it got so many more answers."""
        wanted = len(self.seen) + requests
        limit = time.monotonic() + 30
        while len(self.seen) < wanted and not self.failure and time.monotonic() < limit:
            self.heard.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.heard.wait(), 1.0)
        assert len(self.seen) >= wanted, self.failure or "the neighbour is not served any more"

    def percentile(self, since: float, share: float = 0.99) -> float:
        """Milliseconds that `share` of the requests since then stayed below."""
        took = sorted(ms for moment, ms in self.seen if moment >= since)
        return took[min(len(took) - 1, int(len(took) * share))]


@dataclass
class Target:
    """A server under attack."""

    port: int
    process: asyncio.subprocess.Process
    context: ssl.SSLContext
    folder: Path
    neighbour: Neighbour
    measured: list[Measured] = field(default_factory=list)
    """What each attack did to the others."""

    def megabytes(self, what: str = "VmRSS") -> float:
        """Resident MiB now, or at most since `forget_peak` (VmHWM)."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("the server is gone")

    def descriptors(self) -> int:
        """Open files and connections of the server."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def forget_peak(self) -> None:
        """Let VmHWM begin again at what is resident now."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    async def open(self, *, reads: bool = True) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """One more TLS connection; `reads` turned off: nothing is taken from it until it is resumed."""
        if reads:
            return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context, limit=1 << 26)
        plain = socket.socket()
        plain.setblocking(False)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", self.port))
        made = await asyncio.open_connection(sock=plain, ssl=self.context, server_hostname="127.0.0.1")
        cast(asyncio.Transport, made[1].transport).pause_reading()  # both directions are one transport
        return made

    async def raw(self, data: bytes, patience: float = 30.0) -> Reply:
        """Send bytes on a connection of their own; the first answer. Status 0: the server hung up."""
        begun = time.monotonic()
        reader, writer = await self.open()
        try:
            sending = asyncio.create_task(_send(writer, data))
            try:
                reply = await asyncio.wait_for(read_reply(reader), patience)
            except (ConnectionError, asyncio.IncompleteReadError):
                reply = Reply(0, {}, b"")
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        finally:
            writer.transport.abort()
        reply.seconds = time.monotonic() - begun
        return reply

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | dict[str, Any] | list[Any] = b"",
        content_type: str = "application/json",
        headers: str = "",
        patience: float = 30.0,
    ) -> Reply:
        """One request of the administrator."""
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        return await self.raw(head(method, path, body, content_type, headers) + body, patience)


def head(
    method: str, path: str, body: bytes = b"", content_type: str = "application/json", headers: str = ""
) -> bytes:
    """The head of a request; `headers` are complete lines."""
    text = f"{method} {path} HTTP/1.1\r\nHost: kindling\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n{headers}"
    if body:
        text += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return text.encode() + b"\r\n"


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """One answer with its body."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    status = int(lines[0].split()[1])
    if "content-length" in headers:
        return Reply(status, headers, await reader.readexactly(int(headers["content-length"])))
    if headers.get("transfer-encoding") == "chunked":
        parts = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
        return Reply(status, headers, b"".join(parts))
    return Reply(status, headers, b"")


def _prepare(folder: Path) -> ssl.SSLContext:
    authority = trustme.CA()
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    certificate = authority.issue_cert("127.0.0.1", not_after=tomorrow)
    (folder / "tls.crt").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    (folder / "tls.key").write_bytes(certificate.private_key_pem.bytes())
    tokens = f'{ADMIN_TOKEN},admin,1,"system:masters"\n{NEIGHBOUR_TOKEN},neighbour,2,"system:masters"\n'
    (folder / "tokens.csv").write_text(tokens)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    context.check_hostname = False
    return context


async def _start(folder: Path, flags: tuple[str, ...]) -> tuple[asyncio.subprocess.Process, int]:
    """The server's process and port, which it says in its log."""
    command = [sys.executable, "-m", "kindling.apiserver.main", "--bind=127.0.0.1", "--port=0"]
    options = {"state-dir": folder, "token-file": folder / "tokens.csv"}
    options |= {"tls-cert": folder / "tls.crt", "tls-key": folder / "tls.key"}
    command += [f"--{name}={value}" for name, value in options.items()] + list(flags)
    with (folder / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(*command, stderr=log, stdout=log)
    limit = time.monotonic() + _READY_SECONDS
    while time.monotonic() < limit and process.returncode is None:
        for line in (folder / "log").read_text().splitlines():
            if '"Serving"' in line:
                return process, int(json.loads(line)["port"])
        await asyncio.sleep(0.05)
    raise AssertionError((folder / "log").read_text()[-2000:])


@asynccontextmanager
async def under_attack(folder: Path, *flags: str) -> AsyncIterator[Target]:
    """A server with its neighbour at work."""
    context = _prepare(folder)
    process, port = await _start(folder, flags)
    target = Target(port, process, context, folder, Neighbour(process))
    neighbour: asyncio.subprocess.Process | None = None
    listening: asyncio.Task[None] | None = None
    try:
        for name in ("quiet", "attacked"):
            reply = await target.request("POST", _NAMESPACES, {"metadata": {"name": name}})
            assert reply.status == 201, reply.body
        path = f"{_NAMESPACES}/quiet/configmaps"
        command = [sys.executable, str(_NEIGHBOUR), str(port), NEIGHBOUR_TOKEN, path]
        pipe = asyncio.subprocess.PIPE
        neighbour = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        target.neighbour = Neighbour(neighbour)
        listening = asyncio.create_task(target.neighbour.listen())
        await target.neighbour.settle()
        yield target
    finally:
        if neighbour is not None and neighbour.stdin is not None:
            neighbour.stdin.close()
            await neighbour.wait()
        if listening is not None:
            await listening
        if process.returncode is None:
            process.terminate()
        await process.wait()


@dataclass
class Measured:
    """What an attack did to the others. Figures are set when it is over."""

    starvation: float = 1.0
    p99_ms: float = 0.0
    before_mib: float = 0.0
    peak_mib: float = 0.0
    after_mib: float = 0.0

    def __str__(self) -> str:
        return (
            f"P99 {self.p99_ms:.0f} ms on a processor {self.starvation:.1f} times slower, resident "
            f"{self.before_mib:.0f} MiB before, {self.peak_mib:.0f} at most, {self.after_mib:.0f} after"
        )


MAX_P99_MS = 250.0


@asynccontextmanager
async def bystander_unharmed(target: Target, growth_mib: float) -> AsyncIterator[Measured]:
    """Whatever happens inside must leave the neighbour's P99, the memory and the readiness in bounds."""
    measured = Measured()
    target.measured.append(measured)
    target.forget_peak()
    measured.before_mib = target.megabytes()
    measured.starvation = await asyncio.to_thread(starvation)
    await target.neighbour.settle()
    begun = time.monotonic()
    with starvation_measured() as meanwhile:
        yield measured
        await target.neighbour.settle()
    measured.starvation = max(measured.starvation, meanwhile.factor, await asyncio.to_thread(starvation))
    measured.p99_ms = target.neighbour.percentile(begun)
    measured.peak_mib, measured.after_mib = target.megabytes("VmHWM"), target.megabytes()
    ready = await target.request("GET", "/readyz")
    assert ready.status == 200, ready.body
    assert measured.p99_ms < MAX_P99_MS * measured.starvation, str(measured)
    assert measured.peak_mib - measured.before_mib < growth_mib, str(measured)

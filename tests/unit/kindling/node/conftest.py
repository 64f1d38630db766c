"""Certificates of a cluster, and its nodes' HTTPS servers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kindling.cluster import certificates
from kindling.cluster.instance import Instance
from kindling.node.server import http

# Its checks say what they compared, as those of test modules do.
pytest.register_assert_rewrite("tests.unit.kindling.node.simulated_csi_node")


@dataclass(frozen=True)
class Pki:
    """The cluster's certificates, and what servers and clients make of them."""

    directory: Path

    def server(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.directory / "ca.crt")
        self._load(context, "node-node01-server")
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client(self, identity: str = "apiserver-kubelet-client") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.directory / "ca.crt")
        self._load(context, identity)
        return context

    async def connect(
        self, port: int, identity: str = "apiserver-kubelet-client"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", port, ssl=self.client(identity), server_hostname="node01"
        )

    def _load(self, context: ssl.SSLContext, identity: str) -> None:
        context.load_cert_chain(self.directory / f"{identity}.crt", self.directory / f"{identity}.key")

    @asynccontextmanager
    async def serving(
        self, handler: http.Handler, check: Callable[..., Awaitable[None]] | None = None
    ) -> AsyncIterator[int]:
        """A node's server; by default everybody may do everything."""

        async def allow(*_: object) -> None:
            return

        async with http.serving(handler, "127.0.0.1", 0, self.server(), check or allow) as port:
            yield port


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    made = Instance(tmp_path_factory.mktemp("state"), "0a0b0c0d", "10.70.0.0/16", 6443, ("node01",))
    certificates.ensure(made)
    return Pki(made.pki)

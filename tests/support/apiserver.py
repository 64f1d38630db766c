"""An API server in this process, for tests: real HTTPS on a free loopback port, storage in memory."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import trustme

from kindling.apiserver.app import ApiServer
from kindling.apiserver.registry.definition import ResourceDefinition, Strategy, status_subresource
from kindling.apiserver.settings import Settings
from kubecore import resources
from kubecore.client import Client, ClientConfig
from kubecore.destinations import Destinations
from kubecore.resources import ResourceType

ADMIN_TOKEN = "admin-token-of-tests"
LOOPBACK_TOO = Destinations(allowed=(ipaddress.ip_network("127.0.0.0/8"),))
WIDGETS = ResourceType("example.com", "v1", "widgets", "Widget")


def generic_definition(resource: ResourceType, **options: Any) -> ResourceDefinition:
    """A definition without a schema and with the generic strategy."""
    strategy = options.pop("strategy", None) or Strategy()
    subresources = options.pop("subresources", {"status": status_subresource(resource.kind, strategy)})
    return ResourceDefinition(resource, None, strategy, subresources=subresources, **options)


def sample_definitions() -> list[ResourceDefinition]:
    """A few kinds without rules of their own: enough to test the machinery."""
    return [
        generic_definition(resources.NAMESPACES),
        generic_definition(resources.CONFIG_MAPS),
        generic_definition(resources.SECRETS),
        generic_definition(WIDGETS),
    ]


@dataclass
class RunningServer:
    """A started server and how to reach it."""

    server: ApiServer
    url: str
    ca_data: bytes

    def config(self, token: str = ADMIN_TOKEN) -> ClientConfig:
        """A client configuration; the token is the administrator's unless given."""
        return ClientConfig(server=self.url, ca_data=self.ca_data, token=token)

    def client(self, token: str = ADMIN_TOKEN) -> Client:
        """A new client (an async context manager)."""
        return Client(self.config(token))


@asynccontextmanager
async def running_server(
    directory: Path,
    definitions: Iterable[ResourceDefinition] | None = None,
    destinations: Destinations = LOOPBACK_TOO,
    **settings: Any,
) -> AsyncIterator[RunningServer]:
    """Start a server with certificates in `directory`. `definitions` defaults to all built-in kinds.

    Its proxies reach loopback, where the nodes, pods and services of tests listen, unless other
    `destinations` are given. Keyword arguments change ``Settings`` (``storage=path`` makes it durable).
    """
    authority = trustme.CA()
    certificate = authority.issue_cert(
        "127.0.0.1", "localhost", not_after=datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    )
    cert_file, key_file, ca_file = (directory / name for name in ("tls.crt", "tls.key", "ca.crt"))
    cert_file.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    key_file.write_bytes(certificate.private_key_pem.bytes())
    ca_file.write_bytes(authority.cert_pem.bytes())
    token_file = directory / "tokens.csv"
    token_file.write_text(f'{ADMIN_TOKEN},admin,1,"system:masters"\n')
    base = Settings(port=0, tls_cert=cert_file, tls_key=key_file, client_ca=ca_file, token_file=token_file)
    if definitions is None:
        from kindling.apiserver.kinds.served import builtin_definitions

        definitions = builtin_definitions()
    server = ApiServer(replace(base, **settings), definitions, destinations)
    await server.start()
    try:
        yield RunningServer(server, server.url, authority.cert_pem.bytes())
    finally:
        await server.stop()

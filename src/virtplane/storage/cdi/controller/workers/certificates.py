"""Certificates of upload servers, issued by the authorities that cdi-operator keeps in CDI's namespace."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from kubecore.certificates import CERTIFICATE_KEY, PRIVATE_KEY, Leaf, Lifetimes, issue, pair_of
from kubecore.client import Client
from kubecore.json import get_object, get_str
from kubecore.resources import CONFIG_MAPS, SECRETS
from virtplane.api import cdi_names
from virtplane.api.cdi_v1beta1.cdi import CDICertConfig
from virtplane.storage.cdi.lifetimes import lifetimes

CLIENT_AUTHORITY_KEY = "ca.crt"
"""Under this key a server finds who signs its clients."""
_BUNDLE_KEY = "ca-bundle.crt"
_SUFFIXES = ("svc", "svc.cluster.local")


class NoAuthority(Exception):
    """The authorities that sign for upload servers and their clients are not there yet."""


class Issuer(Protocol):
    """Who issues the certificates of upload servers."""

    def deadline(self) -> str:
        """When a server that starts now is to be replaced, because certificates are renewed (RFC 3339)."""

    async def issue(self, service: str, namespace: str) -> dict[str, str]:
        """The data of a secret with a server's certificate, encoded as secrets are.

        Raises NoAuthority, BadLifetime, StatusError.
        """


class SecretIssuer:
    """Signs with the authority in a secret of `namespace`, for as long as `config` says now."""

    def __init__(self, client: Client, namespace: str, config: Callable[[], CDICertConfig]) -> None:
        self._client, self._namespace, self._config = client, namespace, config

    def deadline(self) -> str:
        """The moment at which the first certificate, the server's or a client's, is renewed.

        Raises BadLifetime.
        """
        wanted = lifetimes(self._config())
        return _rfc3339(datetime.now(UTC) + first_renewal(wanted))

    async def issue(self, service: str, namespace: str) -> dict[str, str]:
        """The data of a secret. Raises NoAuthority, BadLifetime, StatusError, ConnectionFailed."""
        leaf = Leaf(service, dns_names=(service, *(f"{service}.{namespace}.{each}" for each in _SUFFIXES)))
        clients = await self._bundle(cdi_names.UPLOAD_CLIENT_BUNDLE)
        pair = await self._issued(leaf, cdi_names.UPLOAD_SERVER_SIGNER)
        return {**pair, CLIENT_AUTHORITY_KEY: _encoded(clients.encode())}

    async def issue_client(self, name: str) -> dict[str, str]:
        """A client's certificate and key, encoded as in secrets.

        Raises NoAuthority, BadLifetime, StatusError, ConnectionFailed.
        """
        return await self._issued(Leaf(name, is_client=True), cdi_names.UPLOAD_CLIENT_SIGNER)

    async def server_authority(self) -> str:
        """Whom clients trust as upload servers (PEM). Raises NoAuthority, StatusError, ConnectionFailed."""
        return await self._bundle(cdi_names.UPLOAD_SERVER_BUNDLE)

    async def _issued(self, leaf: Leaf, signer: str) -> dict[str, str]:
        lifetime = lifetimes(self._config()).of(is_client=leaf.is_client)
        authority = pair_of(await self._client.get(SECRETS, signer, self._namespace))
        if authority is None:
            raise NoAuthority(f"secret {self._namespace}/{signer} has no certificate yet")
        pair = issue(leaf, authority, lifetime.duration, datetime.now(UTC))
        return {CERTIFICATE_KEY: _encoded(pair.certificate), PRIVATE_KEY: _encoded(pair.key)}

    async def _bundle(self, name: str) -> str:
        found = await self._client.get(CONFIG_MAPS, name, self._namespace)
        authorities = get_str(get_object(found, "data"), _BUNDLE_KEY)
        if not authorities:
            raise NoAuthority(f"config map {self._namespace}/{name} has no certificate yet")
        return authorities


def first_renewal(wanted: Lifetimes) -> timedelta:
    """How long after it was issued the first certificate is renewed."""
    both = (wanted.of(is_client=False), wanted.of(is_client=True))
    return min(each.duration - each.renew_before for each in both)


def _rfc3339(moment: datetime) -> str:
    return moment.replace(microsecond=0).isoformat().replace("+00:00", "Z")


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()

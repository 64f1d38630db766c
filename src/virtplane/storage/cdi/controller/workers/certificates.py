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
        wanted = lifetimes(self._config()).of(is_client=False)
        secret = await self._client.get(SECRETS, cdi_names.UPLOAD_SERVER_SIGNER, self._namespace)
        bundle = await self._client.get(CONFIG_MAPS, cdi_names.UPLOAD_CLIENT_BUNDLE, self._namespace)
        signer, clients = pair_of(secret), get_str(get_object(bundle, "data"), _BUNDLE_KEY)
        if signer is None or not clients:
            raise NoAuthority(
                f"secret {cdi_names.UPLOAD_SERVER_SIGNER} or config map {cdi_names.UPLOAD_CLIENT_BUNDLE}"
                f" in namespace {self._namespace} has no certificate yet"
            )
        leaf = Leaf(service, dns_names=(service, *(f"{service}.{namespace}.{each}" for each in _SUFFIXES)))
        pair = issue(leaf, signer, wanted.duration, datetime.now(UTC))
        found = {
            CERTIFICATE_KEY: pair.certificate,
            PRIVATE_KEY: pair.key,
            CLIENT_AUTHORITY_KEY: clients.encode(),
        }
        return {name: base64.b64encode(value).decode() for name, value in found.items()}


def first_renewal(wanted: Lifetimes) -> timedelta:
    """How long after it was issued the first certificate is renewed."""
    both = (wanted.of(is_client=False), wanted.of(is_client=True))
    return min(each.duration - each.renew_before for each in both)


def _rfc3339(moment: datetime) -> str:
    return moment.replace(microsecond=0).isoformat().replace("+00:00", "Z")

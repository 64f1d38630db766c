"""The controllers of CDI at work on an API server, in this process."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from tests.support.managers import working

from kubecore.certificates import Leaf, issue, new_authority
from kubecore.client import Client
from kubecore.runtime import Manager
from virtplane.storage.cdi.controller.assembly import add_data_volume_controllers
from virtplane.storage.cdi.controller.config.reconciler import ConfigController
from virtplane.storage.cdi.controller.profiles.reconciler import ProfileController
from virtplane.storage.cdi.controller.settings import Programs, Settings

PROGRAMS = Programs("importer:1", "cloner:1", "uploadserver:1")
_DAY = timedelta(hours=24)


class TestIssuer:
    """Issues the certificates of upload servers and their clients with an authority of its own."""

    __test__ = False

    def __init__(self) -> None:
        self._authority = new_authority("test", 2 * _DAY, datetime.now(UTC))

    def deadline(self) -> str:
        """In the middle of a certificate's life."""
        return (datetime.now(UTC) + _DAY / 2).isoformat()

    async def issue(self, service: str, namespace: str) -> dict[str, str]:
        """A certificate for a service."""
        now, authority = datetime.now(UTC), self._authority
        pair = issue(Leaf(service, dns_names=(f"{service}.{namespace}.svc",)), authority, _DAY, now)
        data = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.certificate}
        return {name: base64.b64encode(value).decode() for name, value in data.items()}

    async def issue_client(self, name: str) -> dict[str, str]:
        """A certificate for a client."""
        pair = issue(Leaf(name, is_client=True), self._authority, _DAY, datetime.now(UTC))
        data = {"tls.crt": pair.certificate, "tls.key": pair.key}
        return {key: base64.b64encode(value).decode() for key, value in data.items()}

    async def server_authority(self) -> str:
        """Whom clients trust."""
        return self._authority.certificate.decode()


class NoProgress:
    """No worker says how far it is."""

    async def percent(self, address: str, owner_uid: str) -> str | None:
        """Nothing."""
        return None


@asynccontextmanager
async def cdi_controllers(client: Client, *, with_settings: bool = True) -> AsyncIterator[Manager]:
    """The controllers while the context lasts; `with_settings` those of CDIConfig and profiles too."""
    manager = Manager(client)
    if with_settings:
        ConfigController(client, manager, "cdi")
        ProfileController(client, manager)
    settings = Settings(manager, PROGRAMS)
    add_data_volume_controllers(client, manager, settings, TestIssuer(), "cdi", NoProgress())
    async with working(manager):
        yield manager

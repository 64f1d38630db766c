"""IPAddress objects: each address of a service shows as an object while the service has it."""

from __future__ import annotations

import ipaddress

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import SERVICES

from .bootstrap.objects import IP_ADDRESSES, ip_address_object
from .registry.admission import AdmissionAttributes
from .registry.context import ObjectWriter


class ServiceAddresses:
    """Keeps IPAddress objects in step with services, so that they exist when a write is answered."""

    def __init__(self, objects: ObjectWriter) -> None:
        self._objects = objects

    def follow(self, attributes: AdmissionAttributes) -> None:
        """Called for each request that is about to be stored."""
        ctx = attributes.ctx
        if ctx.resource != SERVICES or ctx.dry_run or ctx.subresource:
            return
        old = _addresses(attributes.old_object)

        async def settle() -> None:
            current = self._objects.get(SERVICES, ctx.namespace, ctx.name)
            now = _addresses(current)
            for address in now - old:
                await self.show(address, ctx.namespace, ctx.name)
            for address in old - now:
                await self._hide(address)

        ctx.on_commit(settle)

    async def show_all(self) -> None:
        """Create the missing IPAddress objects of stored services."""
        for service in self._objects.list(SERVICES):
            for address in _addresses(service):
                await self.show(address, meta.namespace(service), meta.name(service))

    async def show(self, address: str, namespace: str, name: str) -> None:
        """Create the IPAddress object of one address."""
        if self._objects.exists(IP_ADDRESSES, None, address):
            return
        try:
            await self._objects.create(IP_ADDRESSES, ip_address_object(address, namespace, name))
        except errors.StatusError as error:
            if not errors.is_already_exists(error):
                raise

    async def _hide(self, address: str) -> None:
        with errors.ignoring(404):
            await self._objects.delete(IP_ADDRESSES, None, address)


def _addresses(service: JsonObject | None) -> set[str]:
    spec = (service or {}).get("spec") or {}
    found = spec.get("clusterIPs") or [spec.get("clusterIP")]
    return {str(ipaddress.ip_address(address)) for address in found if address and address != "None"}

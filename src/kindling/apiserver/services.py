"""Where services of the cluster are reached from this process."""

from __future__ import annotations

import secrets

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES

from .registry.admission import ServiceEndpoint
from .registry.context import ObjectReader

_SERVICE_LABEL = "kubernetes.io/service-name"


class ServiceResolver:
    """Resolves services to one of their ready endpoints, or else to their cluster address."""

    def __init__(self, objects: ObjectReader) -> None:
        self._objects = objects

    def resolve(self, namespace: str, name: str, port: int) -> ServiceEndpoint:
        """An address for a service port (number). Raises StatusError (503)."""
        service = self._objects.get(SERVICES, namespace, name)
        if service is None:
            raise errors.service_unavailable(f'service "{name}" not found')
        spec = service.get("spec") or {}
        server_name = f"{name}.{namespace}.svc"
        if spec.get("type") == "ExternalName":
            return ServiceEndpoint(str(spec.get("externalName")), port, server_name)
        found = next((entry for entry in spec.get("ports") or () if entry.get("port") == port), None)
        if found is None:
            raise errors.service_unavailable(f'no service port {port} found for service "{name}"')
        endpoints = self.endpoints(namespace, name, str(found.get("name") or ""))
        if endpoints:
            host, target = secrets.choice(endpoints)
            return ServiceEndpoint(host, target, server_name)
        raise errors.service_unavailable(f'no endpoints available for service "{name}"')

    def endpoints(self, namespace: str, name: str, port_name: str) -> list[tuple[str, int]]:
        """The ready (address, port) pairs of a named service port."""
        pairs: list[tuple[str, int]] = []
        for found in self._objects.list(ENDPOINT_SLICES, namespace):
            if meta.labels(found).get(_SERVICE_LABEL) == name:
                pairs += _of_slice(found, port_name)
        if not pairs:
            endpoints = self._objects.get(ENDPOINTS, namespace, name)
            pairs = _of_endpoints(endpoints or {}, port_name)
        return pairs


def _port(ports: list[JsonObject] | None, name: str) -> int | None:
    for port in ports or ():
        if (port.get("name") or "") == name and isinstance(port.get("port"), int):
            return int(port["port"])
    return None


def _of_slice(found: JsonObject, port_name: str) -> list[tuple[str, int]]:
    port = _port(found.get("ports"), port_name)
    if port is None:
        return []
    return [
        (address, port)
        for endpoint in found.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
        for address in endpoint.get("addresses") or ()
    ]


def _of_endpoints(found: JsonObject, port_name: str) -> list[tuple[str, int]]:
    pairs: list[tuple[str, int]] = []
    for subset in found.get("subsets") or ():
        port = _port(subset.get("ports"), port_name)
        if port is not None:
            pairs += [(address["ip"], port) for address in subset.get("addresses") or ()]
    return pairs

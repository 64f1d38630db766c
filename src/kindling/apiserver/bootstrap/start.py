"""Making the bootstrap objects."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence

from kubecore import errors
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta, times
from kubecore.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    NAMESPACES,
    PRIORITY_CLASSES,
    ROLE_BINDINGS,
    ROLES,
    SERVICES,
    ResourceType,
)

from ..registry.catalog import Catalog
from ..registry.context import ObjectWriter
from . import objects, roles

_AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"


class Bootstrap:
    """Creates the missing default objects in the order of their dependencies."""

    def __init__(self, writer: ObjectWriter, catalog: Catalog) -> None:
        self._writer = writer
        self._catalog = catalog

    async def ensure_all(
        self, *, service_address: str, cidrs: list[str], address: str, port: int, trust: JsonObject
    ) -> None:
        """Make all bootstrap objects. `trust` is the ConfigMap extension-apiserver-authentication."""
        await self._ensure(NAMESPACES, objects.namespaces())
        await self._ensure(PRIORITY_CLASSES, objects.priority_classes())
        for resource, wanted in (
            (CLUSTER_ROLES, roles.cluster_roles()),
            (CLUSTER_ROLE_BINDINGS, roles.cluster_role_bindings()),
            (ROLES, roles.roles()),
            (ROLE_BINDINGS, roles.role_bindings()),
        ):
            await self._ensure(resource, wanted, reconcile=("rules",))
        await self._ensure(objects.SERVICE_CIDRS, [objects.service_cidr(cidrs)])
        if self._catalog.of(objects.SERVICE_CIDRS) is not None:
            await self._writer.modify(objects.SERVICE_CIDRS, None, "kubernetes", _with_second(cidrs))
            await self._writer.modify(objects.SERVICE_CIDRS, None, "kubernetes", _ready)
        await self._ensure(SERVICES, [objects.kubernetes_service(service_address)])
        if not ipaddress.ip_address(address).is_loopback:  # endpoints may not be loopback addresses
            subsets = [objects.kubernetes_endpoints(address, port)]
            await self._ensure(ENDPOINTS, subsets, reconcile=("subsets",))
            slices = [objects.kubernetes_endpoint_slice(address, port)]
            await self._ensure(ENDPOINT_SLICES, slices, reconcile=("endpoints", "ports"))
        await self._ensure(CONFIG_MAPS, [trust], reconcile=("data",))

    async def _ensure(
        self, resource: ResourceType, wanted: Sequence[JsonObject], *, reconcile: Sequence[str] = ()
    ) -> None:
        if self._catalog.of(resource) is None:
            return
        for document in wanted:
            namespace, name = meta.namespace(document) or None, meta.name(document)
            current = self._writer.get(resource, namespace, name)
            try:
                if current is None:
                    await self._writer.create(resource, deep_copy(document))
                elif "aggregationRule" not in document:
                    await self._reconcile(resource, current, document, reconcile)
            except errors.StatusError as error:
                if not errors.is_already_exists(error):
                    raise

    async def _reconcile(
        self, resource: ResourceType, current: JsonObject, wanted: JsonObject, keys: Sequence[str]
    ) -> None:
        if meta.annotations(current).get(_AUTO_UPDATE) == "false":
            return

        def change(obj: JsonObject) -> JsonObject:
            for key in keys:
                if key in wanted:
                    obj[key] = wanted[key]
            return obj

        if any(current.get(key) != wanted.get(key) for key in keys if key in wanted):
            await self._writer.modify(resource, meta.namespace(current) or None, meta.name(current), change)


def _with_second(cidrs: list[str]) -> Callable[[JsonObject], JsonObject | None]:
    """Adds the range of the second family to the default object; nothing else of it may change."""

    def change(found: JsonObject) -> JsonObject | None:
        if found["spec"].get("cidrs") != cidrs[:1]:
            return None
        found["spec"]["cidrs"] = cidrs
        return found

    return change


def _ready(cidr: JsonObject) -> JsonObject | None:
    if (cidr.get("status") or {}).get("conditions"):
        return None
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "",
        "message": "Kubernetes Service CIDR is ready",
        "lastTransitionTime": times.now_rfc3339(),
    }
    cidr["status"] = {"conditions": [condition]}
    return cidr

"""An APIService for each group version that this server serves itself, as kubectl and others expect."""

from __future__ import annotations

import asyncio
import logging

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects import meta, times
from kubecore.resources import API_SERVICES

from ..registry.catalog import Catalog
from ..registry.context import ObjectWriter

_LOG = logging.getLogger(__name__)
_MANAGED = "kube-aggregator.kubernetes.io/automanaged"
_CUSTOM_PRIORITY = (1000, 100)
_PRIORITIES = {
    "": 18000,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "certificates.k8s.io": 17300,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "apiextensions.k8s.io": 16700,
    "admissionregistration.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "node.k8s.io": 16300,
    "discovery.k8s.io": 16200,
    "flowcontrol.apiserver.k8s.io": 16100,
    "resource.k8s.io": 15900,
}
_VERSION_PRIORITIES = {("", "v1"): 1, ("autoscaling", "v2"): 30, ("flowcontrol.apiserver.k8s.io", "v1"): 21}
_DEFAULT_VERSION_PRIORITY = 15


def local_api_service(group: str, version: str) -> JsonObject:
    """The APIService of a group version served here."""
    built_in = group in _PRIORITIES
    minimum, priority = _CUSTOM_PRIORITY
    if built_in:
        minimum = _PRIORITIES[group]
        priority = _VERSION_PRIORITIES.get((group, version), _DEFAULT_VERSION_PRIORITY)
    spec: JsonObject = {"version": version, "groupPriorityMinimum": minimum, "versionPriority": priority}
    if group:
        spec["group"] = group
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {
            "name": f"{version}.{group}",
            "labels": {_MANAGED: "onstart" if built_in else "true"},
        },
        "spec": spec,
    }


def _available() -> JsonObject:
    return {
        "type": "Available",
        "status": "True",
        "reason": "Local",
        "message": "Local APIServices are always available",
        "lastTransitionTime": times.now_rfc3339(),
    }


class LocalGroups:
    """Keeps the APIService objects of this server's own group versions in step with the catalog."""

    def __init__(self, writer: ObjectWriter, catalog: Catalog) -> None:
        self._writer = writer
        self._catalog = catalog
        self._dirty = asyncio.Event()
        self._dirty.set()

    def changed(self) -> None:
        """The catalog, or one of the objects, changed."""
        self._dirty.set()

    async def run(self) -> None:
        """Bring the objects up to date after each change, until cancelled."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await self.synchronize()
            except errors.StatusError as error:
                _LOG.warning("APIServices were not brought up to date", extra={"err": str(error)})

    async def synchronize(self) -> None:
        """Create missing APIServices, and remove those of group versions that are not served any more."""
        catalog = self._catalog
        if catalog.of(API_SERVICES) is None:
            return
        wanted = {
            f"{version}.{group}": (group, version)
            for group in catalog.groups()
            for version in catalog.versions(group)
        }
        present = {meta.name(obj): obj for obj in self._writer.list(API_SERVICES)}
        for name, (group, version) in wanted.items():
            if name not in present:
                await self._make(group, version)
        for name, obj in present.items():
            managed = meta.labels(obj).get(_MANAGED)
            if managed and name not in wanted and not (obj.get("spec") or {}).get("service"):
                await self._writer.delete(API_SERVICES, None, name)

    async def _make(self, group: str, version: str) -> None:
        created = await self._writer.create(API_SERVICES, local_api_service(group, version))

        def available(obj: JsonObject) -> JsonObject:
            obj["status"] = {"conditions": [_available()]}
            return obj

        await self._writer.modify(API_SERVICES, None, meta.name(created), available)

"""The controller with its watches: what runs once there is a CDI object."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from prometheus_client import Gauge

from kubecore import resources
from kubecore.certificates import utc_now
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.runtime import Controller, EventRecorder, Key, Manager
from kubecore.sharing import with_shared_parts
from virtplane.api import resources as api
from virtplane.operators.cdi.controller import Caches, CdiController
from virtplane.operators.cdi.product import PRODUCT, Settings

WATCHED: tuple[ResourceType, ...] = (
    resources.CUSTOM_RESOURCE_DEFINITIONS,
    resources.CLUSTER_ROLES,
    resources.CLUSTER_ROLE_BINDINGS,
    resources.API_SERVICES,
    resources.MUTATING_WEBHOOK_CONFIGURATIONS,
    resources.VALIDATING_WEBHOOK_CONFIGURATIONS,
    resources.SERVICE_ACCOUNTS,
    resources.ROLES,
    resources.ROLE_BINDINGS,
    resources.SERVICES,
    resources.DEPLOYMENTS,
    resources.SECRETS,
    resources.CONFIG_MAPS,
)
"""Kinds of the operator's objects; a change of one is undone."""


async def run_controller(
    client: Client,
    settings: Settings,
    ready: Gauge,
    *,
    now: Callable[[], datetime] = utc_now,
    components_are_ready: Callable[[], bool] = lambda: True,
) -> None:
    """Reconcile until cancelled."""
    manager = Manager(client)
    cdis = manager.informer(api.CDIS)
    managed = {
        resource: manager.informer(
            resource,
            namespace=settings.namespace if resource.namespaced else None,
            label_selector=PRODUCT.selector,
            transform=with_shared_parts,
        )
        for resource in WATCHED
    }
    async with EventRecorder(client, "operator-controller") as events:
        reconciler = CdiController(
            client,
            Caches(cdis, managed),
            settings,
            events,
            ready=ready,
            now=now,
            components_are_ready=components_are_ready,
        )
        controller = Controller("cdi-operator-controller", reconciler.reconcile, max_delay=30.0)
        controller.watch(cdis)

        def keys(_: JsonObject) -> list[Key]:
            return [meta.key(document) for document in cdis.list()]

        for informer in managed.values():
            controller.watch(informer, keys)
        manager.add(controller)
        await manager.run()

"""The controller with its watches: what runs once there is a HostPathProvisioner."""

from __future__ import annotations

from prometheus_client import Gauge

from kubecore import resources
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.runtime import Controller, EventRecorder, Manager
from virtplane.api import resources as api
from virtplane.operators.hostpath.controller import WATCHED, Caches, HostPathController, every_key
from virtplane.operators.hostpath.product import HOSTPATH, Settings

_NAMESPACED = (
    resources.DAEMON_SETS,
    resources.DEPLOYMENTS,
    resources.JOBS,
    resources.SERVICE_ACCOUNTS,
    resources.ROLES,
    resources.ROLE_BINDINGS,
    resources.SERVICES,
)


async def run_controller(client: Client, settings: Settings, ready: Gauge) -> None:
    """Reconcile until cancelled."""
    manager = Manager(client)
    hpps = manager.informer(api.HOSTPATH_PROVISIONERS)
    managed = {
        resource: manager.informer(
            resource,
            namespace=settings.namespace if resource in _NAMESPACED else None,
            label_selector=HOSTPATH.selector,
        )
        for resource in WATCHED
    }
    async with EventRecorder(client, "operator-controller") as events:
        reconciler = HostPathController(client, Caches(hpps, managed), settings, events, ready)
        controller = Controller("hostpath-provisioner-operator", reconciler.reconcile, max_delay=30.0)
        controller.watch(hpps)

        def keys(_: JsonObject) -> list[tuple[str, str]]:
            return list(every_key(hpps))

        for informer in managed.values():
            controller.watch(informer, keys)
        manager.add(controller)
        await manager.run()

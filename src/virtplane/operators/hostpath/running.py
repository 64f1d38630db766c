"""The controller with its watches: what runs once there is a HostPathProvisioner."""

from __future__ import annotations

from prometheus_client import Gauge

from kubecore import resources
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.runtime import Controller, EventRecorder, Manager
from kubecore.runtime.informer import EventType
from kubecore.sharing import with_shared_parts
from virtplane.api import resources as api
from virtplane.api.storage_labels import CAPACITY_DRIVER
from virtplane.operators.hostpath import room
from virtplane.operators.hostpath.controller import WATCHED, Caches, HostPathController, every_key
from virtplane.operators.hostpath.product import DRIVER, HOSTPATH, Settings

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
            transform=with_shared_parts,
        )
        for resource in WATCHED
    }
    capacities = manager.informer(
        resources.CSI_STORAGE_CAPACITIES,
        namespace=settings.namespace,
        label_selector=f"{CAPACITY_DRIVER}={DRIVER}",
    )
    async with EventRecorder(client, "operator-controller") as events:
        reconciler = HostPathController(client, Caches(hpps, capacities, managed), settings, events, ready)
        controller = Controller("hostpath-provisioner-operator", reconciler.reconcile, max_delay=30.0)
        controller.watch(hpps)

        def keys(_: JsonObject) -> list[tuple[str, str]]:
            return list(every_key(hpps))

        for informer in managed.values():
            controller.watch(informer, keys)
        controller.watch(capacities, keys, _changes_fullness)
        manager.add(controller)
        await manager.run()


def _changes_fullness(event: EventType, old: JsonObject | None, new: JsonObject) -> bool:
    """Whether a pool has become full, or is no longer; how much exactly is left is of no interest."""
    was = old is not None and room.is_full(old)
    return was != (event != "DELETED" and room.is_full(new))

"""Reconciles the HostPathProvisioner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import Gauge

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.json import JsonObject, deep_copy, get_int, get_list, get_object, get_str
from kubecore.objects import meta, times
from kubecore.objects.structs import UnfitDocument, decode
from kubecore.resources import ResourceType
from kubecore.runtime import DONE, EventRecorder, Key, RequeueAfter, Result
from kubecore.runtime.informer import Informer
from virtplane.api import resources as api
from virtplane.api.hostpathprovisioner_v1beta1.hostpathprovisioner import HostPathProvisionerSpec
from virtplane.operators.hostpath import cluster_objects, driver, policies, rights, room, status
from virtplane.operators.hostpath.poolcontroller import PoolNotReady, Pools
from virtplane.operators.hostpath.product import (
    CSI_NAME,
    FINALIZER,
    HOSTPATH,
    LEGACY_ACCOUNT,
    NAME,
    SNAPSHOTTING,
    Settings,
    with_last_applied,
)
from virtplane.operators.kit.apply import Applier
from virtplane.operators.kit.heartbeats import without_heartbeats
from virtplane.operators.kit.removal import tell_of_wait
from virtplane.operators.kit.status import AVAILABLE, PROGRESSING

RETRY_SECONDS = 1.0
OWN_KINDS = (
    resources.CSI_DRIVERS,
    resources.JOBS,
    cluster_objects.CONSTRAINTS,
    cluster_objects.SERVICE_MONITORS,
    cluster_objects.PROMETHEUS_RULES,
)
WATCHED: tuple[ResourceType, ...] = (
    resources.DAEMON_SETS,
    resources.DEPLOYMENTS,
    resources.JOBS,
    resources.SERVICE_ACCOUNTS,
    resources.CLUSTER_ROLES,
    resources.CLUSTER_ROLE_BINDINGS,
    resources.ROLES,
    resources.ROLE_BINDINGS,
    resources.CSI_DRIVERS,
    resources.SERVICES,
    resources.VALIDATING_ADMISSION_POLICIES,
    resources.VALIDATING_ADMISSION_POLICY_BINDINGS,
)
"""Kinds of the operator's objects; a change of one is undone."""


class ReconcileFailed(Exception):
    """A pass ended early; it is repeated."""


@dataclass(frozen=True, slots=True)
class Caches:
    """What the operator watches."""

    hpps: Informer
    capacities: Informer
    managed: dict[ResourceType, Informer]


class HostPathController:
    """Brings what one HostPathProvisioner wants into being; with two of them, nothing."""

    def __init__(
        self, client: Client, caches: Caches, settings: Settings, events: EventRecorder, ready: Gauge
    ) -> None:
        self._client = client
        self._caches = caches
        self._settings = settings
        self._events = events
        self._ready = ready
        self._applier = Applier(client, HOSTPATH, caches.managed, OWN_KINDS)
        self._pools = Pools(client, settings, caches.managed[resources.DEPLOYMENTS])

    async def reconcile(self, key: Key) -> Result:
        """One pass over the object. Raises ReconcileFailed, StatusError."""
        found = self._caches.hpps.list()
        if len(found) > 1:
            raise ReconcileFailed(f"there should be a single hostpath provisioner, {len(found)} items found")
        hpp = self._caches.hpps.get(*key)
        if hpp is None:
            return DONE
        self._measure(get_object(hpp, "status"))
        if meta.is_being_deleted(hpp):
            return await self._remove(hpp)
        return await self._bring(await self._with_finalizer(hpp))

    # Bringing about.

    async def _bring(self, hpp: JsonObject) -> Result:
        running = self._settings.version
        now = times.now_rfc3339()
        current = {
            **get_object(hpp, "status"),
            "operatorVersion": running,
            "targetVersion": running,
        }
        observed = get_str(current, "observedVersion")
        try:
            upgrade = status.check_upgrade(observed, running)
        except status.Downgraded as error:
            raise ReconcileFailed(str(error)) from error
        if not observed and not status.is_condition(current, PROGRESSING):
            current = status.deploying(current, now)
            hpp = await self._write_status(hpp, current)
            self._events.event(hpp, "Normal", status.DEPLOY_STARTED, status.DEPLOY_MESSAGE)
        elif upgrade and not status.is_condition(current, "Degraded", reason=status.UPGRADE_STARTED):
            current = status.upgrading(current, running, now)
            hpp = await self._write_status(hpp, current)
            message = f"Started upgrade to version {running}"
            self._events.event(hpp, "Warning", status.UPGRADE_STARTED, message)
        try:
            spec = decode(HostPathProvisionerSpec, get_object(hpp, "spec"))
            await self._apply_all(hpp, spec)
            current["storagePoolStatuses"] = await self._pools.statuses(hpp, spec)
        except PoolNotReady as error:
            await self._fail(hpp, current, status.POOL_NOT_READY, str(error))
            raise ReconcileFailed(str(error)) from error
        except (errors.StatusError, UnfitDocument, ReconcileFailed) as error:
            message = f"Unable to successfully reconcile: {error}"
            await self._fail(hpp, current, status.FAILED, message)
            self._events.event(hpp, "Warning", status.FAILED, message)
            raise
        current = await self._with_full_pools(hpp, current, spec, now)
        await self._report(hpp, current, now)
        return DONE

    async def _apply_all(self, hpp: JsonObject, spec: HostPathProvisionerSpec) -> None:
        settings, legacy = self._settings, spec.path_config is not None
        await self._remove_others(hpp, legacy=legacy)
        snapshots = SNAPSHOTTING in spec.feature_gates
        # Upstream writes the DaemonSets first: their pods are refused until their account exists.
        for document in (
            *policies.volume_restriction(settings),
            *rights.accounts(settings, legacy=legacy),
            *rights.cluster_rights(settings, legacy=legacy, snapshots=snapshots),
            *rights.namespace_rights(settings),
            cluster_objects.csi_driver(settings),
        ):
            await self._apply(hpp, document)
        if legacy:
            await self._apply_daemon_set(hpp, driver.legacy_daemon_set(hpp, settings))
        await self._apply_daemon_set(hpp, driver.csi_daemon_set(hpp, settings))
        await self._pools.reconcile(hpp, spec, lambda document: self._apply(hpp, document))
        if await self._serves(cluster_objects.CONSTRAINTS):
            for document in cluster_objects.constraints(settings, legacy=legacy):
                await self._apply(hpp, document)
        if await self._serves(cluster_objects.PROMETHEUS_RULES):
            for document in cluster_objects.monitoring(settings):
                await self._apply(hpp, document)
        await self._pools.remove_finished_jobs()

    async def _remove_others(self, hpp: JsonObject, *, legacy: bool) -> None:
        """Remove what earlier versions or another configuration left."""
        kept = {CSI_NAME, NAME} if legacy else {CSI_NAME}
        for document in self._caches.managed[resources.DAEMON_SETS].list():
            if meta.name(document) not in kept and meta.is_owned_by(document, hpp):
                await self._applier.delete(document)
        if not legacy:
            for document in (
                *rights.cluster_rights(self._settings, legacy=True, snapshots=False),
                *rights.accounts(self._settings, legacy=True),
            ):
                if meta.name(document) in (NAME, LEGACY_ACCOUNT) and self._live(document) is not None:
                    await self._applier.delete(document)

    async def _apply_daemon_set(self, hpp: JsonObject, document: JsonObject) -> None:
        """Write a DaemonSet; one with another selector is deleted first, for that cannot be changed."""
        live = self._live(document)
        wanted = get_object(document, "spec", "selector", "matchLabels")
        if live is not None and get_object(live, "spec", "selector", "matchLabels") != wanted:
            await self._applier.delete(document)
            raise ReconcileFailed("DaemonSet with extra selector labels spotted, cleaning up and requeueing")
        await self._apply(hpp, document)

    async def _apply(self, hpp: JsonObject, document: JsonObject) -> None:
        """Write an object if it is not as it should be, and tell so in events."""
        name, exists = meta.name(document), self._live(document) is not None
        try:
            written = await self._applier.apply(with_last_applied(document))
        except errors.StatusError as error:
            verb = "update" if exists else "create"
            message = f"Failed to {verb} resource {name}, {error}"
            self._events.event(hpp, "Warning", f"{verb.capitalize()}ResourceFailed", message)
            raise
        if written:
            verb = "update" if exists else "create"
            message = f"Successfully {verb}d resource *v1.{document['kind']} {name}"
            self._events.event(hpp, "Normal", f"{verb.capitalize()}ResourceSuccess", message)

    # Reporting.

    async def _report(self, hpp: JsonObject, current: JsonObject, now: str) -> None:
        names = (CSI_NAME, NAME) if get_object(hpp, "spec").get("pathConfig") else (CSI_NAME,)
        daemon_sets = self._caches.managed[resources.DAEMON_SETS]
        ready = all(_is_ready(daemon_sets.get(self._settings.namespace, name)) for name in names)
        if ready:
            if not status.is_condition(current, AVAILABLE) or status.is_condition(current, "Degraded"):
                self._events.event(hpp, "Normal", "ProvisionerHealthy", "Provisioner Healthy")
            current = status.healthy({**current, "observedVersion": self._settings.version}, now)
        elif get_str(current, "observedVersion") == self._settings.version:
            current = status.degraded(current, now)
        await self._write_status(hpp, current)
        self._measure(current)

    async def _with_full_pools(
        self, hpp: JsonObject, current: JsonObject, spec: HostPathProvisionerSpec, now: str
    ) -> JsonObject:
        """Tell administrators which pools are full, and that none is any more. Raises StatusError."""
        full: list[str] = []
        if any(room.is_full(each) for each in self._caches.capacities.list()):
            classes = get_list(await self._client.list(resources.STORAGE_CLASSES), "items")
            shared = [pool.name for pool in spec.storage_pools if driver.is_shared(pool)]
            full = room.full_pools(self._caches.capacities.list(), classes, shared)
        before, text = status.message_of(current, status.POOL_FULL), room.message(full)
        if text and text != before:
            self._events.event(hpp, "Warning", status.POOL_FULL, text)
        elif before and not text:
            self._events.event(hpp, "Normal", "StoragePoolHasRoom", "No storage pool is full any more")
        return status.with_full_pools(current, text, now)

    async def _fail(self, hpp: JsonObject, current: JsonObject, reason: str, message: str) -> None:
        await self._write_status(hpp, status.failed(current, reason, message, times.now_rfc3339()))

    async def _write_status(self, hpp: JsonObject, wanted: JsonObject) -> JsonObject:
        if without_heartbeats(wanted) == without_heartbeats(get_object(hpp, "status")):
            return hpp
        patch = {"status": wanted}
        return await self._client.patch(api.HOSTPATH_PROVISIONERS, meta.name(hpp), patch, type="merge")

    def _measure(self, current: JsonObject) -> None:
        if status.is_condition(current, AVAILABLE):
            self._ready.set(1)
        elif not status.is_condition(current, PROGRESSING):
            self._ready.set(0)

    async def _with_finalizer(self, hpp: JsonObject) -> JsonObject:
        document = deep_copy(hpp)
        if not meta.add_finalizer(document, FINALIZER):
            return document
        patch = {"metadata": {"finalizers": meta.finalizers(document)}}
        return await self._client.patch(api.HOSTPATH_PROVISIONERS, meta.name(hpp), patch, type="merge")

    # Removing.

    async def _remove(self, hpp: JsonObject) -> Result:
        """Unmount pools, then delete all that is not owned. Volumes and claims stay."""
        if FINALIZER not in meta.finalizers(hpp):
            return DONE
        if left := await self._pools.remove(hpp):
            tell_of_wait(self._events, hpp, left)
            return RequeueAfter(RETRY_SECONDS)
        settings = self._settings
        unowned: list[JsonObject] = []
        if await self._serves(cluster_objects.CONSTRAINTS):
            unowned += cluster_objects.constraints(settings, legacy=True)
        if await self._serves(cluster_objects.PROMETHEUS_RULES):
            unowned += cluster_objects.monitoring(settings)
        unowned += rights.cluster_rights(settings, legacy=True, snapshots=True)
        unowned += rights.namespace_rights(settings)
        unowned += rights.accounts(settings, legacy=True)
        unowned.append(cluster_objects.csi_driver(settings))
        unowned += policies.volume_restriction(settings)
        for document in unowned:
            await self._applier.delete(document)
        gone = deep_copy(hpp)
        meta.remove_finalizer(gone, FINALIZER)
        patch = {"metadata": {"finalizers": meta.finalizers(gone) or None}}
        await self._client.patch(api.HOSTPATH_PROVISIONERS, meta.name(hpp), patch, type="merge")
        self._ready.set(-1)
        return DONE

    # Reading.

    def _live(self, document: JsonObject) -> JsonObject | None:
        informer = self._caches.managed.get(self._applier.resource_of(document))
        return informer.get(meta.namespace(document), meta.name(document)) if informer is not None else None

    async def _serves(self, resource: ResourceType) -> bool:
        """Whether the cluster knows a kind."""
        try:
            await self._client.list(resource)
        except errors.StatusError as error:
            if errors.is_not_found(error):
                return False
            raise
        return True


def every_key(informer: Informer) -> Iterable[Key]:
    """The keys of all HostPathProvisioners."""
    return [("", meta.name(document)) for document in informer.list()]


def _is_ready(daemon_set: JsonObject | None) -> bool:
    """Whether there are pods, and all of them are ready: a selector that matches no node is no success."""
    if daemon_set is None:
        return False
    numbers = get_object(daemon_set, "status")
    if get_int(numbers, "observedGeneration") < get_int(daemon_set, "metadata", "generation"):
        return False
    ready = get_int(numbers, "numberReady")
    return ready > 0 and ready >= get_int(numbers, "desiredNumberScheduled")

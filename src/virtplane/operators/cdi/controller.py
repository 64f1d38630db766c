"""Reconciles the CDI object: one object in, the whole installation out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from prometheus_client import Gauge

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta, times
from kubecore.objects.structs import UnfitDocument, decode
from kubecore.resources import ResourceType
from kubecore.runtime import DONE, EventRecorder, Key, RequeueAfter, Result
from kubecore.runtime.informer import Informer
from virtplane.api import cdi_crds, cdi_labels, cdi_names
from virtplane.api import resources as api
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.operators.cdi import extras, status
from virtplane.operators.cdi.claim import Claim, Holder
from virtplane.operators.cdi.installation import installation, user_patches
from virtplane.operators.cdi.product import DEFAULT_PRIORITY_CLASS, PRODUCT, Parameters, Settings
from virtplane.operators.cdi.removal import Removal
from virtplane.operators.cdi.writing import OWN_KINDS, SelectorChanged, Writing, proxy_authority
from virtplane.operators.kit.apply import Applier
from virtplane.operators.kit.customize import BadCustomization
from virtplane.operators.kit.heartbeats import without_heartbeats
from virtplane.operators.kit.installation import Installation
from virtplane.operators.kit.status import AVAILABLE, DELETING, DEPLOYED, PROGRESSING, is_deployment_ready
from virtplane.storage.cdi.lifetimes import BadLifetime, lifetimes

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
RESYNC_SECONDS = 60.0
"""How often kinds are looked for that others install, and priority classes."""


@dataclass(frozen=True, slots=True)
class Caches:
    """What the operator watches."""

    cdis: Informer
    managed: dict[ResourceType, Informer]


class CdiController:
    """Brings what the CDI object wants into being. Of several objects the first counts."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        settings: Settings,
        events: EventRecorder,
        *,
        ready: Gauge,
        now: Callable[[], datetime],
        components_are_ready: Callable[[], bool],
    ) -> None:
        """`components_are_ready` says so of those in this process; in the compact layout there are no others.

        `ready` is the metric of the object's state.
        """
        self._client = client
        self._caches = caches
        self._settings = settings
        self._events = events
        self._ready = ready
        self._now = now
        self._components_are_ready = components_are_ready
        self._definitions = cdi_crds.custom_resource_definitions()
        self._claim = Claim(client, settings.namespace)
        self._removal = Removal(client, settings, events)
        self._routes = extras.Routes(client, settings.namespace, events)

    async def reconcile(self, key: Key) -> Result:
        """One pass over the object. Raises StatusError, ConnectionFailed."""
        cdi = self._caches.cdis.get(*key)
        if cdi is None:
            return DONE
        self._measure(get_object(cdi, "status"))
        holder = await self._claim.holder(cdi)
        if meta.is_being_deleted(cdi):
            return await self._remove(cdi, holder)
        if holder is Holder.DEPARTED:
            await self._claim.clear()
            return RequeueAfter(RETRY_SECONDS)
        if holder is Holder.NOBODY and get_str(cdi, "status", "phase") == status.ERROR:
            await self._reject(cdi, status.ILLEGAL_PHASE)
            return DONE
        if holder is Holder.NOBODY and not await self._claim.take(cdi):
            return RequeueAfter(RETRY_SECONDS)
        if holder is Holder.ANOTHER:
            await self._reject(cdi, status.UNWANTED)
            return DONE
        try:
            cdi = await self._begin(await self._prepare(cdi))
            return await self._install(cdi)
        except status.Downgraded as error:
            logger.error("CDI %s is left as it is: %s", meta.name(cdi), error)
            return DONE
        except SelectorChanged as error:
            logger.info("CDI %s: %s", meta.name(cdi), error)
            return RequeueAfter(RETRY_SECONDS)
        except (BadCustomization, BadLifetime, UnfitDocument) as error:
            message = f"Unable to create all resources: {error}"
            await self._write_status(cdi, status.unrenderable(get_object(cdi, "status"), message, _now()))
            return DONE

    # Steps.

    async def _prepare(self, cdi: JsonObject) -> JsonObject:
        """Set the finalizer, and let the object say what CDIConfig is."""
        document = deep_copy(cdi)
        patch: JsonObject = {}
        if meta.add_finalizer(document, cdi_labels.OPERATOR_FINALIZER):
            patch["finalizers"] = meta.finalizers(document)
        spec: JsonObject = {}
        if cdi_labels.CONFIG_AUTHORITY not in meta.annotations(cdi):
            patch["annotations"] = {cdi_labels.CONFIG_AUTHORITY: ""}
            spec = await self._config_to_keep(cdi)
        if not patch:
            return cdi
        patch["resourceVersion"] = meta.resource_version(cdi)
        return await self._client.patch(api.CDIS, meta.name(cdi), {"metadata": patch, **spec}, type="merge")

    async def _config_to_keep(self, cdi: JsonObject) -> JsonObject:
        """The settings of a CDIConfig that is older than the object's say over it."""
        if get_object(cdi, "spec").get("config") is not None:
            return {}
        with errors.ignoring(404):
            found = get_object(await self._client.get(api.CDI_CONFIGS, cdi_names.CONFIG), "spec")
            return {"spec": {"config": found}} if found else {}
        return {}

    async def _begin(self, cdi: JsonObject) -> JsonObject:
        """Report the beginning of a deployment or of an upgrade. Raises Downgraded."""
        running, now = self._settings.version, _now()
        before = get_object(cdi, "status")
        current = {**before, "operatorVersion": running, "targetVersion": running}
        phase = get_str(before, "phase")
        is_upgrade = status.check_upgrade(before, running)
        if phase in ("", status.ERROR):
            self._events.event(cdi, "Normal", status.DEPLOY_STARTED, status.DEPLOY_MESSAGE)
            current = status.deploying(current, now)
        elif is_upgrade and phase != status.UPGRADING:
            message = status.upgrade_message(running)
            self._events.event(cdi, "Normal", status.UPGRADE_STARTED, message)
            current = status.upgrading(current, running, now)
        return await self._write_status(cdi, current)

    async def _install(self, cdi: JsonObject) -> Result:
        typed = decode(CDI, cdi)
        lifetime = lifetimes(typed.spec.cert_config)
        writing = self._writing(cdi, typed)
        priority_class = await self._priority_class(typed.spec.priority_class)
        parameters = Parameters(self._settings, typed, priority_class=priority_class)
        # Rights come first: components of this process start as soon as they have certificates.
        await writing.apply(*installation(parameters, self._definitions).foundation)
        plan = await writing.certificates(parameters, lifetime, self._now())
        parameters = replace(parameters, ca_bundle=plan.ca_bundle)
        wanted = installation(parameters, self._definitions)
        monitoring = await writing.monitoring(parameters)
        await writing.apply(*wanted.components)
        if not self._is_ready(wanted):
            await self._report(cdi, is_ready=False)
            return RequeueAfter(RETRY_SECONDS)
        await writing.apply(*wanted.entry)
        await writing.extras(parameters)
        if await extras.serves(self._client, extras.ROUTES, self._settings.namespace):
            await self._publish(writing, parameters, proxy_authority(plan))
        await writing.remove_others([*wanted.foundation, *wanted.components, *wanted.entry, *monitoring])
        await self._report(cdi, is_ready=True)
        until_renewal = (plan.next_renewal - self._now()).total_seconds()
        return RequeueAfter(max(1.0, min(RESYNC_SECONDS, until_renewal)))

    def _writing(self, cdi: JsonObject, typed: CDI) -> Writing:
        managed = self._caches.managed
        applier = Applier(self._client, PRODUCT, managed, OWN_KINDS, user_patches(typed))
        return Writing(applier, managed, self._events, cdi, self._settings.version)

    async def _publish(self, writing: Writing, parameters: Parameters, authority: str) -> None:
        """Keep the Routes to the upload proxy, on OpenShift."""
        if await self._routes.ensure(writing.completed(extras.route(parameters, authority))):
            message = "Successfully ensured upload proxy route exists"
            self._events.event(writing.cdi, "Normal", "CreateResourceSuccess", message)
        await self._routes.inject(authority)

    async def _remove(self, cdi: JsonObject, holder: Holder) -> Result:
        """Remove the installation if it is the object's, and let the object go."""
        if cdi_labels.OPERATOR_FINALIZER not in meta.finalizers(cdi):
            return DONE
        if holder in (Holder.OURS, Holder.NOBODY):
            current = get_object(cdi, "status")
            if get_str(current, "phase") != DELETING:
                cdi = await self._write_status(cdi, {**current, "phase": DELETING})
            if not await self._removal.remove(cdi):
                return RequeueAfter(RETRY_SECONDS)
            self._ready.set(-1)
        gone = deep_copy(cdi)
        meta.remove_finalizer(gone, cdi_labels.OPERATOR_FINALIZER)
        patch = {
            "metadata": {
                "finalizers": meta.finalizers(gone) or None,
                "resourceVersion": meta.resource_version(cdi),
            },
            "status": {"phase": status.DELETED},
        }
        with errors.ignoring(404):
            await self._client.patch(api.CDIS, meta.name(cdi), patch, type="merge")
        return DONE

    # Reading and reporting.

    def _is_ready(self, wanted: Installation) -> bool:
        if self._settings.is_compact and not self._components_are_ready():
            return False
        deployments = self._caches.managed[resources.DEPLOYMENTS]
        return all(is_deployment_ready(deployments.get(*meta.key(each))) for each in wanted.components)

    async def _priority_class(self, wanted: str | None) -> str:
        """The priority class of the components; empty where the cluster does not have it."""
        name = wanted or DEFAULT_PRIORITY_CLASS
        with errors.ignoring(404):
            await self._client.get(resources.PRIORITY_CLASSES, name)
            return name
        return ""

    async def _report(self, cdi: JsonObject, *, is_ready: bool) -> None:
        current = get_object(cdi, "status")
        phase = get_str(current, "phase")
        if is_ready:
            current = status.deployed(current, self._settings.version, _now())
            if phase != DEPLOYED:
                self._events.event(cdi, "Normal", status.COMPLETED, status.COMPLETED_MESSAGE)
        elif phase == DEPLOYED:
            current = status.degraded(current, _now())
        await self._write_status(cdi, current)
        self._measure(current)

    async def _reject(self, cdi: JsonObject, message: str) -> None:
        current = get_object(cdi, "status")
        if get_str(current, "phase") != status.ERROR:
            self._events.event(cdi, "Warning", status.CONFIG_ERROR, message)
        await self._write_status(cdi, status.rejected(current, message, _now()))

    async def _write_status(self, cdi: JsonObject, wanted: JsonObject) -> JsonObject:
        """Write the status, which has no subresource of its own. Raises StatusError where `cdi` is stale."""
        if without_heartbeats(wanted) == without_heartbeats(get_object(cdi, "status")):
            return cdi
        patch = {"metadata": {"resourceVersion": meta.resource_version(cdi)}, "status": wanted}
        return await self._client.patch(api.CDIS, meta.name(cdi), patch, type="merge")

    def _measure(self, current: JsonObject) -> None:
        if status.is_true(current, AVAILABLE):
            self._ready.set(1)
        elif not status.is_true(current, PROGRESSING):
            self._ready.set(0)


def _now() -> str:
    return times.now_rfc3339()

"""Keeps the imports of DataImportCrons, their DataSources and their status."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists
from kubecore.json import JsonObject
from kubecore.objects import times
from kubecore.objects.structs import UnfitDocument, decode, encode
from kubecore.resources import CRON_JOBS, JOBS, PERSISTENT_VOLUME_CLAIMS, ResourceType
from kubecore.runtime import DONE, Controller, EventRecorder, Informer, Key, Manager, RequeueAfter, Result
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names
from virtplane.api import resources as kinds
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.api.cdi_v1beta1.data_import_cron import DataImportCron, DataImportCronStatus
from virtplane.api.cdi_v1beta1.data_source import DataSourceSource
from virtplane.api.cdi_v1beta1.data_volume import DataVolumeStatus
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.cluster.objects import Typed, described, status_patch
from virtplane.storage.cdi.controller.crons import caches, decisions, documents, pollers, sources
from virtplane.storage.cdi.controller.crons.caches import Caches
from virtplane.storage.cdi.controller.crons.cleanup import Cleanup
from virtplane.storage.cdi.controller.crons.decisions import Import, Report, Stage, Target
from virtplane.storage.cdi.controller.crons.documents import Maker
from virtplane.storage.cdi.controller.crons.imports import Imports, NotStarted
from virtplane.storage.cdi.controller.crons.pollers import Pollers
from virtplane.storage.cdi.controller.crons.polling import SourcePoller
from virtplane.storage.cdi.controller.crons.sources import Polling
from virtplane.storage.cdi.controller.datasources import decisions as datasources
from virtplane.storage.cdi.controller.datasources.decisions import Verdict
from virtplane.storage.cdi.controller.datasources.status import status_changes
from virtplane.storage.cdi.controller.deletion import delete_as_read
from virtplane.storage.cdi.controller.installation import active, owner_reference, recommended_labels
from virtplane.storage.csi.parts import members_patch, patch, versioned

logger = logging.getLogger(__name__)

NAME = "dataimportcron-controller"
_ALREADY_MANAGED = "ErrDataSourceAlreadyManaged"
_SOON_SECONDS = 1.0
"""What is being deleted has no event when its finalizers hold it: it is looked at again."""
_RETRY_SECONDS = 60.0
"""After this time a DataVolume that was refused is tried again: rights and quotas have no events here."""


class CronController:
    """Reconciles DataImportCrons.

    `namespace` is CDI's own, where jobs poll; `image` has their program, `commands` say which it is.
    `has_image_streams`: the cluster serves OpenShift's.
    """

    def __init__(
        self,
        client: Client,
        manager: Manager,
        recorder: EventRecorder,
        *,
        namespace: str,
        image: str,
        pull_policy: str = "IfNotPresent",
        commands: Mapping[str, list[str]] = MappingProxyType({}),
        has_image_streams: bool = False,
    ) -> None:
        self._client, self._recorder = client, recorder
        self._caches = Caches(manager, namespace)
        self._imports = Imports(client, self._caches)
        self._cleanup = Cleanup(client, self._caches)
        self._poller = SourcePoller(client, has_image_streams=has_image_streams)
        self._settings = Pollers(image, namespace, pull_policy, commands=commands)
        manager.add(self._controller())

    def _controller(self) -> Controller:
        found, controller = self._caches, Controller(NAME, self.reconcile, workers=3, max_delay=60.0)
        controller.watch(found.crons)
        _watch(controller, found.sources)
        _watch(controller, found.data_volumes)
        _watch(controller, found.claims)
        _watch(controller, found.snapshots)
        controller.watch(found.jobs, lambda job: caches.keys(caches.crons_of_job(job)))
        controller.watch(found.cron_jobs, caches.key_of_cron_job)
        controller.watch(found.installations, self._all)
        controller.watch(found.configs, self._all)
        controller.watch(found.classes, self._all)
        controller.watch(found.profiles, self._all)
        controller.depend(found.snapshot_classes)
        return controller

    def _all(self, _: object) -> list[Key]:
        return [(each.metadata.namespace, each.metadata.name) for each in self._caches.crons.list()]

    async def reconcile(self, key: Key) -> Result:
        """Take one cron further. Raises StatusError, ConnectionFailed."""
        try:
            cron = self._caches.crons.get(*key)
            if cron is None:
                await self._cleanup.of_gone(key)
                return DONE
            installation = active(self._caches.installations)
            if cron.metadata.is_being_deleted or installation is None or self._is_others(cron):
                return DONE
            await self._cleanup.of_earlier(cron)
            settings = self._settings_now(installation)
            await self._ensure_jobs(cron, settings)
            return await self._advance(Maker(cron, settings.labels), settings)
        except UnfitDocument as error:
            logger.error("DataImportCron %s/%s waits until an object is corrected: %s", *key, error)
            return DONE

    def _settings_now(self, installation: CDI) -> Pollers:
        return dataclasses.replace(
            self._settings,
            config=self._caches.config(),
            placement=installation.spec.workload,
            labels=recommended_labels(installation),
            owner=owner_reference(installation),
        )

    def _is_others(self, cron: DataImportCron) -> bool:
        """Whether another cron manages the DataSource; an event says so."""
        namespace, name = cron.metadata.namespace, cron.spec.managed_data_source
        source = self._caches.sources.get(namespace, name)
        label = source.metadata.labels.get(names.CRON, "") if source is not None else ""
        other = self._caches.crons.get(namespace, label) if label else None
        if not decisions.is_managed_by_other(cron, source, other):
            return False
        text = f"DataSource {name} is already managed by DataImportCron {label}"
        self._recorder.event(described(cron), "Warning", _ALREADY_MANAGED, text)
        return True

    async def _ensure_jobs(self, cron: DataImportCron, settings: Pollers) -> None:
        """Have jobs poll the registry. The first one comes first: a CronJob says that there was one."""
        if not cron.spec.schedule or sources.polling(cron) is not Polling.JOB:
            return
        name = cdi_names.cron_job(cron.metadata.name, cron.metadata.uid)
        wanted = pollers.cron_job(cron, settings)
        found = self._caches.cron_jobs.get(settings.namespace, name)
        if found is None:
            await self._create(JOBS, pollers.initial_job(cron, settings))
            await self._create(CRON_JOBS, wanted)
        elif changes := pollers.cron_job_patch(found, wanted):
            await self._client.patch(CRON_JOBS, name, changes, settings.namespace, type="merge")

    async def _advance(self, maker: Maker, settings: Pollers) -> Result:
        cron, target = maker.cron, self._caches.target(maker.cron)
        newest = decisions.current(cron)
        found = (
            self._caches.imported(cron.metadata.namespace, newest.data_volume_name) if newest else Import()
        )
        if await self._leave_outdated(cron, found, target):
            return RequeueAfter(_SOON_SECONDS)
        await self._mark_used(maker, found)
        polled = await self._poller.poll(cron, settings)
        annotations = {**cron.metadata.annotations, **polled.annotations}
        if target.class_name:
            annotations[names.CRON_STORAGE_CLASS] = target.class_name
        now = times.now_rfc3339()
        last_poll = annotations.get(names.LAST_CRON_TIME, "")
        report = decisions.report(cron, found, target, last_poll, now)
        if polled.is_unauthorized:
            report = report.refused().outdated()
        await self._manage_source(maker, found, target, report.status)
        if found.stage is Stage.POPULATED and target.keeps_snapshots:
            await self._imports.keep_as_snapshot(maker, target, found)
        polled_cron = with_annotations(cron, annotations)
        report, retry = await self._import(Maker(polled_cron, maker.recommended), found, target, report)
        if await self._write(cron, annotations, report.written(now)):
            return _sooner(polled.after_seconds, retry)
        await self._poller.forget(cron)
        if found.stage.is_done and self._is_in_use(cron, found):
            await self._imports.collect(cron)
        return _sooner(polled.after_seconds, retry)

    async def _leave_outdated(self, cron: DataImportCron, found: Import, target: Target) -> bool:
        """Remove what must be imported again because class or format have changed; whether that goes on."""
        if found.claim is not None and decisions.is_outdated_pending(cron, found.claim, target):
            await delete_as_read(self._client, PERSISTENT_VOLUME_CLAIMS, found.claim)
            return True
        if decisions.has_changed_class(cron, target):
            digest = sources.desired_digest(cron)
            if digest and not await self._imports.remove_all_of(cron, sources.import_name(cron, digest)):
                return True
            annotations = {**cron.metadata.annotations, names.CRON_STORAGE_CLASS: target.class_name}
            await self._write(cron, annotations, cron.status)
            return True
        if found.stage is not Stage.SNAPSHOT or found.snapshot is None:
            return False
        wanted = self._imports.snapshot_class(target)
        is_other = target.class_name and wanted and found.snapshot.spec.volume_snapshot_class_name != wanted
        if target.keeps_snapshots and not is_other:
            return False
        await self._imports.remove_snapshot(found.snapshot)
        return True

    async def _mark_used(self, maker: Maker, found: Import) -> None:
        """Say of the content that it is the newest, from the moment on that it is."""
        last, newest = maker.cron.status.last_imported_pvc, decisions.current(maker.cron)
        now_used = newest is not None and (last is None or last.name != newest.data_volume_name)
        if found.stage is Stage.POPULATED and found.claim is not None:
            kind = PERSISTENT_VOLUME_CLAIMS
            await self._imports.mark_used(maker, kind, found.claim, now_used=now_used)
        elif found.stage is Stage.SNAPSHOT and found.snapshot is not None:
            await self._imports.mark_used(maker, kinds.VOLUME_SNAPSHOTS, found.snapshot, now_used=now_used)

    async def _import(
        self, maker: Maker, found: Import, target: Target, report: Report
    ) -> tuple[Report, float | None]:
        """Begin the import of a new digest; the report then, and in how many seconds to try again."""
        digest = sources.desired_digest(maker.cron)
        if not decisions.is_new_digest(report.status, digest):
            return report, None
        if found.has_failed and found.stage is Stage.GOING_ON:
            await self._imports.remove(found)
        elif report.status.current_imports and not found.stage.is_done:
            return report.outdated(), None
        try:
            name = await self._imports.start(maker, target, digest)
        except NotStarted as error:
            cron = maker.cron.metadata
            logger.warning("no import of DataImportCron %s/%s: %s", cron.namespace, cron.name, error)
            report = report.refused() if error.unauthorized else report
            return report.outdated(), _RETRY_SECONDS
        return report.started(name, digest), None

    async def _manage_source(
        self, maker: Maker, found: Import, target: Target, status: DataImportCronStatus
    ) -> None:
        """Have the DataSource lead to the newest content; one without the cron's label is left alone."""
        cron, kind = maker.cron, kinds.DATA_SOURCES
        namespace, name = cron.metadata.namespace, cron.spec.managed_data_source
        source = self._caches.sources.get(namespace, name)
        before = encode(source.spec.source) if source is not None else {}
        last = status.last_imported_pvc
        content = before
        if last is not None and found.is_known:
            content = documents.content(last.name, last.namespace, found, target, before)
        if source is None:
            await self._create(kind, documents.data_source(maker, content))
        elif decisions.is_managed(cron, source) and not source.metadata.is_being_deleted:
            before_labels = dict(source.metadata.labels)
            labels, changes = {**before_labels, **maker.labels}, list[JsonObject]()
            if content != before:
                changes.append({"op": "add", "path": "/spec/source", "value": content})
                # The condition of what it led to before says nothing of this.
                leads_to = decode(DataSourceSource, content)
                verdict = _verdict(leads_to, found)
                labels |= verdict.labels
                changes += status_changes(source, leads_to, verdict)
            changes += members_patch("/metadata", {"labels": before_labels}, {"labels": labels})
            await patch(self._client, kind, source, versioned(source, changes))

    def _is_in_use(self, cron: DataImportCron, found: Import) -> bool:
        """Whether the DataSource leads to the newest content, so that older content may go."""
        source = self._caches.sources.get(cron.metadata.namespace, cron.spec.managed_data_source)
        newest = decisions.current(cron)
        if source is None or newest is None or not decisions.is_managed(cron, source):
            return source is not None
        content = source.spec.source
        named = {each.name for each in (content.pvc, content.snapshot) if each is not None}
        return newest.data_volume_name in named

    async def _write(
        self, cron: DataImportCron, annotations: Mapping[str, str], status: DataImportCronStatus
    ) -> bool:
        """Write annotations and status in one; whether there was anything to write."""
        before = {"annotations": dict(cron.metadata.annotations)}
        changes = versioned(cron, members_patch("/metadata", before, {"annotations": dict(annotations)}))
        changes += status_patch(cron, DataImportCronStatus, cron.status, encode(status))
        if changes and not cron.status.conditions:
            changes += _whole_template(cron)
        await patch(self._client, kinds.DATA_IMPORT_CRONS, cron, changes)
        return bool(changes)

    async def _create(self, kind: ResourceType, document: JsonObject) -> None:
        try:
            await self._client.create(kind, document)
        except StatusError as error:
            if not is_already_exists(error):
                raise


def _verdict(content: DataSourceSource, found: Import) -> Verdict:
    """Whether a DataSource that leads to this import can be used."""
    if content.snapshot is not None:
        return datasources.of_snapshot(found.snapshot)
    return datasources.of_claim(found.claim, found.data_volume)


def _whole_template(cron: DataImportCron) -> list[JsonObject]:
    """The operations that give the template its empty members, as clients find it in any CDI's crons."""
    template = cron.spec.template
    missing = {"metadata": template.metadata == ObjectMeta(), "status": template.status == DataVolumeStatus()}
    return [
        {"op": "add", "path": f"/spec/template/{name}", "value": {}} for name, here in missing.items() if here
    ]


def _watch(controller: Controller, informer: Informer[Typed]) -> None:
    """Have events of what is labelled with a cron bring the cron."""
    controller.watch(informer, lambda obj: caches.keys(caches.crons_of(obj)))


def with_annotations(cron: DataImportCron, annotations: Mapping[str, str]) -> DataImportCron:
    """The cron as it will be."""
    return replace(cron, metadata=replace(cron.metadata, annotations=annotations))


def _sooner(first: float | None, second: float | None) -> Result:
    found = [each for each in (first, second) if each is not None]
    return RequeueAfter(min(found)) if found else DONE

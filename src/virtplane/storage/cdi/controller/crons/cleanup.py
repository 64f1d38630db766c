"""What a cron that is gone leaves behind: its jobs, and its imports where it keeps nothing."""

from __future__ import annotations

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.resources import ResourceType
from kubecore.runtime import Key
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names, resources
from virtplane.api.cdi_v1beta1.data_import_cron import DataImportCron
from virtplane.cluster.caches import HasMetadata
from virtplane.storage.cdi.controller.crons.caches import Caches
from virtplane.storage.cdi.controller.deletion import delete_as_read

_Found = list[tuple[ResourceType, HasMetadata]]


class Cleanup:
    """Removes what belongs to a cron no longer. Nothing remembers it but the labels of what is there."""

    def __init__(self, client: Client, caches: Caches) -> None:
        self._client, self._caches = client, caches

    async def of_gone(self, key: Key) -> None:
        """Remove what the cron `key` had. Raises StatusError, ConnectionFailed.

        The cache may be older than what it made, so the server is asked whether the cron is gone.
        """
        found = [*self._jobs(key), *self._imports(key)]
        if found and await self._is_gone(key):
            await self._delete(found)

    async def of_earlier(self, cron: DataImportCron) -> None:
        """Remove the jobs of an earlier cron of the same name. Raises StatusError, ConnectionFailed."""
        name, uid = cron.metadata.name, cron.metadata.uid
        own = {cdi_names.cron_job(name, uid), cdi_names.initial_job(name, uid)}
        key = (cron.metadata.namespace, name)
        found = [(kind, job) for kind, job in self._jobs(key) if job.metadata.name not in own]
        await self._delete(found)

    def _jobs(self, key: Key) -> _Found:
        return [(each.kind, job) for each in self._caches.pollers(key) for job in each.objects]

    def _imports(self, key: Key) -> _Found:
        return [
            (each.kind, obj)
            for each in self._caches.belongings(key)
            for obj in each.objects
            if obj.metadata.labels.get(names.CRON_CLEANUP) == "true"
        ]

    async def _is_gone(self, key: Key) -> bool:
        try:
            await self._client.get(resources.DATA_IMPORT_CRONS, key[1], key[0])
        except StatusError as error:
            if is_not_found(error):
                return True
            raise
        return False

    async def _delete(self, found: _Found) -> None:
        for kind, obj in found:
            await delete_as_read(self._client, kind, obj, propagation_policy="Background")

"""Removing CDI: users' objects while their controllers still work, then the components, then the rest."""

from __future__ import annotations

from dataclasses import replace

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.runtime import EventRecorder
from virtplane.api import cdi_crds, cdi_labels, cdi_names
from virtplane.api import resources as api
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.operators.cdi import extras, monitoring
from virtplane.operators.cdi.installation import installation
from virtplane.operators.cdi.product import PRODUCT, Parameters, Settings
from virtplane.operators.cdi.writing import OWN_KINDS
from virtplane.operators.kit.apply import Applier
from virtplane.operators.kit.removal import Remover, tell_of_wait

_USERS_OBJECTS = (
    api.DATA_IMPORT_CRONS,
    api.DATA_VOLUMES,
    api.OBJECT_TRANSFERS,
    api.DATA_SOURCES,
    api.VOLUME_CLONE_SOURCES,
    api.VOLUME_IMPORT_SOURCES,
    api.VOLUME_UPLOAD_SOURCES,
)
"""Some have finalizers that the controllers remove, so they go first."""
_WORKERS = (cdi_labels.IMPORTER, cdi_labels.UPLOAD_SERVER, cdi_labels.CLONE_SOURCE)


class Removal:
    """Removes everything that was installed; every call does as much as can be done now."""

    def __init__(self, client: Client, settings: Settings, events: EventRecorder) -> None:
        self._client = client
        self._settings = settings
        self._events = events
        self._applier = Applier(client, PRODUCT, kinds=OWN_KINDS)
        self._remover = Remover(client, self._applier, _USERS_OBJECTS)

    async def remove(self, cdi: JsonObject) -> bool:
        """Whether nothing is left. Raises StatusError, ConnectionFailed."""
        # Another layout may have left Deployments, and the spec may be unreadable: names do not depend on it.
        parameters = Parameters(replace(self._settings, layout="distributed"), CDI())
        await self._extras(parameters)
        try:
            installed = installation(parameters, _definitions())
            left = await self._remover.remove(installed, self._settings.namespace)
            if left:
                tell_of_wait(self._events, cdi, left)
                return False
            await self._workers()
        except errors.StatusError as error:
            message = f"Failed to delete worker resources {error}"
            self._events.event(cdi, "Warning", "DeleteResourceFailed", message)
            raise
        with errors.ignoring(404):
            await self._client.delete(resources.SECRETS, cdi_names.SIGNING_KEY, self._settings.namespace)
        for message in (
            f"Deleted deployment {cdi_names.CONTROLLER} successfully",
            "Deleted worker resources successfully",
        ):
            self._events.event(cdi, "Normal", "DeleteResourceSuccess", message)
        return True

    async def _extras(self, parameters: Parameters) -> None:
        wanted = monitoring.monitoring(parameters)
        wanted += [extras.constraints(parameters), *extras.populators(parameters)]
        wanted.append(extras.route(parameters, ""))
        for document in wanted:
            await self._applier.delete(document)

    async def _workers(self) -> None:
        """Delete the pods that still move bytes, and their services."""
        selector = f"{cdi_labels.COMPONENT} in ({','.join(_WORKERS)})"
        for resource in (resources.PODS, resources.SERVICES):
            await self._delete_all(resource, selector)

    async def _delete_all(self, resource: ResourceType, selector: str) -> None:
        found = await self._client.list(resource, label_selector=selector)
        for document in found.get("items") or []:
            with errors.ignoring(404):
                await self._client.delete(resource, meta.name(document), meta.namespace(document))


def _definitions() -> list[JsonObject]:
    """What deleting needs of the definitions: their names."""
    kind = resources.CUSTOM_RESOURCE_DEFINITIONS
    return [
        {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": definition.resource.group_resource},
        }
        for definition in cdi_crds.DEFINITIONS
    ]

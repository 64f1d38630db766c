"""The reviews of the KubeVirt object."""

from __future__ import annotations

from kubecore import errors
from kubecore.client import Client
from kubecore.json import JsonObject, get_object, get_str
from kubecore.resources import ResourceType
from virtplane.api import resources as api
from virtplane.operators.kubevirt import validation
from virtplane.serving.responses import Response

_BLOCKING: tuple[tuple[ResourceType, str], ...] = (
    (api.VIRTUAL_MACHINE_INSTANCES, "Virtual Machine Instances"),
    (api.VIRTUAL_MACHINES, "Virtual Machines"),
    (api.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS, "Virtual Machine Instance Replica Sets"),
)


class KubeVirtReviews:
    """Answers admission reviews of the KubeVirt object."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def review(self, path: str, request: JsonObject) -> Response:
        """The answer to a request at a webhook's path. Raises StatusError, UnfitDocument."""
        if path == "/kubevirt-validate-create":
            existing = (await self._client.list(api.KUBEVIRTS)).get("items") or []
            return validation.review_create(get_object(request, "object"), len(existing))
        if path == "/kubevirt-validate-update":
            return await self._review_update(request)
        if path == "/kubevirt-validate-delete":
            return await self._review_delete(request)
        return Response.plain(f"unknown webhook {path}")

    async def _review_update(self, request: JsonObject) -> Response:
        new, old = get_object(request, "object"), get_object(request, "oldObject")
        refusal = validation.unreadable(new)
        if refusal is not None:
            return refusal
        found = []
        for resource, probe in validation.placement_probes(new, old):
            try:
                await self._client.create(resource, probe, get_str(request, "namespace"), dry_run=True)
            except errors.StatusError as error:
                found.append(error.message)
        return validation.review_update(new, old, found)

    async def _review_delete(self, request: JsonObject) -> Response:
        kubevirt = get_object(request, "oldObject")
        if not kubevirt.get("metadata"):
            kubevirt = await self._client.get(
                api.KUBEVIRTS, get_str(request, "name"), get_str(request, "namespace")
            )
        present = []
        if validation.blocks_removal(kubevirt):
            for resource, what in _BLOCKING:
                if (await self._client.list(resource, limit=1)).get("items"):
                    present.append(what)
        return validation.review_delete(kubevirt, present)

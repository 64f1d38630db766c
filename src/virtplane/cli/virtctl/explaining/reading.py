"""Objects that are read with the rights of an administrator."""

from __future__ import annotations

from collections.abc import Iterable

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_object
from kubecore.resources import ResourceType
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import claim_name
from virtplane.cli.virtctl.explaining.room import Node


async def found_object(
    client: Client, kind: ResourceType, name: str, namespace: str | None = None
) -> JsonObject | None:
    """An object; None if it does not exist. Raises StatusError."""
    try:
        return await client.get(kind, name, namespace)
    except StatusError as error:
        if not is_not_found(error):
            raise
        return None


async def held_by(client: Client, instance: VirtualMachineInstance, nodes: Iterable[Node]) -> str:
    """A claim of the guest whose volume none of these nodes reaches; empty if there is none.

    Raises StatusError.
    """
    reachable = list(nodes)
    for name in filter(None, map(claim_name, instance.spec.volumes)):
        claim = await found_object(
            client, resources.PERSISTENT_VOLUME_CLAIMS, name, instance.metadata.namespace
        )
        volume_name = get_object(claim, "spec").get("volumeName")
        volume = (
            await found_object(client, resources.PERSISTENT_VOLUMES, volume_name) if volume_name else None
        )
        required = get_object(volume, "spec", "nodeAffinity").get("required")
        if required is not None and not any(node.is_selected(required) for node in reachable):
            return name
    return ""

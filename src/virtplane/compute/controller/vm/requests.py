"""Which requests of users to start and stop are fulfilled."""

from __future__ import annotations

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_list
from kubecore.objects import meta
from virtplane.api import resources as kinds
from virtplane.compute.controller.vm import strategy


async def open_requests(client: Client, vm: JsonObject, cached: JsonObject | None) -> list[JsonObject]:
    """The requests that are not yet fulfilled.

    Users ask by what they see, and the cache may show an older instance or none yet: before a request is
    dropped, the server is asked for the instance.
    """
    remaining = strategy.open_requests(vm, cached)
    if remaining == get_list(vm, "status", "stateChangeRequests"):
        return remaining
    return strategy.open_requests(vm, await _live_instance(client, vm))


async def _live_instance(client: Client, vm: JsonObject) -> JsonObject | None:
    try:
        vmi = await client.get(kinds.VIRTUAL_MACHINE_INSTANCES, meta.name(vm), meta.namespace(vm))
    except StatusError as error:
        if is_not_found(error):
            return None
        raise
    return vmi if meta.is_controlled_by(vmi, vm) else None

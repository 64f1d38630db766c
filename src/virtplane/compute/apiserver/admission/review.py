"""The entry point: finds the webhook by its path, and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from kubecore import errors
from kubecore.json import JsonObject
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.admission.kinds import instance, machine
from virtplane.compute.apiserver.admission.lookups import Lookups
from virtplane.compute.apiserver.admission.request import Refused, Request
from virtplane.compute.apiserver.admission.response import Response

Webhook = Callable[[Request], Awaitable[Response]]

WEBHOOKS: Mapping[str, Webhook] = {
    "/virtualmachineinstances-mutate": instance.mutate,
    "/virtualmachineinstances-validate-create": instance.validate_create,
    "/virtualmachineinstances-validate-update": instance.validate_update,
    "/virtualmachines-mutate": machine.mutate,
    "/virtualmachines-validate": machine.validate,
}
"""Webhooks by path, sorted."""


async def review(path: str, request: JsonObject, config: ClusterConfig, lookups: Lookups) -> Response:
    """Answer one AdmissionRequest that came to `path`."""
    webhook = WEBHOOKS.get(path)
    if webhook is None:
        return Response.plain(f"there is no webhook {path}", 404)
    try:
        return await webhook(Request.of(request, config, lookups))
    except Refused as refused:
        return refused.response
    except errors.StatusError as error:
        return Response.plain(error.message)

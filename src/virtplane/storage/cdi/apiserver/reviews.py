"""The webhooks by their paths."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from kubecore import errors
from kubecore.json import JsonObject, get_object
from kubecore.objects.structs import UnfitDocument
from virtplane.api.fields.kinds import KINDS
from virtplane.api.fields.warnings import unsupported_warnings
from virtplane.serving.responses import Response
from virtplane.storage.cdi.apiserver import (
    claims,
    crons,
    data_volumes,
    installation,
    mutation,
    populators,
    transfers,
)
from virtplane.storage.cdi.apiserver.answers import Refused
from virtplane.storage.cdi.apiserver.requests import Request, Services

Webhook = Callable[[Request, Services], Awaitable[Response]]

FIELDS_PATH = "/fields-warn"
"""A webhook that CDI does not have: it warns of fields without effect, of kinds that CDI does not review."""
WARNED = ("CDI", "CDIConfig", "OpenstackVolumePopulator", "OvirtVolumePopulator")
"""Kinds with fields without effect that only this webhook reviews."""
REVIEWED = ("DataVolume", "VolumeImportSource")
"""Kinds with fields without effect that CDI's own webhooks review."""


async def warn(request: Request, services: Services) -> Response:
    """Lets the object pass, with a warning for each field without effect."""
    kind = str(get_object(request.raw, "kind").get("kind", ""))
    if kind not in WARNED:
        return Response.allow()
    found = unsupported_warnings(KINDS[kind], get_object(request.new, "spec"))
    return replace(Response.allow(), warnings=tuple(found))


def _warning(validate: Webhook) -> Webhook:
    """The webhook `validate`, with a warning for each field without effect of what may be created.

    Later the sources stay as they are.
    """

    async def validate_and_warn(request: Request, services: Services) -> Response:
        response = await validate(request, services)
        table = KINDS.get(str(get_object(request.raw, "kind").get("kind", "")))
        if not response.allowed or table is None or request.operation != "CREATE":
            return response
        found = unsupported_warnings(table, get_object(request.new, "spec"))
        return replace(response, warnings=(*response.warnings, *found))

    return validate_and_warn


WEBHOOKS: Mapping[str, Webhook] = {
    "/cdi-validate": installation.validate,
    "/dataimportcron-validate": crons.validate,
    "/datavolume-mutate": mutation.mutate,
    "/datavolume-validate": _warning(data_volumes.validate),
    FIELDS_PATH: warn,
    "/objecttransfer-validate": transfers.validate,
    "/populator-validate": _warning(populators.validate),
    "/pvc-mutate": claims.mutate,
}


async def review(path: str, request: JsonObject, services: Services) -> Response:
    """Answer one AdmissionRequest that came to `path`."""
    webhook = WEBHOOKS.get(path)
    if webhook is None:
        return Response.plain(f"there is no webhook {path}", 404)
    too_large = Response.of_too_many_values(request)
    if too_large is not None:
        return too_large
    try:
        return await webhook(Request(request), services)
    except Refused as refused:
        return refused.response
    except errors.StatusError as error:
        return Response.plain(error.message)
    except UnfitDocument as error:
        return Response.plain(str(error))

"""/cdi-validate: CDI is not deleted with DataVolumes that it is to keep."""

from __future__ import annotations

from kubecore.objects import meta
from kubecore.objects.structs import decode
from virtplane.api import cdi_labels, resources
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.serving.responses import Response
from virtplane.storage.cdi.apiserver.requests import DELETE, Request, Services

_BLOCK = "BlockUninstallIfWorkloadsExist"
_COUNTED = 2
"""CDI counts no further."""


async def validate(request: Request, services: Services) -> Response:
    """Whether the installation may be deleted. Raises Refused, StatusError, UnfitDocument."""
    request.expect(resources.CDIS.group, resources.CDIS.plural)
    if request.operation != DELETE:
        return Response.allow()
    document = request.old or await services.lookups.get(resources.CDIS, request.name)
    if document is None:
        return Response.plain("cannot derive deleted resource")
    cdi = decode(CDI, document)
    if not cdi.status.phase or cdi.status.phase == "Error" or cdi.spec.uninstall_strategy != _BLOCK:
        return Response.allow()
    found = await services.lookups.list(resources.DATA_VOLUMES)
    kept = [item for item in found if cdi_labels.CRON not in meta.labels(item)]
    if not kept:
        return Response.allow()
    return Response.plain(
        f"rejecting the uninstall request, since there are still {min(len(kept), _COUNTED)} DataVolumes"
        " present. Either delete all DataVolumes or change the uninstall strategy before uninstalling CDI"
    )

"""Launcher pods: servers for folders that other webhooks have mounted into them."""

from __future__ import annotations

import logging

from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects.structs import UnfitDocument, decode
from virtplane.api import resources
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.apiserver.admission.request import Request
from virtplane.compute.launcherpod import containerpaths
from virtplane.compute.launcherpod.inputs import Images, RenderInputs
from virtplane.serving.responses import Response

logger = logging.getLogger(__name__)


async def mutate(request: Request) -> Response:
    """Add a container for each folder that the instance shares, of the pod's own image.

    A pod that is not fit for it stays as it is, and virt-controller says what it lacks.
    """
    if request.resource != "pods":
        return Response.allow()
    try:
        vmi = await _instance(request)
    except (StatusError, UnfitDocument) as error:
        extra = {"pod": request.name, "namespace": request.namespace, "err": str(error)}
        logger.warning("The folders of a launcher are not shared: its instance cannot be read", extra=extra)
        return Response.allow()
    if vmi is None:
        return Response.allow()
    added = containerpaths.added_servers(RenderInputs(vmi, request.config, _images(request.new)), request.new)
    patches: list[JsonObject] = [{"op": "add", "path": "/spec/containers/-", "value": each} for each in added]
    return Response.allow(patches=patches)


async def _instance(request: Request) -> VirtualMachineInstance | None:
    """The instance that the pod belongs to. Raises StatusError, UnfitDocument."""
    owner = _owner(request.new)
    if not owner:
        return None
    found = await request.lookups.get(resources.VIRTUAL_MACHINE_INSTANCES, owner, request.namespace)
    return decode(VirtualMachineInstance, found) if found is not None else None


def _owner(pod: JsonObject) -> str:
    """The name of the instance that the pod belongs to; empty for other pods."""
    for owner in get_list(pod, "metadata", "ownerReferences"):
        kind = get_str(owner, "apiVersion"), get_str(owner, "kind")
        if kind == ("kubevirt.io/v1", "VirtualMachineInstance"):
            return get_str(owner, "name")
    return ""


def _images(pod: JsonObject) -> Images:
    images = (
        get_str(each, "image")
        for each in get_list(pod, "spec", "containers")
        if get_str(each, "name") == "compute"
    )
    return Images(next(images, ""), "")

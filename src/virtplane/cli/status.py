"""Whether virtplane is ready on the embedded cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kubecore import resources
from kubecore.client import Client, ConnectionFailed, load_kubeconfig
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects.structs import UnfitDocument, decode
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.kubevirt import KubeVirtStatus
from virtplane.api.resources import (
    CDIS,
    KUBEVIRTS,
    SUBRESOURCES_GROUP,
    UPLOAD_TOKEN_REQUESTS,
    VIRTUAL_MACHINES,
)
from virtplane.cli.installation import FIELD_MANAGER, is_applied_by, is_away, is_cdi_available
from virtplane.operators.kubevirt.manifests import CDI_NAME, KUBEVIRT_NAME

_SECONDS = 10.0
"""For all questions together; an API that takes longer is not ready."""
_SUBRESOURCES = f"/apis/{SUBRESOURCES_GROUP}/v1"
_UPLOADS = f"/apis/{UPLOAD_TOKEN_REQUESTS.group}/{UPLOAD_TOKEN_REQUESTS.version}"


async def missing(kubeconfig: Path, namespace: str) -> str:
    """The parts of virtplane that are not ready, as text; empty when all are."""
    try:
        async with asyncio.timeout(_SECONDS), Client(load_kubeconfig(kubeconfig)) as client:
            return await missing_parts(client, namespace)
    except TimeoutError:
        return f"the API did not answer within {_SECONDS:g} s"
    except ConnectionFailed as error:
        return f"the API does not answer: {error}"


async def missing_parts(client: Client, namespace: str) -> str:
    """As `missing`, with the given `client`."""
    try:
        kubevirt = await client.get(KUBEVIRTS, KUBEVIRT_NAME, namespace)
    except StatusError as error:
        if is_not_found(error):
            return f"it is not installed in namespace {namespace}"
        return f"the KubeVirt object cannot be read: {error}"
    if problem := _installation_problem(kubevirt):
        return problem
    try:
        # Conditions may be outdated: only an answer of virt-api proves that it is up.
        await client.request("GET", _SUBRESOURCES)
        await client.request("GET", VIRTUAL_MACHINES.path(None), query={"limit": "1"})
        if problem := await _data_volumes_problem(client):
            return problem
        handlers = await client.get(resources.DAEMON_SETS, "virt-handler", namespace)
        nodes = await client.list(resources.NODES)
    except StatusError as error:
        return f"the KubeVirt API does not answer: {error}"
    # The cluster says which of its nodes should be ready; no virt-handler is ready on others.
    away = sum(map(is_away, get_list(nodes, "items")))
    wanted = get_int(handlers, "status", "desiredNumberScheduled") - away
    ready = get_int(handlers, "status", "numberReady")
    return f"virt-handler is ready on {ready} of {wanted} nodes" if ready < wanted else ""


async def _data_volumes_problem(client: Client) -> str:
    """Why data volumes do not work; empty if they do, nobody wants them, or another CDI has them.

    Raises StatusError.
    """
    try:
        cdi = await client.get(CDIS, CDI_NAME)
    except StatusError as error:
        if is_not_found(error):
            return ""
        raise
    if not is_applied_by(cdi, FIELD_MANAGER):
        return ""
    if not is_cdi_available(cdi):
        return f"the phase of CDI is {get_str(cdi, 'status', 'phase') or 'unknown'}"
    await client.request("GET", _UPLOADS)
    return ""


def _installation_problem(kubevirt: JsonObject) -> str:
    try:
        status = decode(KubeVirtStatus, get_object(kubevirt, "status"))
    except UnfitDocument as error:
        return f"the KubeVirt object cannot be read: {error}"
    if status.phase == "Deployed" and is_true(status.conditions, "Available"):
        return ""
    told = (each.message for each in status.conditions if each.type == "Available")
    return next(told, None) or f"its phase is {status.phase or 'unknown'}"

"""Status updates."""

from __future__ import annotations

from kubecore.json import get_str
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.compute.apiserver.admission.kinds.machine import volume_request_causes
from virtplane.compute.apiserver.admission.request import Request
from virtplane.compute.apiserver.admission.request_schema import status_causes
from virtplane.compute.apiserver.admission.rules import machine as rules
from virtplane.serving.responses import Response


async def validate_status(request: Request) -> Response:
    """Statuses must have valid types; those of VMs also valid volume requests and locks."""
    kind = get_str(request.new, "kind")
    if not kind:
        return Response.plain("could not determine object kind")
    causes = status_causes(kind, request.new)
    if not causes and kind == "VirtualMachine":
        machine, old = decode(VirtualMachine, request.new), request.before(VirtualMachine)
        causes = await volume_request_causes(request, machine, old)
        causes += rules.locks(machine, old) if old is not None else []
    return Response.refuse(causes) if causes else Response.allow()

"""/objecttransfer-validate."""

from __future__ import annotations

from kubecore import resources as core
from kubecore.resources import ResourceType
from virtplane.api import resources
from virtplane.api.cdi_v1beta1.object_transfer import ObjectTransfer
from virtplane.serving.responses import Response
from virtplane.storage.cdi.apiserver.requests import Request, Services

_KINDS: dict[str, ResourceType] = {
    "DataVolume": resources.DATA_VOLUMES,
    "PersistentVolumeClaim": core.PERSISTENT_VOLUME_CLAIMS,
}
_DEPRECATED = "ObjectTransfer feature is deprecated, and will be deleted soon"


async def validate(request: Request, services: Services) -> Response:
    """Whether a transfer may be created or changed. Raises Refused, StatusError, UnfitDocument."""
    request.expect(resources.OBJECT_TRANSFERS.group, resources.OBJECT_TRANSFERS.plural)
    wanted, before = request.read(ObjectTransfer), request.before(ObjectTransfer)
    if before is not None:
        same = before.spec == wanted.spec
        return Response.allow() if same else Response.plain("ObjectTransfer spec is immutable")
    source, target = wanted.spec.source, wanted.spec.target
    if target.namespace is None and target.name is None:
        return Response.plain("Target namespace and/or target name must be supplied")
    resource = _KINDS.get(source.kind)
    if resource is None:
        return Response.plain(f'Unsupported kind "{source.kind}"')
    namespace = source.namespace if target.namespace is None else target.namespace
    name = source.name if target.name is None else target.name
    if await services.lookups.get(resource, name, namespace) is not None:
        return Response.plain(f'ObjectTransfer target "{namespace}/{name}" already exists')
    return Response.allow(warnings=[_DEPRECATED])

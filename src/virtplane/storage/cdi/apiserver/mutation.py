"""/datavolume-mutate: who asks for a clone must be allowed to make it, and a token says that he was."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore import resources as core
from kubecore.json import get_object
from kubecore.objects import meta
from kubecore.objects.structs import decode
from kubecore.patch.diff import pointer
from kubecore.resources import ResourceType
from virtplane.api import cdi_labels, resources
from virtplane.api.cdi_v1beta1.data_source import DataSource, DataSourceSource
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.cdi_v1beta1.data_volume_template import TemplateSource
from virtplane.serving.lookups import Lookups
from virtplane.serving.responses import Cause, Response
from virtplane.storage.cdi.apiserver.answers import Refused, refused
from virtplane.storage.cdi.apiserver.requests import CREATE, Request, Services
from virtplane.storage.cdi.clone_rights import SourceKind, clone_refusal
from virtplane.storage.cdi.tokens import Operation, Payload


@dataclass(frozen=True, slots=True)
class CloneSource:
    """What is cloned."""

    kind: SourceKind
    namespace: str
    name: str

    @property
    def resource(self) -> ResourceType:
        """The resource that it is."""
        is_claim = self.kind is SourceKind.CLAIM
        return core.PERSISTENT_VOLUME_CLAIMS if is_claim else resources.VOLUME_SNAPSHOTS


async def mutate(request: Request, services: Services) -> Response:
    """Adds the clone token to a new DataVolume. Raises Refused, StatusError, UnfitDocument."""
    request.expect(resources.DATA_VOLUMES.group, resources.DATA_VOLUMES.plural)
    data_volume = request.read(DataVolume)
    marks = data_volume.metadata.annotations
    if cdi_labels.PRE_POPULATED in marks:
        # Others fill its claim. Its author may be virt-controller, who restores a machine with a source that
        # the machine's owner has written, and may clone everything.
        return _without_foreign_token(request)
    needs_none = cdi_labels.CHECK_STATIC_VOLUME in marks
    if data_volume.metadata.deletion_timestamp is not None or _keeps_its_source(request):
        return _without_foreign_token(request)
    try:
        source = await clone_source(data_volume, request.namespace, services.lookups)
        if source is None:
            return _without_foreign_token(request)
        await _expect_namespace(source.namespace, services.lookups)
    except Refused:
        if needs_none:
            return _without_foreign_token(request)
        raise
    refusal = ""
    if source.namespace != request.namespace:
        refusal = await clone_refusal(
            services.authorizer, request.user, source.kind, source.namespace, source.name
        )
    if refusal:
        return (
            _without_foreign_token(request)
            if needs_none
            else refused([Cause(refusal, "spec.source.PVC.namespace")])
        )
    return (
        _with_token(request, source, services)
        if request.operation == CREATE
        else _without_foreign_token(request)
    )


def _keeps_its_source(request: Request) -> bool:
    """Whether this changes a DataVolume that clones what it did before.

    The API server was asked about its author when it was created. Who changes its labels or says how far the
    clone is (cdi-deployment, which may not clone for itself) needs no such rights, and the source's namespace
    may be gone by then.
    """
    return request.operation != CREATE and get_object(request.new, "spec") == get_object(request.old, "spec")


async def clone_source(data_volume: DataVolume, own: str, lookups: Lookups) -> CloneSource | None:
    """What a DataVolume in namespace `own` clones; None if nothing.

    Raises Refused where its DataSource is missing.
    """
    reference = data_volume.spec.source_ref
    source: TemplateSource | DataSourceSource | None = data_volume.spec.source
    if source is None and reference is not None and reference.kind == "DataSource":
        source = await _meant_by(reference.name, reference.namespace or own, lookups)
    if source is None:
        return None
    if source.pvc is not None:
        return CloneSource(SourceKind.CLAIM, source.pvc.namespace or own, source.pvc.name)
    if source.snapshot is not None:
        return CloneSource(SourceKind.SNAPSHOT, source.snapshot.namespace or own, source.snapshot.name)
    return None


async def _meant_by(name: str, namespace: str, lookups: Lookups) -> DataSourceSource:
    if not name:
        raise Refused(Response.plain("resource name may not be empty"))
    found = await lookups.get(resources.DATA_SOURCES, name, namespace)
    if found is None:
        text = f'{resources.DATA_SOURCES.group_resource} "{name}" not found'
        raise Refused(Response.plain(text))
    data_source = decode(DataSource, found)
    is_chained = data_source.spec.source.data_source is not None
    return data_source.status.source if is_chained else data_source.spec.source


async def _expect_namespace(name: str, lookups: Lookups) -> None:
    if await lookups.get(core.NAMESPACES, name) is None:
        raise Refused(Response.plain(f'namespaces "{name}" not found'))


def _with_token(request: Request, source: CloneSource, services: Services) -> Response:
    if services.signer is None:
        return Response.plain("clones cannot be admitted yet: there is no key to sign their token with", 500)
    params = {"targetNamespace": request.namespace, "targetName": request.name}
    payload = Payload(Operation.CLONE, source.name, source.namespace, source.resource, params)
    token = services.signer.sign(payload)
    if not get_object(request.new, "metadata", "annotations"):
        value = {cdi_labels.CLONE_TOKEN: token}
        return Response.allow(patches=[{"op": "add", "path": "/metadata/annotations", "value": value}])
    path = pointer("metadata", "annotations", cdi_labels.CLONE_TOKEN)
    return Response.allow(patches=[{"op": "add", "path": path, "value": token}])


def _without_foreign_token(request: Request) -> Response:
    """Lets the object pass, but not with a token that it has not got from here.

    A token proves that the API server was asked about its user. Who calls this webhook past the API server
    names any user: what he is given must not become the token of a DataVolume.
    """
    given = meta.annotations(request.new).get(cdi_labels.CLONE_TOKEN)
    own = meta.annotations(request.old).get(cdi_labels.CLONE_TOKEN)
    if given in (None, own):
        return Response.allow()
    path = pointer("metadata", "annotations", cdi_labels.CLONE_TOKEN)
    if own is None:
        return Response.allow(patches=[{"op": "remove", "path": path}])
    return Response.allow(patches=[{"op": "replace", "path": path, "value": own}])

"""/dataimportcron-validate."""

from __future__ import annotations

from msgspec import structs

from kubecore.objects.names import LABEL_MAX
from kubecore.objects.schedules import ScheduleError, check_schedule
from kubecore.resources import SECRETS
from virtplane.api import resources
from virtplane.api.cdi_v1beta1.data_import_cron import DataImportCron, DataImportCronSpec
from virtplane.api.cdi_v1beta1.data_volume import DataVolumeStatus
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.serving.responses import Cause, Response
from virtplane.storage.cdi.apiserver.answers import long_name, refused, refused_update
from virtplane.storage.cdi.apiserver.data_volumes import is_same, spec_causes
from virtplane.storage.cdi.apiserver.requests import Request, Services

_UNSETTABLE = "Unsettable fields: SourceRef, ContentType, Checkpoints, FinalCheckpoint"


async def validate(request: Request, services: Services) -> Response:
    """Whether a DataImportCron may be created or changed. Raises Refused, StatusError, UnfitDocument."""
    request.expect(resources.DATA_IMPORT_CRONS.group, resources.DATA_IMPORT_CRONS.plural)
    wanted, before = request.read(DataImportCron), request.before(DataImportCron)
    causes = long_name(request.name, LABEL_MAX)
    if causes:
        return refused(causes)
    if before is not None:
        same = is_same(_of_user(before.spec), _of_user(wanted.spec))
        return Response.allow() if same else refused_update("DataImportCron")
    causes = _template_causes(wanted.spec) or _own_causes(wanted.spec)
    causes = causes or await _secret_causes(wanted.spec, request, services)
    return refused(causes) if causes else Response.allow()


def _of_user(spec: DataImportCronSpec) -> DataImportCronSpec:
    """What a user may not change: the template's own metadata and status mean nothing.

    Clients that know the type write them, empty, with whatever else they write.
    """
    template = structs.replace(spec.template, metadata=ObjectMeta(), status=DataVolumeStatus())
    return structs.replace(spec, template=template)


def _template_causes(spec: DataImportCronSpec) -> list[Cause]:
    template = spec.template.spec
    source = template.source
    if source is None or (source.registry is None and source.pvc is None):
        return [Cause("Missing source", "spec.Template")]
    staged = template.checkpoints or template.final_checkpoint
    if template.source_ref is not None or template.content_type or staged:
        return [Cause(_UNSETTABLE, "spec.Template")]
    return spec_causes(template, "Template")


async def _secret_causes(spec: DataImportCronSpec, request: Request, services: Services) -> list[Cause]:
    """Whether the cron's author may read the secret with which its registry is polled.

    The jobs that poll are in CDI's own namespace, and so is the secret: without this anybody could have the
    credentials that administrators keep there sent to a registry of his own.
    """
    source = spec.template.spec.source
    registry = source.registry if source is not None else None
    if registry is None or not registry.url or not registry.secret_ref or registry.pull_method == "node":
        return []
    wanted = {"group": "", "resource": SECRETS.plural, "verb": "get"}
    wanted |= {"namespace": services.namespace, "name": registry.secret_ref}
    if not await services.authorizer.refusal(request.user, wanted):
        return []
    text = (
        f"User {request.user.name} may not get secret {registry.secret_ref} in namespace"
        f" {services.namespace}, with which the registry is polled"
    )
    return [Cause(text, "spec.Template.source.registry.secretRef")]


def _own_causes(spec: DataImportCronSpec) -> list[Cause]:
    if spec.schedule and not _is_schedule(spec.schedule):
        return [Cause("Illegal cron schedule", "spec.Schedule")]
    if spec.imports_to_keep is not None and spec.imports_to_keep < 0:
        return [Cause("Illegal ImportsToKeep value", "spec.ImportsToKeep")]
    if spec.garbage_collect not in (None, "Never", "Outdated"):
        return [Cause("Illegal GarbageCollect value", "spec.GarbageCollect")]
    if not spec.managed_data_source:
        return [Cause("Illegal ManagedDataSource value", "spec.ManagedDataSource")]
    return long_name(spec.managed_data_source, LABEL_MAX)


def _is_schedule(text: str) -> bool:
    try:
        check_schedule(text)
    except ScheduleError:
        return False
    return True

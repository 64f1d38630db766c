"""The entry point: finds the webhook by its path, and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from kubecore import errors
from kubecore.json import JsonObject, get_object
from kubecore.objects.structs import UnfitDocument
from virtplane.api.config import ClusterConfig
from virtplane.api.fields.kinds import KINDS
from virtplane.api.fields.warnings import unsupported_warnings
from virtplane.compute.apiserver.admission.kinds import (
    groups,
    instance,
    instancetypes,
    launchers,
    machine,
    migration,
    operations,
    plugin,
    storage,
)
from virtplane.compute.apiserver.admission.request import Refused, Request
from virtplane.serving.lookups import Lookups
from virtplane.serving.responses import Response

Webhook = Callable[[Request], Awaitable[Response]]

WEBHOOKS: Mapping[str, Webhook] = {
    "/migration-mutate-create": migration.mutate_create,
    "/migration-policy-validate-create": migration.validate_policy,
    "/migration-validate-create": migration.validate_create,
    "/migration-validate-update": migration.validate_update,
    "/plugin-validate": plugin.validate_plugin,
    "/status-validate": operations.validate_status,
    "/virtualmachinebackups-validate": storage.validate_backup,
    "/virtualmachinebackuptrackers-validate": storage.validate_backup_tracker,
    "/virtualmachineclusterinstancetypes-validate": instancetypes.validate_instancetype,
    "/virtualmachineclusterpreferences-validate": instancetypes.validate_preference,
    "/virtualmachineexports-validate": storage.validate_export,
    "/virtualmachineinstances-mutate": instance.mutate,
    "/virtualmachineinstances-validate-create": instance.validate_create,
    "/virtualmachineinstances-validate-update": instance.validate_update,
    "/virtualmachineinstancetypes-validate": instancetypes.validate_instancetype,
    "/virtualmachinepool-validate": groups.validate_pool,
    "/virtualmachinepreferences-validate": instancetypes.validate_preference,
    "/virtualmachinereplicaset-validate": groups.validate_replica_set,
    "/virtualmachinerestores-validate": storage.validate_restore,
    "/virt-launcher-pod-mutate": launchers.mutate,
    "/virtualmachines-mutate": machine.mutate,
    "/virtualmachines-validate": machine.validate,
    "/virtualmachinesnapshots-validate": storage.validate_snapshot,
    "/vm-clone-mutate-create": storage.mutate_clone,
    "/vm-clone-validate-create": storage.validate_clone,
    "/vmipreset-validate": groups.validate_preset,
}
"""Webhooks by path, sorted. Evictions are answered elsewhere: they change the instance."""

WARNED: Mapping[str, str] = {
    "/migration-policy-validate-create": "MigrationPolicy",
    "/migration-validate-create": "VirtualMachineInstanceMigration",
    "/plugin-validate": "Plugin",
    "/virtualmachinebackups-validate": "VirtualMachineBackup",
    "/virtualmachinebackuptrackers-validate": "VirtualMachineBackupTracker",
    "/virtualmachineclusterinstancetypes-validate": "VirtualMachineClusterInstancetype",
    "/virtualmachineclusterpreferences-validate": "VirtualMachineClusterPreference",
    "/virtualmachineexports-validate": "VirtualMachineExport",
    "/virtualmachineinstances-validate-create": "VirtualMachineInstance",
    "/virtualmachineinstancetypes-validate": "VirtualMachineInstancetype",
    "/virtualmachinepool-validate": "VirtualMachinePool",
    "/virtualmachinepreferences-validate": "VirtualMachinePreference",
    "/virtualmachinereplicaset-validate": "VirtualMachineInstanceReplicaSet",
    "/virtualmachinerestores-validate": "VirtualMachineRestore",
    "/virtualmachines-validate": "VirtualMachine",
    "/virtualmachinesnapshots-validate": "VirtualMachineSnapshot",
    "/vm-clone-validate-create": "VirtualMachineClone",
    "/vmipreset-validate": "VirtualMachineInstancePreset",
}
"""Kinds whose writers are warned of fields without effect, by webhook; virt-operator answers for KubeVirt."""


async def review(path: str, request: JsonObject, config: ClusterConfig, lookups: Lookups) -> Response:
    """Answer one AdmissionRequest that came to `path`."""
    webhook = WEBHOOKS.get(path)
    if webhook is None:
        return Response.plain(f"there is no webhook {path}", 404)
    too_large = Response.of_too_many_values(request)
    if too_large is not None:
        return too_large
    try:
        asked = Request.of(request, config, lookups)
        return _warned(path, asked, await webhook(asked))
    except Refused as refused:
        return refused.response
    except errors.StatusError as error:
        return Response.plain(error.message)
    except UnfitDocument as error:
        # The served definitions refuse such documents; this one came past them, or is older than they are.
        return Response.plain(str(error))


def _warned(path: str, request: Request, answer: Response) -> Response:
    """The answer with a warning for each field that has no effect; components are not warned."""
    kind = WARNED.get(path)
    if kind is None or not answer.allowed or request.is_from_component:
        return answer
    is_instance = kind == "VirtualMachineInstance"
    spec = get_object(request.raw, "object", "spec")
    found = unsupported_warnings(KINDS[kind], spec, instance=is_instance)
    return replace(answer, warnings=(*answer.warnings, *found))

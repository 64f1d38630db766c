"""The entry point: finds the webhook by its path, and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from kubecore import errors
from kubecore.json import JsonObject
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.admission.kinds import (
    copies,
    groups,
    instance,
    instancetypes,
    machine,
    migration,
    operations,
)
from virtplane.compute.apiserver.admission.lookups import Lookups
from virtplane.compute.apiserver.admission.request import Refused, Request
from virtplane.compute.apiserver.admission.response import Response

Webhook = Callable[[Request], Awaitable[Response]]

WEBHOOKS: Mapping[str, Webhook] = {
    "/migration-mutate-create": migration.mutate_create,
    "/migration-policy-validate-create": migration.validate_policy,
    "/migration-validate-create": migration.validate_create,
    "/migration-validate-update": migration.validate_update,
    "/plugin-validate": operations.validate_plugin,
    "/status-validate": operations.validate_status,
    "/virtualmachinebackups-validate": copies.validate_backup,
    "/virtualmachinebackuptrackers-validate": copies.validate_backup_tracker,
    "/virtualmachineclusterinstancetypes-validate": instancetypes.validate_instancetype,
    "/virtualmachineclusterpreferences-validate": instancetypes.validate_preference,
    "/virtualmachineexports-validate": copies.validate_export,
    "/virtualmachineinstances-mutate": instance.mutate,
    "/virtualmachineinstances-validate-create": instance.validate_create,
    "/virtualmachineinstances-validate-update": instance.validate_update,
    "/virtualmachineinstancetypes-validate": instancetypes.validate_instancetype,
    "/virtualmachinepool-validate": groups.validate_pool,
    "/virtualmachinepreferences-validate": instancetypes.validate_preference,
    "/virtualmachinereplicaset-validate": groups.validate_replica_set,
    "/virtualmachinerestores-validate": copies.validate_restore,
    "/virtualmachines-mutate": machine.mutate,
    "/virtualmachines-validate": machine.validate,
    "/virtualmachinesnapshots-validate": copies.validate_snapshot,
    "/vm-clone-mutate-create": copies.mutate_clone,
    "/vm-clone-validate-create": copies.validate_clone,
    "/vmipreset-validate": groups.validate_preset,
}
"""Webhooks by path, sorted. Evictions are answered elsewhere: they change the instance."""


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

"""Admission of the HostPathProvisioner."""

from __future__ import annotations

from collections.abc import Sequence

from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.structs import decode
from virtplane.api.hostpathprovisioner_v1beta1.hostpathprovisioner import HostPathProvisionerSpec, StoragePool
from virtplane.serving.responses import Response

_FORBIDDEN = 403
_LONGEST_NAME = 50
_LONGEST_PATH = 255


async def review(_: str, request: JsonObject) -> Response:
    """The answer to an admission request. Deletions are always allowed. Raises UnfitDocument."""
    if get_str(request, "operation") == "DELETE":
        return Response.allow()
    spec = decode(HostPathProvisionerSpec, get_object(request, "object", "spec"))
    problem = problem_of(spec)
    return Response.plain(problem, _FORBIDDEN) if problem else Response.allow()


def problem_of(spec: HostPathProvisionerSpec) -> str:
    """What is wrong with a spec, in upstream's words; empty if nothing is."""
    if spec.path_config is not None and spec.storage_pools:
        return "pathConfig and storage pools cannot be both set"
    if spec.path_config is None and not spec.storage_pools:
        return "either pathConfig or storage pools must be set"
    if spec.path_config is not None:
        return "" if spec.path_config.path else "pathconfig path must be set"
    for pool in spec.storage_pools:
        if problem := _problem_of_pool(pool):
            return problem
    return _duplicate([pool.path for pool in spec.storage_pools], "path") or _duplicate(
        [pool.name for pool in spec.storage_pools], "name"
    )


def _problem_of_pool(pool: StoragePool) -> str:
    if not pool.name:
        return "storagePool.name cannot be blank"
    if len(pool.name) > _LONGEST_NAME:
        return f"storagePool.name cannot have a length greater than {_LONGEST_NAME}"
    if not pool.path:
        return "storagePool.path cannot be blank"
    if len(pool.path) > _LONGEST_PATH:
        return f"storagePool.path cannot have a length greater than {_LONGEST_PATH}"
    return ""


def _duplicate(values: Sequence[str], what: str) -> str:
    first: dict[str, int] = {}
    for index, value in enumerate(values):
        if value in first:
            here, there = (f"spec.storagePools[{at}].{what}" for at in (index, first[value]))
            return f"{here} is the same as {there}, cannot have duplicate {what}s"
        first[value] = index
    return ""

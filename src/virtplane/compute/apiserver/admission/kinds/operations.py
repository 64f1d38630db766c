"""Status updates, evictions and plugins."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from kubecore import resources as core
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import labels, resources
from virtplane.compute.apiserver.admission.kinds.machine import volume_request_causes
from virtplane.compute.apiserver.admission.kinds.migration import is_final
from virtplane.compute.apiserver.admission.request import Request
from virtplane.compute.apiserver.admission.request_schema import status_causes
from virtplane.compute.apiserver.admission.response import Cause, Response
from virtplane.compute.apiserver.admission.rules import machine as rules

_DESCHEDULER = "sigs.k8s.io/descheduler"
_TOO_MANY_REQUESTS = 429


async def validate_status(request: Request) -> Response:
    """Statuses have their types; those of machines keep volume requests and locks straight."""
    kind = get_str(request.new, "kind")
    if not kind:
        return Response.plain("could not determine object kind")
    causes = status_causes(kind, request.new)
    if not causes and kind == "VirtualMachine":
        causes = await volume_request_causes(request)
        causes += list(rules.locks(request.new, request.old))
    return Response.refuse(causes) if causes else Response.allow()


async def validate_eviction(request: Request) -> Response:
    """Evictions of guests become migrations, where the strategy says so; the drain tries again."""
    pod = await request.lookups.get(core.PODS, request.name, request.namespace)
    if pod is None or get_str(pod, "status", "phase") in ("Succeeded", "Failed"):
        return Response.allow()
    kind = meta.labels(pod).get(labels.APP)
    if kind == "hotplug-disk":
        return await _evict_attachment(request, pod)
    if kind == "virt-launcher":
        return await _evict_launcher(request, pod)
    return Response.allow()


def _denied(message: str) -> Response:
    return Response.plain(message, _TOO_MANY_REQUESTS)


async def _evict_attachment(request: Request, pod: JsonObject) -> Response:
    owner = meta.controller_of(pod)
    if owner is None or owner.get("kind") != "Pod":
        return Response.allow()
    launcher = await request.lookups.get(core.PODS, get_str(owner, "name"), request.namespace)
    instance = await _instance_of(request, launcher)
    if instance is None or is_final(instance):
        return Response.allow()
    return _denied(
        f"cannot evict hotplug pod: {request.name} associated with running vmi:"
        f" {meta.name(instance)} in namespace {request.namespace}"
    )


async def _instance_of(request: Request, launcher: JsonObject | None) -> JsonObject | None:
    name = meta.annotations(launcher or {}).get(labels.DOMAIN, "")
    if not name:
        return None
    return await request.lookups.get(resources.VIRTUAL_MACHINE_INSTANCES, name, request.namespace)


async def _evict_launcher(request: Request, pod: JsonObject) -> Response:
    instance = await _instance_of(request, pod)
    if instance is None or is_final(instance):
        return Response.allow()
    name, namespace = meta.name(instance), request.namespace
    strategy = get_str(instance, "spec", "evictionStrategy") or request.config.eviction_strategy
    migratable = meta.is_condition_true(instance, "LiveMigratable")
    if strategy == "LiveMigrate" and not migratable:
        return _denied(f"VMI {name} is configured with an eviction strategy but is not live-migratable")
    marks = strategy in ("LiveMigrate", "External") or (strategy == "LiveMigrateIfPossible" and migratable)
    if not marks:
        return Response.allow()
    node = get_str(pod, "spec", "nodeName")
    if node != get_str(instance, "status", "nodeName"):
        return _denied("Eviction request for target Pod")
    triggered = f'Eviction triggered evacuation of VMI "{namespace}/{name}"'
    if get_str(instance, "status", "evacuationNodeName"):
        return _denied(f"Evacuation in progress: {triggered}")
    if not request.is_dry_run:
        await request.lookups.patch(
            resources.VIRTUAL_MACHINE_INSTANCES, name, namespace, list(_marks(request, instance, node))
        )
    return _denied(triggered)


def _marks(request: Request, instance: JsonObject, node: str) -> Iterator[JsonObject]:
    yield {"op": "add", "path": "/status/evacuationNodeName", "value": node}
    asked_by = meta.annotations(request.new).get("requested-by", "")
    if asked_by == _DESCHEDULER:
        annotations = {**meta.annotations(instance), labels.EVICTION_SOURCE: "descheduler"}
        yield {"op": "add", "path": "/metadata/annotations", "value": annotations}


async def validate_plugin(request: Request) -> Response:
    """Plugins need the gate and clean socket paths."""
    request.expect("plugins")
    if request.is_creation and not request.config.gate("Plugins"):
        return Response.plain("Plugins feature gate is not enabled")
    for index, hook in enumerate(get_list(request.new, "spec", "domainHooks")):
        path = get_str(get_object(hook, "sidecar"), "socketPath")
        if path and posixpath.normpath(path) != path:
            message = "socketPath must be a clean path (no '..' segments or redundant separators)"
            field = f"spec.domainHooks[{index}].sidecar.socketPath"
            return Response(
                False,
                {
                    "reason": "Invalid",
                    "message": message,
                    "details": {"causes": [Cause(message, field).document()]},
                },
            )
    return Response.allow()

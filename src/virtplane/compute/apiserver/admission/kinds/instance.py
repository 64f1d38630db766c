"""VirtualMachineInstance."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import get_object
from kubecore.objects import times
from kubecore.objects.selectors import SelectorError
from virtplane.api import labels, resources
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstanceStatus
from virtplane.compute.apiserver.admission.mutation.instance import default_instance
from virtplane.compute.apiserver.admission.mutation.presets import DEPRECATION, PresetConflict, apply_presets
from virtplane.compute.apiserver.admission.request import Request, replace
from virtplane.compute.apiserver.admission.rules import compute, disks, hotplug, networks, platform
from virtplane.compute.apiserver.admission.rules.metadata import metadata, reserved_labels
from virtplane.compute.apiserver.admission.rules.spec import (
    deprecation_warnings,
    discontinued_gates,
    spec_causes,
    storage_causes,
)
from virtplane.instancetypes.defaults import DefaultingError
from virtplane.serving.responses import NOT_SUPPORTED, Cause, Response

KIND = "VirtualMachineInstance"
_NODE_NAME = "authentication.kubernetes.io/node-name"


async def mutate(request: Request) -> Response:
    """Apply presets and defaults on creation; undo changes of the status by other users than components."""
    request.expect("virtualmachineinstances")
    request.check(KIND)
    instance = request.new
    if not request.is_creation:
        changed = get_object(request.new, "status") != get_object(request.old, "status")
        if changed and not request.is_from_component:
            return Response.allow(patches=[replace("/status", get_object(request.old, "status"))])
        return Response.allow()
    if not request.is_from_component:
        # The kind has no status subresource, so that the API server keeps whatever comes: a node to act on,
        # a phase that skips the launcher, the user that it runs as.
        instance["status"] = {}
    try:
        apply_presets(
            instance,
            await request.lookups.list(resources.VIRTUAL_MACHINE_INSTANCE_PRESETS, request.namespace),
        )
        default_instance(instance, request.config, times.now_rfc3339())
    except PresetConflict as error:
        return Response.refuse([Cause(str(error), type="")])
    except (DefaultingError, SelectorError) as error:
        return Response.plain(str(error))
    annotations = get_object(instance, "metadata", "annotations")
    warnings = [DEPRECATION] if any("virtualmachinepreset" in key for key in annotations) else []
    patches = [replace(f"/{part}", instance[part]) for part in ("spec", "metadata", "status")]
    return Response.allow(warnings, patches)


async def validate_create(request: Request) -> Response:
    """All rules of a new instance."""
    request.expect("virtualmachineinstances")
    instance = request.read(VirtualMachineInstance)
    found = list(_creation_causes(request, instance))
    if found:
        return Response.refuse(found)
    return Response.allow(deprecation_warnings(instance.spec, request.config))


def _creation_causes(request: Request, instance: VirtualMachineInstance) -> Iterator[Cause]:
    spec, config = instance.spec, request.config
    gates = list(discontinued_gates(spec, config))
    if gates:
        yield from gates
        return
    # Networks and disks are validated twice, alone and with the spec; the answer has the causes of both.
    yield from networks.discontinued("spec", spec)
    yield from networks.networks("spec", spec, config)
    yield from storage_causes("spec", spec)
    yield from spec_causes("spec", spec, config)
    yield from disks.every_volume_is_used(spec)
    yield from compute.memory_is_given("spec", spec)
    yield from metadata("metadata", instance.metadata, config, request.user)
    yield from platform.hyperv("spec", spec)
    yield from platform.architecture("spec", spec)


async def validate_update(request: Request) -> Response:
    """What users and components may change."""
    request.expect("virtualmachineinstances")
    instance = request.read(VirtualMachineInstance)
    old = request.before(VirtualMachineInstance) or VirtualMachineInstance()
    restricted = _node_restriction(request, instance, old)
    if restricted:
        return Response.refuse([restricted])
    found = list(_update_causes(request, instance, old))
    return Response.refuse(found) if found else Response.allow()


def _node_restriction(
    request: Request, instance: VirtualMachineInstance, old: VirtualMachineInstance
) -> Cause | None:
    """A node's virt-handler may change only instances of its own node."""
    handler = f"system:serviceaccount:{request.config.namespace}:kubevirt-handler"
    if not request.config.gate("NodeRestriction") or request.user != handler:
        return None
    names = request.user_extra.get(_NODE_NAME) or []
    if not names:
        return Cause("Node restriction failed, virt-handler service account is missing node name")
    target, old_target = _target_node(instance.status), _target_node(old.status)
    if names[0] not in (old.status.node_name, old_target):
        return Cause("Node restriction, virt-handler is only allowed to modify VMIs it owns")
    if target and target != old_target:
        return Cause("Node restriction, virt-handler is not allowed to set target node")
    changed = next(_of_other_nodes(instance, old), "")
    return Cause(f"Node restriction, virt-handler is not allowed to change {changed}") if changed else None


def _of_other_nodes(instance: VirtualMachineInstance, old: VirtualMachineInstance) -> Iterator[str]:
    """What virt-handlers of other nodes go by, as far as it changes: the instance's node and pods.

    An instance that names a pod of theirs has that pod's disks. A guest that has moved is reported to be
    where virt-controller sent it. As in KubeVirt all else passes that components may change.
    """
    nodes = (old.status.node_name, _target_node(old.status) or old.status.node_name)
    if instance.status.node_name not in nodes:
        yield "status.nodeName"
    label, before = instance.metadata.labels.get(labels.NODE_NAME), old.metadata.labels.get(labels.NODE_NAME)
    if label not in (before, *nodes):
        yield f"metadata.labels[{labels.NODE_NAME}]"
    if instance.status.active_pods != old.status.active_pods:
        yield "status.activePods"


def _target_node(status: VirtualMachineInstanceStatus) -> str | None:
    return status.migration_state.target_node if status.migration_state is not None else None


def _update_causes(
    request: Request, instance: VirtualMachineInstance, old: VirtualMachineInstance
) -> Iterator[Cause]:
    if request.changes_spec:
        if not request.is_from_component:
            yield Cause("update of VMI object is restricted", type=NOT_SUPPORTED)
            return
        found = list(hotplug.limits(instance.spec, old.spec))
        found = found or list(hotplug.utility_volumes(instance.spec, old, request.config))
        found = found or list(hotplug.storage(instance, old, request.config))[:1]
        if found:
            yield from found
            return
    same = reserved_labels(instance.metadata) == reserved_labels(old.metadata)
    if not request.is_from_component and not same:
        yield Cause(
            "modification of the following reserved kubevirt.io/ labels on a VMI object is prohibited",
            type=NOT_SUPPORTED,
        )

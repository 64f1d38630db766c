"""VirtualMachine."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects.structs import decode
from virtplane.api import labels, resources
from virtplane.api.fields.machine import MACHINE
from virtplane.api.fields.warnings import unsupported_warnings
from virtplane.api.instancetype_v1beta1.preference import VirtualMachinePreferenceSpec
from virtplane.api.kubevirt_v1.vm import VirtualMachine, VirtualMachineSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virtplane.compute.apiserver.admission.kinds import inference, matching
from virtplane.compute.apiserver.admission.mutation.instance import PCI_TOPOLOGY, supports_pcie_hotplug
from virtplane.compute.apiserver.admission.request import Request, replace
from virtplane.compute.apiserver.admission.rules import machine as rules
from virtplane.compute.apiserver.admission.rules import networks
from virtplane.compute.apiserver.admission.rules.spec import deprecation_warnings, discontinued_gates
from virtplane.instancetypes.defaults import DefaultingError, default_spec
from virtplane.serving.responses import NOT_SUPPORTED, Cause, Response

KIND = "VirtualMachine"
RUNNING_DEPRECATED = "spec.running is deprecated, please use spec.runStrategy instead."
_INSTANCES = resources.VIRTUAL_MACHINE_INSTANCES
_MIGRATIONS = resources.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS


async def mutate(request: Request) -> Response:
    """Instance type and preference inferred, preferred values taken over, identity and machine filled in."""
    request.expect("virtualmachines")
    request.check(KIND)
    machine = request.new
    if get_str(machine, "metadata", "deletionTimestamp"):
        return Response.allow()
    spec = decode(VirtualMachineSpec, machine["spec"])
    old = decode(VirtualMachineSpec, get_object(request.old, "spec")) if request.old else None
    causes = matching.matcher_causes(spec, old)
    if causes:
        return Response.refuse(causes)
    try:
        await inference.infer(machine, spec, request.namespace, request.lookups)
    except inference.InferenceError as error:
        return Response.plain(str(error))
    preference = await matching.find_preference(machine, request.namespace, request.lookups)
    await _fill_in(request, spec, preference)
    metadata = machine.get("metadata", {})
    return Response.allow(patches=[replace("/spec", machine["spec"]), replace("/metadata", metadata)])


async def _fill_in(
    request: Request, asked: VirtualMachineSpec, preference: VirtualMachinePreferenceSpec | None
) -> None:
    machine, config = request.new, request.config
    template = machine["spec"]["template"]
    template["metadata"] = template.get("metadata") or {}
    spec = template["spec"]
    domain = spec["domain"]
    matching.apply_preferred_basics(machine, preference)
    if request.is_creation:
        firmware = domain.setdefault("firmware", {})
        for key in ("uuid", "serial"):
            firmware[key] = firmware.get(key) or str(uuid.uuid4())
    if not get_str(spec, "architecture"):
        found = await inference.architecture_of_sources(asked, request.namespace, request.lookups)
        spec["architecture"] = found or config.default_architecture
    if not get_str(domain, "machine", "type"):
        domain["machine"] = {
            **get_object(domain, "machine"),
            "type": config.machine_type(spec["architecture"]),
        }
    if request.is_creation and supports_pcie_hotplug(spec):
        metadata = template["metadata"]
        metadata["annotations"] = metadata.get("annotations") or {}
        metadata["annotations"].setdefault(labels.PCI_TOPOLOGY_VERSION, PCI_TOPOLOGY)


async def validate(request: Request) -> Response:
    """All rules of a VM, on a copy with instance type and preference applied."""
    request.expect("virtualmachines")
    machine = request.read(VirtualMachine)
    if machine.metadata.is_being_deleted:
        return Response.allow()
    changed = deep_copy(request.new)
    found = await matching.apply(changed, request.namespace, request.lookups, request.config)
    if found:
        return Response.refuse(found)
    try:
        default_spec(changed["spec"]["template"]["spec"], request.config)
    except DefaultingError as error:
        return Response.plain(str(error))
    old, expanded = request.before(VirtualMachine), decode(VirtualMachine, changed).spec
    found = list(_creation_causes(request, machine.spec.instance, expanded.instance))
    found = found or list(rules.machine_causes("spec", expanded, request.config, request.user))
    if old is None or machine.spec.data_volume_templates != old.spec.data_volume_templates:
        found = found or list(rules.template_namespaces(machine.spec, request.namespace))
    if old is not None:
        found = found or list(rules.locks(machine, old))
    found = found or await volume_request_causes(request, machine, old)
    if found:
        return Response.refuse(found)
    return Response.allow([*_warnings(request, machine.spec), *_inherited(request, changed)])


def _creation_causes(
    request: Request, own: VirtualMachineInstanceSpec, expanded: VirtualMachineInstanceSpec
) -> Iterator[Cause]:
    if request.is_creation:
        gates = list(discontinued_gates(own, request.config))
        # This path lacks the template, as in KubeVirt's message.
        yield from gates or networks.discontinued("spec", expanded)


async def volume_request_causes(
    request: Request, machine: VirtualMachine, old: VirtualMachine | None
) -> list[Cause]:
    """The errors of volume requests from subresources."""
    wanted = machine.observed.volume_requests
    if not wanted or (old is not None and wanted == old.observed.volume_requests):
        return []
    found = await request.lookups.get(_INSTANCES, machine.metadata.name, request.namespace)
    instance = decode(VirtualMachineInstance, found) if found is not None else None
    causes = list(rules.volume_requests(machine, instance))
    if not causes and instance is not None and _is_migrating(instance):
        causes.append(
            Cause("Cannot handle volume requests while VMI migration is in progress", "spec", NOT_SUPPORTED)
        )
    return causes


def _is_migrating(instance: VirtualMachineInstance) -> bool:
    state = instance.status.migration_state
    return state is not None and not state.completed and not state.failed


def _warnings(request: Request, spec: VirtualMachineSpec) -> list[str]:
    found = deprecation_warnings(spec.instance, request.config)
    if spec.running is not None:
        found.append(RUNNING_DEPRECATED)
    return found


def _inherited(request: Request, expanded: JsonObject) -> list[str]:
    """Warnings of fields without effect that instance type and preference bring along.

    Those that the machine sets itself are warned of as on any kind.
    """
    if request.is_from_component:
        return []
    own, all_of_them = (
        unsupported_warnings(MACHINE, get_object(each, "spec")) for each in (request.new, expanded)
    )
    return [f"{text} (from instance type or preference)" for text in all_of_them if text not in own]

"""VirtualMachine."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from virtplane.api import labels, resources
from virtplane.api.fields.machine import MACHINE
from virtplane.api.fields.warnings import unsupported_warnings
from virtplane.api.instancetype_v1beta1.preference import VirtualMachinePreferenceSpec
from virtplane.compute.apiserver.admission.kinds import inference, matching
from virtplane.compute.apiserver.admission.mutation.instance import (
    PCI_TOPOLOGY,
    supports_pcie_hotplug,
)
from virtplane.compute.apiserver.admission.request import Request, replace
from virtplane.compute.apiserver.admission.response import NOT_SUPPORTED, Cause, Response
from virtplane.compute.apiserver.admission.rules import machine as rules
from virtplane.compute.apiserver.admission.rules import networks
from virtplane.compute.apiserver.admission.rules.spec import deprecation_warnings, discontinued_gates
from virtplane.instancetypes.defaults import DefaultingError, default_spec

KIND = "VirtualMachine"
RUNNING_DEPRECATED = "spec.running is deprecated, please use spec.runStrategy instead."
_INSTANCES = resources.VIRTUAL_MACHINE_INSTANCES
_MIGRATIONS = resources.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS


async def mutate(request: Request) -> Response:
    """Instance type and preference inferred, preferred values taken over, identity and machine filled in."""
    request.expect("virtualmachines")
    request.read(KIND)
    machine = request.new
    if get_str(machine, "metadata", "deletionTimestamp"):
        return Response.allow()
    causes = matching.matcher_causes(machine, request.old)
    if causes:
        return Response.refuse(causes)
    try:
        await inference.infer(machine, request.namespace, request.lookups)
    except inference.InferenceError as error:
        return Response.plain(str(error))
    preference = await matching.find_preference(machine, request.namespace, request.lookups)
    await _fill_in(request, machine, preference)
    return Response.allow(
        patches=[replace("/spec", machine["spec"]), replace("/metadata", machine["metadata"])]
    )


async def _fill_in(
    request: Request, machine: JsonObject, preference: VirtualMachinePreferenceSpec | None
) -> None:
    config = request.config
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
        found = await inference.architecture_of_sources(machine, request.namespace, request.lookups)
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
    """Every rule that a machine has to keep, with instance type and preference applied to a copy."""
    request.expect("virtualmachines")
    request.read(KIND)
    machine = request.new
    if get_str(machine, "metadata", "deletionTimestamp"):
        return Response.allow()
    expanded = deep_copy(machine)
    found = await matching.apply(expanded, request.namespace, request.lookups, request.config)
    if not found:
        try:
            default_spec(expanded["spec"]["template"]["spec"], request.config)
        except DefaultingError as error:
            return Response.plain(str(error))
    found = found or list(_creation_causes(request, expanded))
    found = found or list(
        rules.machine_causes("spec", get_object(expanded, "spec"), request.config, request.user)
    )
    found = found or list(_namespace_causes(request))
    if not found and not request.is_creation:
        found = list(rules.locks(machine, request.old))
    found = found or await volume_request_causes(request)
    if found:
        return Response.refuse(found)
    return Response.allow([*_warnings(request, machine), *_inherited(request, machine, expanded)])


def _creation_causes(request: Request, machine: JsonObject) -> Iterator[Cause]:
    if request.is_creation:
        own, spec = (get_object(each, "spec", "template", "spec") for each in (request.new, machine))
        gates = list(discontinued_gates(own, request.config))
        # The path lacks the template; clients know the message that way.
        yield from gates or networks.discontinued("spec", spec)


def _namespace_causes(request: Request) -> Iterator[Cause]:
    templates = [get_list(one, "spec", "dataVolumeTemplates") for one in (request.new, request.old)]
    if templates[0] != templates[1]:
        yield from rules.template_namespaces(get_object(request.new, "spec"), request.namespace)


async def volume_request_causes(request: Request) -> list[Cause]:
    """What is wrong with volumes asked for through subresources."""
    machine = request.new
    wanted = get_list(machine, "status", "volumeRequests")
    if not wanted or wanted == get_list(request.old, "status", "volumeRequests"):
        return []
    name = get_str(machine, "metadata", "name")
    instance = await request.lookups.get(_INSTANCES, name, request.namespace)
    causes = list(rules.volume_requests(machine, instance))
    if not causes and instance is not None and _is_migrating(instance):
        causes.append(
            Cause("Cannot handle volume requests while VMI migration is in progress", "spec", NOT_SUPPORTED)
        )
    return causes


def _is_migrating(instance: JsonObject) -> bool:
    state = get_object(instance, "status", "migrationState")
    return bool(state) and not state.get("completed") and not state.get("failed")


def _warnings(request: Request, machine: JsonObject) -> list[str]:
    spec = get_object(machine, "spec")
    found = deprecation_warnings(get_object(spec, "template", "spec"), request.config)
    if spec.get("running") is not None:
        found.append(RUNNING_DEPRECATED)
    return found


def _inherited(request: Request, machine: JsonObject, expanded: JsonObject) -> list[str]:
    """Warnings of fields without effect that instance type and preference bring along.

    Those that the machine sets itself are warned of as on any kind.
    """
    if request.is_from_component:
        return []
    own, all_of_them = (
        unsupported_warnings(MACHINE, get_object(each, "spec")) for each in (machine, expanded)
    )
    return [f"{text} (from instance type or preference)" for text in all_of_them if text not in own]

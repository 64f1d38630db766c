"""Replica sets, pools and presets: what makes or changes several instances."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.selectors import SelectorError, from_label_selector_object
from virtplane.compute.apiserver.admission.request import Request
from virtplane.compute.apiserver.admission.response import REQUIRED, Cause, Response
from virtplane.compute.apiserver.admission.rules import devices, disks
from virtplane.compute.apiserver.admission.rules import machine as machine_rules
from virtplane.compute.apiserver.admission.rules.spec import (
    deprecation_warnings,
    discontinued_gates,
    spec_causes,
)

_STRATEGIES = ("unmanaged", "opportunistic", "proactive")


async def validate_replica_set(request: Request) -> Response:
    """The template keeps the rules of instances and the selector finds it."""
    request.expect("virtualmachineinstancereplicasets")
    request.read("VirtualMachineInstanceReplicaSet")
    found = list(_replica_set_causes(request))
    if found:
        return Response.refuse(found)
    spec = get_object(request.new, "spec", "template", "spec")
    return Response.allow(deprecation_warnings(spec, request.config))


def _replica_set_causes(request: Request) -> Iterator[Cause]:
    spec = get_object(request.new, "spec")
    template = spec.get("template")
    if not isinstance(template, dict):
        yield Cause("missing virtual machine template.", "spec.template", REQUIRED)
        return
    inner = get_object(template, "spec")
    if request.is_creation:
        yield from discontinued_gates(inner, request.config)
    yield from spec_causes("spec.template.spec", inner, request.config)
    yield from _selector(spec, template)


def _selector(spec: JsonObject, template: JsonObject) -> Iterator[Cause]:
    try:
        selector = from_label_selector_object(get_object(spec, "selector"))
    except SelectorError as error:
        yield Cause(str(error), "spec.selector")
        return
    if not selector.matches(get_object(template, "metadata", "labels")):
        yield Cause("selector does not match labels.", "spec.selector")


async def validate_pool(request: Request) -> Response:
    """The template keeps the rules of machines, and one strategy of each sort is chosen."""
    request.expect("virtualmachinepools")
    request.read("VirtualMachinePool")
    found = list(_pool_causes(request))
    return Response.refuse(found) if found else Response.allow()


def _pool_causes(request: Request) -> Iterator[Cause]:
    spec = get_object(request.new, "spec")
    template = spec.get("virtualMachineTemplate")
    if not isinstance(template, dict):
        yield Cause("missing virtual machine template.", "spec.template", REQUIRED)
        return
    path = "spec.virtualMachineTemplate.spec"
    yield from machine_rules.machine_causes(path, get_object(template, "spec"), request.config, request.user)
    yield from _selector(spec, template)
    yield from _max_unavailable(spec.get("maxUnavailable"))
    for field in ("updateStrategy", "scaleInStrategy"):
        chosen = [name for name in _STRATEGIES if get_object(spec, field).get(name) is not None]
        if len(chosen) > 1:
            yield Cause(
                f"only one strategy can be configured at a time: but found {', '.join(chosen)} strategies",
                f"spec.{field}",
            )
    if not request.is_creation and spec.get("selector") != get_object(request.old, "spec").get("selector"):
        yield Cause("selector is immutable after creation.", "spec.selector")


def _max_unavailable(value: object) -> Iterator[Cause]:
    field = "spec.maxUnavailable"
    if isinstance(value, int):
        if value <= 0:
            yield Cause("maxUnavailable must be greater than 0", field)
        return
    if not isinstance(value, str):
        return
    if not value.endswith("%"):
        yield Cause("maxUnavailable percentage must end with %", field)
        return
    text = value[:-1]
    try:
        percent = int(text)
    except ValueError:
        yield Cause(
            f'maxUnavailable percentage value "{text}" is invalid:'
            f' strconv.Atoi: parsing "{text}": invalid syntax',
            field,
        )
        return
    if not 1 <= percent <= 100:
        yield Cause(f"maxUnavailable percentage value {percent} must be between 1 and 100", field)


async def validate_preset(request: Request) -> Response:
    """A preset has a domain whose disks and firmware keep the rules."""
    request.expect("virtualmachineinstancepresets")
    request.read("VirtualMachineInstancePreset")
    found = list(_preset_causes(get_object(request.new, "spec")))
    return Response.refuse(found) if found else Response.allow()


def _preset_causes(spec: JsonObject) -> Iterator[Cause]:
    if spec.get("domain") is None:
        yield Cause("missing domain.", "spec.domain", REQUIRED)
        return
    yield from disks.disks("spec.domain.devices.disks", get_list(spec, "domain", "devices", "disks"))
    yield from devices.firmware("spec", spec)

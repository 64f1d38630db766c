"""Replica sets, pools and presets: what makes or changes several instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubecore.objects.selectors import SelectorError, from_label_selector_object
from kubecore.objects.structs import decode, encode
from virtplane.api.kubevirt_v1.preset import VirtualMachineInstancePreset
from virtplane.api.kubevirt_v1.replicaset import VirtualMachineInstanceReplicaSet
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.api.meta_v1 import LabelSelector, ObjectMeta
from virtplane.api.pool_v1beta1.pool import (
    VirtualMachinePool,
    VirtualMachinePoolScaleInStrategy,
    VirtualMachinePoolSpec,
    VirtualMachinePoolUpdateStrategy,
)
from virtplane.compute.apiserver.admission.request import Request
from virtplane.compute.apiserver.admission.rules import devices, disks
from virtplane.compute.apiserver.admission.rules import machine as machine_rules
from virtplane.compute.apiserver.admission.rules.spec import (
    deprecation_warnings,
    discontinued_gates,
    spec_causes,
)
from virtplane.serving.responses import REQUIRED, Cause, Response


async def validate_replica_set(request: Request) -> Response:
    """Validate the template as an instance, and that the selector matches it."""
    request.expect("virtualmachineinstancereplicasets")
    spec = request.read(VirtualMachineInstanceReplicaSet).spec
    inner = spec.template.spec or VirtualMachineInstanceSpec()
    found = list(discontinued_gates(inner, request.config)) if request.is_creation else []
    found += spec_causes("spec.template.spec", inner, request.config)
    found += _selector(spec.selector, spec.template.metadata)
    if found:
        return Response.refuse(found)
    return Response.allow(deprecation_warnings(inner, request.config))


def _selector(wanted: LabelSelector, metadata: Mapping[str, Any] | None) -> Iterator[Cause]:
    try:
        selector = from_label_selector_object(encode(wanted))
    except SelectorError as error:
        yield Cause(str(error), "spec.selector")
        return
    if not selector.matches(decode(ObjectMeta, metadata or {}).labels):
        yield Cause("selector does not match labels.", "spec.selector")


async def validate_pool(request: Request) -> Response:
    """Validate the template as a VM, and that at most one strategy of each sort is set."""
    request.expect("virtualmachinepools")
    found = list(_pool_causes(request, request.read(VirtualMachinePool).spec))
    return Response.refuse(found) if found else Response.allow()


def _pool_causes(request: Request, spec: VirtualMachinePoolSpec) -> Iterator[Cause]:
    path, template = "spec.virtualMachineTemplate.spec", spec.virtual_machine_template
    if template.spec is None:
        yield Cause("missing virtual machine template.", f"{path}.template", REQUIRED)
    else:
        yield from machine_rules.machine_causes(path, template.spec, request.config, request.user)
    yield from _selector(spec.selector, template.metadata)
    yield from _max_unavailable(spec.max_unavailable)
    yield from _single_strategy("spec.updateStrategy", spec.update_strategy)
    yield from _single_strategy("spec.scaleInStrategy", spec.scale_in_strategy)
    old = request.before(VirtualMachinePool)
    if old is not None and spec.selector != old.spec.selector:
        yield Cause("selector is immutable after creation.", "spec.selector")


def _single_strategy(
    field: str, strategy: VirtualMachinePoolUpdateStrategy | VirtualMachinePoolScaleInStrategy | None
) -> Iterator[Cause]:
    if strategy is None:
        return
    settings = {
        "unmanaged": strategy.unmanaged,
        "opportunistic": strategy.opportunistic,
        "proactive": strategy.proactive,
    }
    chosen = [name for name, setting in settings.items() if setting is not None]
    if len(chosen) > 1:
        yield Cause(
            f"only one strategy can be configured at a time: but found {', '.join(chosen)} strategies", field
        )


def _max_unavailable(value: str | int | None) -> Iterator[Cause]:
    field = "spec.maxUnavailable"
    if isinstance(value, int):
        if value <= 0:
            yield Cause("maxUnavailable must be greater than 0", field)
        return
    if value is None:
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
    """A preset must have a domain, with valid disks and firmware."""
    request.expect("virtualmachineinstancepresets")
    spec = request.read(VirtualMachineInstancePreset).spec
    if spec is None or spec.domain is None:
        return Response.refuse([Cause("missing domain.", "spec.domain", REQUIRED)])
    found = list(disks.disks("spec.domain.devices.disks", spec.domain.devices.disks))
    found += devices.firmware("spec", spec.domain)
    return Response.refuse(found) if found else Response.allow()

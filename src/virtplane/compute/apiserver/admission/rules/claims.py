"""Rules on dynamic resource claims, and on GPUs and host devices that come from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubecore.objects import names
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.claims import VirtualMachineInstanceResourceClaim
from virtplane.api.kubevirt_v1.devices import GPU, HostDevice
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.serving.responses import DUPLICATE, REQUIRED, Cause

_Devices = Sequence[GPU | HostDevice]


def claims(path: str, spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> Iterator[Cause]:
    """The claims themselves, then the devices that name them."""
    yield from _listed(path, spec.resource_claims)
    pairs: dict[tuple[str, str], tuple[str, int]] = {}
    kinds: tuple[tuple[str, str, _Devices, str], ...] = (
        ("gpus", "GPU", spec.domain.devices.gpus, "GPUsWithDRA"),
        ("hostDevices", "HostDevice", spec.domain.devices.host_devices, "HostDevicesWithDRA"),
    )
    for field, kind, devices, gate in kinds:
        yield from _kind_rules(path, field, kind, devices, config.gate(gate))
        yield from _duplicates(path, field, kind, devices, pairs)
    used = {claim for claim, _ in pairs}
    if used - {claim.name for claim in spec.resource_claims}:
        yield Cause(
            "vmi.spec.resourceClaims must specify all claims used in vmi.spec.domain.devices.gpus"
            " and vmi.spec.domain.devices.hostDevices",
            f"{path}.resourceClaims",
        )


def _listed(path: str, entries: Sequence[VirtualMachineInstanceResourceClaim]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, claim in enumerate(entries):
        field, name = f"{path}.resourceClaims[{index}]", claim.name
        if not name:
            yield Cause(f"{field}.name is a required field", f"{field}.name", REQUIRED)
        elif name in seen:
            yield Cause(f'duplicate resourceClaims name "{name}"', f"{field}.name", DUPLICATE)
        seen.add(name)
        problems = names.is_dns1123_label(name) if name else []
        if problems:
            yield Cause(
                f"{field}.name does not conform to the kubernetes DNS_LABEL rules: {', '.join(problems)}",
                f"{field}.name",
            )
        references = {
            "resourceClaimName": claim.resource_claim_name,
            "resourceClaimTemplateName": claim.resource_claim_template_name,
        }
        given = {key: reference for key, reference in references.items() if reference}
        if len(given) > 1:
            yield Cause(
                "at most one of resourceClaimName or resourceClaimTemplateName may be specified", field
            )
        if not given:
            yield Cause("must specify one of: resourceClaimName, resourceClaimTemplateName", field)
        for key, reference in given.items():
            for problem in names.is_dns1123_subdomain(reference):
                yield Cause(problem, f"{field}.{key}")


def _is_claimed(device: GPU | HostDevice) -> bool:
    return bool(device.claim_name or device.request_name)


def _kind_rules(path: str, field: str, kind: str, devices: _Devices, is_enabled: bool) -> Iterator[Cause]:
    where = f"{path}.domain.devices.{field}"
    listed = f"vmi.spec.domain.devices.{field}"
    claimed = [device for device in devices if _is_claimed(device)]
    named = [device for device in devices if device.device_name]
    if any(not _is_claimed(device) and not device.device_name for device in devices):
        yield Cause(
            f"{listed} contains {kind}s without deviceName or claimRequest;"
            f" each {kind} must specify either a deviceName or a claimRequest",
            where,
            REQUIRED,
        )
        return
    if any(_is_claimed(device) for device in named):
        yield Cause(f"{listed} contains {kind}s with both deviceName and claimRequest", where)
        return
    if claimed and named:
        yield Cause(
            f"{listed} contains both DRA and non-DRA {kind}s; each {kind} must be either DRA or non-DRA",
            where,
        )
    if claimed and not is_enabled:
        yield Cause(f"{listed} contains DRA enabled {kind}s but feature gate is not enabled", where)
    for index, device in enumerate(devices):
        if not _is_claimed(device):
            continue
        for key, name in (("claimName", device.claim_name), ("requestName", device.request_name)):
            if not name:
                yield Cause(f"{key} is required for DRA {kind}", f"{where}[{index}].{key}", REQUIRED)


def _duplicates(
    path: str, field: str, kind: str, devices: _Devices, pairs: dict[tuple[str, str], tuple[str, int]]
) -> Iterator[Cause]:
    for index, device in enumerate(devices):
        pair = device.claim_name or "", device.request_name or ""
        if not all(pair):
            continue
        other = pairs.get(pair)
        if other is not None:
            message = f'duplicate claimName/requestName pair "{pair[0]}/{pair[1]}"'
            if other[0] != kind:
                message += f" between {other[0]}[{other[1]}] and {kind}[{index}]"
            yield Cause(message, f"{path}.domain.devices.{field}[{index}]", DUPLICATE)
        pairs.setdefault(pair, (kind, index))

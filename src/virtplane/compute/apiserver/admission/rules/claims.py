"""Rules on dynamic resource claims, and on GPUs and host devices that come from them."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import names
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.admission.response import DUPLICATE, REQUIRED, Cause

_DEVICES = (("gpus", "GPU", "GPUsWithDRA"), ("hostDevices", "HostDevice", "HostDevicesWithDRA"))
_REFERENCES = ("resourceClaimName", "resourceClaimTemplateName")


def claims(path: str, spec: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    """The claims themselves, then the devices that name them."""
    yield from _listed(path, get_list(spec, "resourceClaims"))
    devices = get_object(spec, "domain", "devices")
    pairs: dict[tuple[str, str], tuple[str, int]] = {}
    for field, kind, gate in _DEVICES:
        yield from _kind_rules(path, field, kind, get_list(devices, field), config.gate(gate))
        yield from _duplicates(path, field, kind, get_list(devices, field), pairs)
    used = {claim for claim, _ in pairs}
    if used - {get_str(claim, "name") for claim in get_list(spec, "resourceClaims")}:
        yield Cause(
            "vmi.spec.resourceClaims must specify all claims used in vmi.spec.domain.devices.gpus"
            " and vmi.spec.domain.devices.hostDevices",
            f"{path}.resourceClaims",
        )


def _listed(path: str, entries: list[JsonObject]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, claim in enumerate(entries):
        field, name = f"{path}.resourceClaims[{index}]", get_str(claim, "name")
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
        given = [key for key in _REFERENCES if get_str(claim, key)]
        if len(given) > 1:
            yield Cause(
                "at most one of resourceClaimName or resourceClaimTemplateName may be specified", field
            )
        if not given:
            yield Cause("must specify one of: resourceClaimName, resourceClaimTemplateName", field)
        for key in given:
            for problem in names.is_dns1123_subdomain(get_str(claim, key)):
                yield Cause(problem, f"{field}.{key}")


def _is_claimed(device: JsonObject) -> bool:
    return bool(device.get("claimName") or device.get("requestName"))


def _kind_rules(
    path: str, field: str, kind: str, devices: list[JsonObject], is_enabled: bool
) -> Iterator[Cause]:
    where = f"{path}.domain.devices.{field}"
    listed = f"vmi.spec.domain.devices.{field}"
    claimed = [device for device in devices if _is_claimed(device)]
    named = [device for device in devices if get_str(device, "deviceName")]
    if any(not _is_claimed(device) and not get_str(device, "deviceName") for device in devices):
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
        for key in ("claimName", "requestName"):
            if not get_str(device, key):
                yield Cause(f"{key} is required for DRA {kind}", f"{where}[{index}].{key}", REQUIRED)


def _duplicates(
    path: str,
    field: str,
    kind: str,
    devices: list[JsonObject],
    pairs: dict[tuple[str, str], tuple[str, int]],
) -> Iterator[Cause]:
    for index, device in enumerate(devices):
        pair = get_str(device, "claimName"), get_str(device, "requestName")
        if not all(pair):
            continue
        other = pairs.get(pair)
        if other is not None:
            message = f'duplicate claimName/requestName pair "{pair[0]}/{pair[1]}"'
            if other[0] != kind:
                message += f" between {other[0]}[{other[1]}] and {kind}[{index}]"
            yield Cause(message, f"{path}.domain.devices.{field}[{index}]", DUPLICATE)
        pairs.setdefault(pair, (kind, index))

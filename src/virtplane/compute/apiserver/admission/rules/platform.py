"""Rules on Hyper-V enlightenments and on what each architecture has."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import JsonObject, get_list, get_object, get_str
from virtplane.compute.apiserver.admission.response import NOT_SUPPORTED, REQUIRED, Cause
from virtplane.compute.apiserver.admission.rules.devices import is_enabled
from virtplane.compute.apiserver.admission.rules.disks import bus_of, target_of

HYPERV_NEEDS: tuple[tuple[str, str], ...] = (
    ("evmcs", "vapic"),
    ("ipi", "vpindex"),
    ("tlbflush", "vpindex"),
    ("synictimer", "synic"),
    ("synic", "vpindex"),
)
"""Enlightenments, each with the one that it builds on."""

ARCHITECTURES = ("amd64", "arm64", "s390x")
_VIDEO = {
    "amd64": ("vga", "cirrus", "virtio", "ramfb", "bochs"),
    "arm64": ("virtio", "ramfb"),
    "s390x": ("virtio",),
}


def hyperv(path: str, spec: JsonObject) -> Iterator[Cause]:
    """What an enlightenment builds on must not be switched off."""
    features = get_object(spec, "domain", "features")
    enlightenments = features.get("hyperv")
    passthrough = features.get("hypervPassthrough")
    if isinstance(enlightenments, dict) and isinstance(passthrough, dict) and is_enabled(passthrough):
        yield Cause(
            "Cannot explicitly set hyperV features if HypervPassthrough is being used."
            " Please use either HyperV or HypervPassthrough.",
            f"{path}.domain.features.hyperv",
        )
    if not isinstance(enlightenments, dict):
        return
    # The prefix is applied twice; clients know the paths that way.
    base = f"{path}.domain.features.hyperv.domain.features.hyperv"
    for name, needed in HYPERV_NEEDS:
        if is_enabled(enlightenments.get(name)) and not is_enabled(enlightenments.get(needed)):
            yield Cause(f"'{base}.{name}' requires '{base}.{needed}', which was disabled.", f"{base}.{name}")
    if is_enabled(enlightenments.get("evmcs")):
        yield from _vmx(path, spec)


def _vmx(path: str, spec: JsonObject) -> Iterator[Cause]:
    field = f"{path}.domain.cpu.features"
    vmx = [
        feature
        for feature in get_list(spec, "domain", "cpu", "features")
        if get_str(feature, "name") == "vmx"
    ]
    if not vmx:
        yield Cause("vmx cpu feature is required when evmcs is set", field, REQUIRED)
    elif get_str(vmx[0], "policy") != "require":
        yield Cause("vmx cpu feature has to be set to require policy", field)


def architecture(path: str, spec: JsonObject) -> Iterator[Cause]:
    """What the instance's architecture does not have."""
    name = get_str(spec, "architecture")
    if name not in ARCHITECTURES:
        yield Cause(f"unsupported architecture: {name}", f"{path}.architecture")
        return
    if name == "arm64":
        yield from _arm64(path, spec)
    else:
        device, label, what = (
            ("i6300esb", "amd64", "I6300ESB") if name == "amd64" else ("diag288", "s390x", "Diag288")
        )
        watchdog = get_object(spec, "domain", "devices").get("watchdog")
        others = {"i6300esb", "diag288"} - {device}
        if isinstance(watchdog, dict) and any(watchdog.get(other) is not None for other in others):
            yield Cause(
                f"{label} only supports {what} watchdog device",
                f"{path}.domain.devices.watchdog",
                NOT_SUPPORTED,
            )
    video = get_object(spec, "domain", "devices").get("video")
    model = get_str(video, "type") if isinstance(video, dict) else ""
    if model and model not in _VIDEO[name]:
        yield Cause(
            f"video model '{model}' is not supported on {name} architecture",
            f"{path}.domain.devices.video.type",
            NOT_SUPPORTED,
        )


def _arm64(path: str, spec: JsonObject) -> Iterator[Cause]:
    domain = get_object(spec, "domain")
    base = f"{path}.domain"
    if get_object(domain, "firmware", "bootloader").get("bios") is not None:
        yield Cause(
            "Arm64 does not support bios boot, please change to uefi boot",
            f"{base}.firmware.bootloader.bios",
            NOT_SUPPORTED,
        )
    if get_str(domain, "cpu", "model") not in ("", "host-passthrough"):
        yield Cause(
            "currently, host-passthrough is the only model supported on Arm64",
            f"{base}.cpu.model",
            NOT_SUPPORTED,
        )
    for index, disk in enumerate(get_list(domain, "devices", "disks")):
        if bus_of(disk) not in ("", "virtio", "scsi"):
            yield Cause(
                "Arm64 not support this disk bus type, please use virtio or scsi",
                f"{base}.devices.disks[{index}].{target_of(disk)}.bus",
                NOT_SUPPORTED,
            )
    for device, what in (("watchdog", "Watchdog"), ("sound", "sound")):
        if get_object(domain, "devices").get(device) is not None:
            yield Cause(f"Arm64 not support {what} device", f"{base}.devices.{device}", NOT_SUPPORTED)

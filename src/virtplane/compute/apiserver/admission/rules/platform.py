"""Rules on Hyper-V enlightenments and on what each architecture has."""

from __future__ import annotations

from collections.abc import Iterator

from virtplane.api.kubevirt_v1.devices import Watchdog
from virtplane.api.kubevirt_v1.features import FeatureHyperv, FeatureState, is_on
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.compute.apiserver.admission.rules.disks import bus_of, target_of
from virtplane.serving.responses import NOT_SUPPORTED, REQUIRED, Cause

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


def hyperv(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """An enlightenment needs others, which must not be disabled."""
    enlightenments = spec.domain.features.hyperv
    if enlightenments is None:
        return
    if is_on(spec.domain.features.hyperv_passthrough):
        yield Cause(
            "Cannot explicitly set hyperV features if HypervPassthrough is being used."
            " Please use either HyperV or HypervPassthrough.",
            f"{path}.domain.features.hyperv",
        )
    # The prefix is applied twice, as in KubeVirt's message.
    base = f"{path}.domain.features.hyperv.domain.features.hyperv"
    states = _states(enlightenments)
    for name, needed in HYPERV_NEEDS:
        if is_on(states[name]) and not is_on(states[needed]):
            yield Cause(f"'{base}.{name}' requires '{base}.{needed}', which was disabled.", f"{base}.{name}")
    if is_on(enlightenments.evmcs):
        yield from _vmx(path, spec)


def _states(enlightenments: FeatureHyperv) -> dict[str, FeatureState | None]:
    """Those that `HYPERV_NEEDS` names."""
    return {
        "evmcs": enlightenments.evmcs,
        "ipi": enlightenments.ipi,
        "synic": enlightenments.synic,
        "synictimer": enlightenments.synictimer,
        "tlbflush": enlightenments.tlbflush,
        "vapic": enlightenments.vapic,
        "vpindex": enlightenments.vpindex,
    }


def _vmx(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    field = f"{path}.domain.cpu.features"
    vmx = next((feature for feature in spec.domain.cpu.features if feature.name == "vmx"), None)
    if vmx is None:
        yield Cause("vmx cpu feature is required when evmcs is set", field, REQUIRED)
    elif vmx.policy != "require":
        yield Cause("vmx cpu feature has to be set to require policy", field)


def architecture(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Fields that the instance's architecture does not support."""
    name, devices = spec.architecture or "", spec.domain.devices
    if name not in ARCHITECTURES:
        yield Cause(f"unsupported architecture: {name}", f"{path}.architecture")
        return
    if name == "arm64":
        yield from _arm64(path, spec)
    else:
        watchdog = devices.watchdog or Watchdog(name="")
        what, other = ("I6300ESB", watchdog.diag288) if name == "amd64" else ("Diag288", watchdog.i6300esb)
        if other is not None:
            yield Cause(
                f"{name} only supports {what} watchdog device",
                f"{path}.domain.devices.watchdog",
                NOT_SUPPORTED,
            )
    model = devices.video.type if devices.video is not None else None
    if model and model not in _VIDEO[name]:
        yield Cause(
            f"video model '{model}' is not supported on {name} architecture",
            f"{path}.domain.devices.video.type",
            NOT_SUPPORTED,
        )


def _arm64(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    domain, base = spec.domain, f"{path}.domain"
    if domain.firmware.bootloader.bios is not None:
        yield Cause(
            "Arm64 does not support bios boot, please change to uefi boot",
            f"{base}.firmware.bootloader.bios",
            NOT_SUPPORTED,
        )
    if domain.cpu.model not in (None, "", "host-passthrough"):
        yield Cause(
            "currently, host-passthrough is the only model supported on Arm64",
            f"{base}.cpu.model",
            NOT_SUPPORTED,
        )
    for index, disk in enumerate(domain.devices.disks):
        if bus_of(disk) not in ("", "virtio", "scsi"):
            yield Cause(
                "Arm64 not support this disk bus type, please use virtio or scsi",
                f"{base}.devices.disks[{index}].{target_of(disk)}.bus",
                NOT_SUPPORTED,
            )
    if domain.devices.watchdog is not None:
        yield Cause("Arm64 not support Watchdog device", f"{base}.devices.watchdog", NOT_SUPPORTED)
    if domain.devices.sound is not None:
        yield Cause("Arm64 not support sound device", f"{base}.devices.sound", NOT_SUPPORTED)

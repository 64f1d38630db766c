"""The machine: SMBIOS, features, clock, metadata."""

from __future__ import annotations

from virtplane.api import labels
from virtplane.api.kubevirt_v1.clock import HPETTimer, HypervTimer, KVMTimer, PITTimer, RTCTimer
from virtplane.api.kubevirt_v1.domain import Chassis, DomainSpec
from virtplane.api.kubevirt_v1.features import FeatureHyperv, FeatureState
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.domain.processor import memory_bytes
from virtplane.compute.domain.xml import QEMU_NAMESPACE, Element, element, yes_no

_NAMESPACE = "http://kubevirt.io"
_GRACE_SECONDS = 30
_SPINLOCK_RETRIES = 4096
_LONGEST_ARGUMENT = 120 << 10
"""Linux takes 128 KiB as one argument of a program; libvirt writes each comma twice."""


def render_sysinfo(vmi: VirtualMachineInstance, context: DomainContext) -> Element:
    """SMBIOS tables: the configured vendor strings, the firmware's UUID and serial, the chassis."""
    firmware, chassis = vmi.spec.domain.firmware, vmi.spec.domain.chassis
    entries = dict(context.smbios)
    if firmware.serial:
        entries["serial"] = firmware.serial
    if firmware.uuid:
        entries["uuid"] = firmware.uuid
    system = element("system", {}, *(_entry(name, value) for name, value in sorted(entries.items())))
    node = element("sysinfo", {"type": "smbios"}, system)
    if chassis != Chassis():
        named = {
            "asset": chassis.asset,
            "manufacturer": chassis.manufacturer,
            "serial": chassis.serial,
            "sku": chassis.sku,
            "version": chassis.version,
        }
        node.append(element("chassis", {}, *(_entry(name, value) for name, value in named.items() if value)))
    return node


def render_ignition(vmi: VirtualMachineInstance) -> list[Element]:
    """What Ignition reads in the guest, from the annotation; as in KubeVirt, only a text that names Ignition.

    Raises ValueError for more than QEMU takes as an argument.
    """
    text = vmi.metadata.annotations.get(labels.IGNITION_DATA, "")
    if "ignition" not in text:
        return []
    if len(text.encode()) + text.count(",") > _LONGEST_ARGUMENT:
        raise ValueError(f"{labels.IGNITION_DATA}: Ignition's data is longer than {_LONGEST_ARGUMENT} bytes")
    return [element("sysinfo", {"type": "fwcfg"}, _entry("opt/com.coreos/config", text))]


def _entry(name: str, value: str) -> Element:
    return element("entry", {"name": name}, value)


def render_features(domain: DomainSpec, context: DomainContext) -> Element:
    """``<features>``; ACPI is on unless switched off, VMPort always off."""
    features = domain.features
    node = element("features")
    if features.acpi is None or features.acpi.is_on:
        node.append(element("acpi"))
    if features.apic is not None and features.apic.enabled is not False:
        node.append(element("apic", {"eoi": "on" if features.apic.end_of_interrupt else None}))
    if features.smm is not None:
        node.append(element("smm", {"state": features.smm.is_on}))
    node.extend(_kvm(domain, context))
    if domain.cpu.realtime is not None:
        # Counters of performance interrupt CPUs that must not be interrupted.
        node.append(element("pmu", {"state": False}))
    if features.pvspinlock is not None:
        node.append(element("pvspinlock", {"state": features.pvspinlock.is_on}))
    passthrough = features.hyperv_passthrough
    if not context.emulation and passthrough is not None and passthrough.enabled is not False:
        node.append(element("hyperv", {"mode": "passthrough"}))
    elif not context.emulation and features.hyperv is not None:
        node.append(_hyperv(features.hyperv))
    node.append(element("vmport", {"state": False}))
    if context.emulation:
        node.append(element("tcg", {}, element("tb-cache", {"unit": "MiB"}, str(_translation_cache(domain)))))
    return node


def _kvm(domain: DomainSpec, context: DomainContext) -> list[Element]:
    node = element("kvm")
    kvm = domain.features.kvm
    if kvm is not None and kvm.hidden:
        node.append(element("hidden", {"state": True}))
    # libvirt gives the hint to guests alone that see the node's own CPU.
    if (
        domain.cpu.dedicated_cpu_placement
        and domain.cpu.model == "host-passthrough"
        and not context.emulation
    ):
        node.append(element("hint-dedicated", {"state": True}))
    return [node] if len(node) else []


def _translation_cache(domain: DomainSpec) -> int:
    """The MiB of TCG's translation cache: a sixth of the guest's memory, 20 to 512.

    QEMU's own limit is 1 GiB, and guests fill what they get in time. When it is full, QEMU flushes it and
    translates again: a guest of 128 MiB boots as fast with 20 MiB as with 32 or 64, and with 16 MiB takes a
    third longer, with 8 MiB twice as long.
    """
    return max(20, min(512, memory_bytes(domain) // 6 // 1024**2))


def _hyperv(settings: FeatureHyperv) -> Element:
    node = element("hyperv")
    for name, state in _hyperv_states(settings).items():
        if state is not None:
            node.append(element(name, {"state": state.enabled is not False}))
    spinlocks = settings.spinlocks
    if spinlocks is not None:
        is_on = spinlocks.enabled is not False
        retries = _SPINLOCK_RETRIES if spinlocks.spinlocks is None else spinlocks.spinlocks
        node.append(element("spinlocks", {"state": is_on, "retries": retries if is_on else None}))
    if settings.synictimer is not None:
        timer = element("stimer", {"state": settings.synictimer.enabled is not False})
        if settings.synictimer.direct is not None:
            timer.append(element("direct", {"state": settings.synictimer.direct.is_on}))
        node.append(timer)
    if settings.vendorid is not None:
        vendor = (settings.vendorid.vendorid or "") if settings.vendorid.is_on else None
        node.append(element("vendor_id", {"state": settings.vendorid.is_on, "value": vendor}))
    return node


def _hyperv_states(settings: FeatureHyperv) -> dict[str, FeatureState | None]:
    """The Hyper-V enlightenments that are only on or off, by libvirt's names."""
    return {
        "relaxed": settings.relaxed,
        "vapic": settings.vapic,
        "vpindex": settings.vpindex,
        "runtime": settings.runtime,
        "synic": settings.synic,
        "reset": settings.reset,
        "frequencies": settings.frequencies,
        "reenlightenment": settings.reenlightenment,
        "tlbflush": settings.tlbflush,
        "ipi": settings.ipi,
        "evmcs": settings.evmcs,
    }


def render_clock(vmi: VirtualMachineInstance, context: DomainContext) -> Element:
    """``<clock>`` with the timers that the spec has; those of Hyper-V and KVM only with KVM, as the frequency
    of the TSC that virt-controller has chosen.
    """
    clock, timers = vmi.spec.domain.clock, vmi.spec.domain.clock.timer
    node = element("clock", {"offset": "utc", "adjustment": "reset"})
    if clock.timezone:
        node = element("clock", {"offset": "timezone", "timezone": clock.timezone})
    elif clock.utc is not None and clock.utc.offset_seconds:
        node.set("adjustment", str(clock.utc.offset_seconds))
    if timers.rtc is not None:
        node.append(_timer("rtc", timers.rtc, timers.rtc.tick_policy, timers.rtc.track))
    if timers.pit is not None:
        node.append(_timer("pit", timers.pit, timers.pit.tick_policy))
    if timers.kvm is not None and not context.emulation:
        node.append(_timer("kvmclock", timers.kvm))
    if timers.hpet is not None:
        node.append(_timer("hpet", timers.hpet, timers.hpet.tick_policy))
    if timers.hyperv is not None and not context.emulation:
        node.append(_timer("hypervclock", timers.hyperv))
    hints = vmi.status.topology_hints
    if hints is not None and hints.tsc_frequency and not context.emulation:
        node.append(element("timer", {"name": "tsc", "frequency": hints.tsc_frequency}))
    return node


def _timer(
    name: str,
    timer: RTCTimer | PITTimer | KVMTimer | HPETTimer | HypervTimer,
    tick_policy: str | None = None,
    track: str | None = None,
) -> Element:
    present = yes_no(timer.present is not False)
    attributes = {"name": name, "present": present, "tickpolicy": tick_policy or None, "track": track or None}
    return element("timer", attributes)


def render_metadata(vmi: VirtualMachineInstance) -> Element:
    """KubeVirt's element: the instance of the domain, and its grace period."""
    asked = vmi.spec.termination_grace_period_seconds
    grace_seconds = _GRACE_SECONDS if asked is None else asked
    owner = element(f"{{{_NAMESPACE}}}kubevirt")
    owner.append(element(f"{{{_NAMESPACE}}}uid", {}, vmi.metadata.uid))
    grace = element(f"{{{_NAMESPACE}}}graceperiod")
    grace.append(element(f"{{{_NAMESPACE}}}deletionGracePeriodSeconds", {}, str(grace_seconds)))
    owner.append(grace)
    return element("metadata", {}, owner)


def render_unused_capabilities(cpu: Element) -> list[Element]:
    """Disable a QEMU capability in libvirt: querying the properties of the CPU model ``maximum`` after the
    start.

    libvirt queries four hundred properties one by one, and QEMU (7.2) reads each query byte by byte: 0.3 s of
    a start of 0.4 s. libvirt needs the answers only for named CPU models, which keep the capability.
    """
    if cpu.get("mode") != "maximum":
        return []
    withheld = element(f"{{{QEMU_NAMESPACE}}}del", {"capability": "cpu-unavailable-features"})
    return [element(f"{{{QEMU_NAMESPACE}}}capabilities", {}, withheld)]


def render_arguments(arguments: list[str]) -> list[Element]:
    """Arguments of QEMU for what libvirt has no elements for."""
    if not arguments:
        return []
    values = [element(f"{{{QEMU_NAMESPACE}}}arg", {"value": argument}) for argument in arguments]
    return [element(f"{{{QEMU_NAMESPACE}}}commandline", {}, *values)]


def lifecycle_actions(domain: DomainSpec) -> list[Element]:
    """The action for a reboot of the guest: restart, unless the reboot policy is Terminate."""
    terminate = domain.reboot_policy == "Terminate"
    return [element("on_reboot", {}, "destroy" if terminate else "restart")]

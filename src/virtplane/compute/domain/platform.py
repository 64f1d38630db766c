"""The machine: operating system section, SMBIOS, features, clock, metadata."""

from __future__ import annotations

from kubecore.json import JsonObject, get_bool, get_int, get_object, get_str
from virtplane.compute.domain.context import PRIVATE_DIRECTORY, DomainContext
from virtplane.compute.domain.processor import memory_bytes
from virtplane.compute.domain.xml import Element, element, on_off, yes_no

_NAMESPACE = "http://kubevirt.io"
_QEMU_NAMESPACE = "http://libvirt.org/schemas/domain/qemu/1.0"
_BOOT_MENU_MILLISECONDS = 10000


def render_os(vmi: JsonObject, context: DomainContext) -> Element:
    """``<os>``: architecture, machine type, firmware, boot menu."""
    spec = get_object(vmi, "spec")
    domain = get_object(spec, "domain")
    machine = get_str(domain, "machine", "type") or "q35"
    node = element("os", {}, element("type", {"arch": "x86_64", "machine": machine}, "hvm"))
    bootloader = get_object(domain, "firmware", "bootloader")
    if "efi" in bootloader:
        secure = get_bool(bootloader, "efi", "secureBoot", default=True)
        code = "OVMF_CODE_4M.secboot.fd" if secure else "OVMF_CODE_4M.fd"
        variables = "OVMF_VARS_4M.ms.fd" if secure else "OVMF_VARS_4M.fd"
        loader = {"readonly": "yes", "secure": yes_no(secure), "type": "pflash"}
        node.append(element("loader", loader, f"{context.firmware_directory}/{code}"))
        template = {"template": f"{context.firmware_directory}/{variables}"}
        name = get_str(vmi, "metadata", "name")
        node.append(element("nvram", template, f"{PRIVATE_DIRECTORY}/libvirt/qemu/nvram/{name}_VARS.fd"))
    elif get_bool(bootloader, "bios", "useSerial"):
        node.append(element("bios", {"useserial": "yes"}))
    if get_str(spec, "startStrategy") == "Paused":
        node.append(element("bootmenu", {"enable": "yes", "timeout": _BOOT_MENU_MILLISECONDS}))
    node.append(element("smbios", {"mode": "sysinfo"}))
    return node


def render_sysinfo(vmi: JsonObject, context: DomainContext) -> Element:
    """SMBIOS tables: the configured vendor strings, the firmware's UUID and serial, the chassis."""
    domain = get_object(vmi, "spec", "domain")
    firmware = get_object(domain, "firmware")
    entries = dict(context.smbios)
    if get_str(firmware, "serial"):
        entries["serial"] = get_str(firmware, "serial")
    if get_str(firmware, "uuid"):
        entries["uuid"] = get_str(firmware, "uuid")
    system = element("system", {}, *(_entry(name, value) for name, value in sorted(entries.items())))
    node = element("sysinfo", {"type": "smbios"}, system)
    chassis = get_object(domain, "chassis")
    if chassis:
        named = {name: value for name, value in chassis.items() if isinstance(value, str) and value}
        node.append(element("chassis", {}, *(_entry(name, value) for name, value in sorted(named.items()))))
    return node


def _entry(name: str, value: str) -> Element:
    return element("entry", {"name": name}, value)


def render_features(domain: JsonObject, context: DomainContext) -> Element:
    """``<features>``; ACPI is on unless switched off, VMPort always off."""
    features = get_object(domain, "features")
    node = element("features")
    if get_bool(features, "acpi", "enabled", default=True):
        node.append(element("acpi"))
    if get_bool(features, "apic", "enabled", default=True) and "apic" in features:
        eoi = on_off(get_bool(features, "apic", "endOfInterrupt"))
        node.append(element("apic", {"eoi": eoi if get_bool(features, "apic", "endOfInterrupt") else None}))
    if "smm" in features:
        node.append(element("smm", {"state": get_bool(features, "smm", "enabled", default=True)}))
    if get_bool(features, "kvm", "hidden"):
        node.append(element("kvm", {}, element("hidden", {"state": True})))
    if "pvspinlock" in features:
        node.append(
            element("pvspinlock", {"state": get_bool(features, "pvspinlock", "enabled", default=True)})
        )
    if not context.emulation and "hyperv" in features:
        node.append(_hyperv(get_object(features, "hyperv")))
    node.append(element("vmport", {"state": False}))
    if context.emulation:
        node.append(element("tcg", {}, element("tb-cache", {"unit": "MiB"}, str(_translation_cache(domain)))))
    return node


def _translation_cache(domain: JsonObject) -> int:
    """MiB for the emulator's translations of guest code: a sixth of the guest's memory, 20 to 512.

    QEMU's own limit is 1 GiB, and guests fill what they get in time. When it is full, all is thrown away and
    translated anew: a guest of 128 MiB boots as fast with 20 MiB as with 32 or 64, and with 16 MiB takes a
    third longer, with 8 MiB twice as long.
    """
    return max(20, min(512, memory_bytes(domain) // 6 // 1024**2))


def _hyperv(settings: JsonObject) -> Element:
    node = element("hyperv")
    for name in ("relaxed", "vapic", "vpindex", "runtime", "synic", "reset", "frequencies"):
        if name in settings:
            node.append(element(name, {"state": get_bool(settings, name, "enabled", default=True)}))
    for name in ("reenlightenment", "tlbflush", "ipi", "evmcs"):
        if name in settings:
            node.append(element(name, {"state": get_bool(settings, name, "enabled", default=True)}))
    if "spinlocks" in settings:
        is_on = get_bool(settings, "spinlocks", "enabled", default=True)
        retries = get_int(settings, "spinlocks", "spinlocks", default=4096) if is_on else None
        node.append(element("spinlocks", {"state": is_on, "retries": retries}))
    if "synictimer" in settings:
        timer = element("stimer", {"state": get_bool(settings, "synictimer", "enabled", default=True)})
        if "direct" in get_object(settings, "synictimer"):
            direct = get_bool(settings, "synictimer", "direct", "enabled", default=True)
            timer.append(element("direct", {"state": direct}))
        node.append(timer)
    if "vendorid" in settings:
        is_on = get_bool(settings, "vendorid", "enabled", default=True)
        vendor = get_str(settings, "vendorid", "vendorid") if is_on else None
        node.append(element("vendor_id", {"state": is_on, "value": vendor}))
    return node


def render_clock(domain: JsonObject, context: DomainContext) -> Element:
    """``<clock>`` with the timers that the guest asked for; Hyper-V's and KVM's only under KVM."""
    clock = get_object(domain, "clock")
    node = element("clock", {"offset": "utc", "adjustment": "reset"})
    if get_str(clock, "timezone"):
        node = element("clock", {"offset": "timezone", "timezone": get_str(clock, "timezone")})
    elif get_int(clock, "utc", "offsetSeconds"):
        node.set("adjustment", str(get_int(clock, "utc", "offsetSeconds")))
    timers = get_object(clock, "timer")
    names = {"rtc": "rtc", "pit": "pit", "kvm": "kvmclock", "hpet": "hpet", "hyperv": "hypervclock"}
    for key, name in names.items():
        if key not in timers or (context.emulation and key in ("kvm", "hyperv")):
            continue
        timer = get_object(timers, key)
        attributes = {
            "name": name,
            "present": yes_no(get_bool(timer, "present", default=True)),
            "tickpolicy": get_str(timer, "tickPolicy") or None,
            "track": get_str(timer, "track") or None,
        }
        node.append(element("timer", attributes))
    return node


def render_metadata(vmi: JsonObject) -> Element:
    """KubeVirt's own entry: whose domain this is, and how long it may take to shut down."""
    grace_seconds = get_int(vmi, "spec", "terminationGracePeriodSeconds", default=30)
    owner = element(f"{{{_NAMESPACE}}}kubevirt")
    owner.append(element(f"{{{_NAMESPACE}}}uid", {}, get_str(vmi, "metadata", "uid")))
    grace = element(f"{{{_NAMESPACE}}}graceperiod")
    grace.append(element(f"{{{_NAMESPACE}}}deletionGracePeriodSeconds", {}, str(grace_seconds)))
    owner.append(grace)
    return element("metadata", {}, owner)


def render_unused_capabilities(cpu: Element) -> list[Element]:
    """Abilities of QEMU that libvirt is to leave alone: reading back what became of ``maximum`` as the CPU.

    libvirt asks for four hundred properties one by one, which QEMU (7.2) reads byte by byte: 0.3 s of a start
    of 0.4 s. It uses the answers for CPUs of a given model only, and those are left as they are.
    """
    if cpu.get("mode") != "maximum":
        return []
    withheld = element(f"{{{_QEMU_NAMESPACE}}}del", {"capability": "cpu-unavailable-features"})
    return [element(f"{{{_QEMU_NAMESPACE}}}capabilities", {}, withheld)]


def lifecycle_actions(domain: JsonObject) -> list[Element]:
    """A reboot inside the guest restarts it, unless the policy says Terminate."""
    terminate = get_str(domain, "rebootPolicy") == "Terminate"
    return [element("on_reboot", {}, "destroy" if terminate else "restart")]

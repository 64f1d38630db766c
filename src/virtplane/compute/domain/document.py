"""Renders the complete domain document."""

from __future__ import annotations

import re

from lxml import etree

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import (
    backing,
    devices,
    disks,
    filesystems,
    firmware,
    hostdevices,
    interfaces,
    iothreads,
    launchsecurity,
    memorydevices,
    metrics,
    overrides,
    panic,
    pci,
    placement,
    platform,
    processor,
    sriov,
    vsock,
)
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.domain.xml import element
from virtplane.compute.hotplug import started_disks

_MACHINE_TYPE = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


def domain_name(namespace: str, instance: str) -> str:
    """The libvirt name of an instance's domain."""
    return f"{namespace}_{instance}"


def machine_type(xml: str) -> str:
    """The machine type in the XML of a live domain; empty if it has none or the XML is not libvirt's."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    try:
        kind = etree.fromstring(xml, parser).find("os/type")
    except (etree.XMLSyntaxError, ValueError):
        return ""
    name = str(kind.get("machine", "")) if kind is not None else ""
    return name if _MACHINE_TYPE.fullmatch(name) else ""


def render(vmi: VirtualMachineInstance, context: DomainContext) -> str:
    """The libvirt domain XML of `vmi`. Raises disks.MissingSource when a disk was not prepared,
    ValueError for what the node or the pod cannot give.
    """
    wanted = vmi.spec.domain
    root = element("domain", {"type": "qemu" if context.emulation else "kvm"})
    root.append(element("name", {}, domain_name(vmi.metadata.namespace, vmi.metadata.name)))
    root.append(platform.render_metadata(vmi))
    root.extend(memorydevices.maximum(vmi))
    root.extend(processor.render_memory(wanted))
    root.extend(backing.render_backing(vmi))
    processors = processor.render_cpu(wanted, context)
    placement.add_numa(wanted, context, processors[-1])
    memorydevices.add_numa_cell(vmi, processors[-1], int(processors[0].text or 1))
    root.extend(processors)
    threads = iothreads.plan(wanted, started_disks(vmi, context.disks))
    if threads.count:
        root.append(element("iothreads", {}, str(threads.count)))
    root.extend(placement.render_tuning(wanted, context, threads.count))
    root.append(firmware.render_os(vmi, context))
    root.append(platform.render_sysinfo(vmi, context))
    root.extend(platform.render_ignition(vmi))
    root.append(platform.render_features(wanted, context))
    root.append(platform.render_clock(vmi, context))
    root.extend(platform.lifecycle_actions(wanted))
    section = element("devices")
    section.extend(disks.render_disks(vmi, context, threads.of_disk))
    section.extend(filesystems.render_filesystems(vmi))
    section.extend(interfaces.render_interfaces(vmi, context))
    section.extend(devices.render_devices(vmi, context))
    section.extend(metrics.render_channel(vmi))
    section.extend(hostdevices.render_host_devices(wanted.devices, context))
    section.extend(sriov.render_sriov(vmi, context))
    section.extend(memorydevices.device(vmi))
    section.extend(panic.render_panic_devices(wanted.devices, context))
    section.extend(vsock.render_vsock(vmi))
    section.extend(pci.root_ports(vmi, section))
    launchsecurity.let_devices_share(wanted, section)
    root.append(section)
    root.extend(launchsecurity.render_launch_security(wanted))
    arguments = [*firmware.acpi_arguments(context.boot), *panic.panic_arguments(wanted.devices)]
    arguments += overrides.passt_arguments(context)
    root.extend(platform.render_arguments(arguments))
    root.extend(overrides.render_overrides(vmi, context))
    root.extend(platform.render_unused_capabilities(processors[-1]))
    return etree.tostring(root, pretty_print=True, encoding="unicode")

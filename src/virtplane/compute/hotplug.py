"""Which volumes of an instance its launcher and its guest start without.

virt-controller leaves them out of the launcher pod, virt-handler out of the domain: both ask here, because
a node that waited for a volume that the pod does not have would wait for ever.
"""

from __future__ import annotations

from kubecore.json import JsonObject, get_bool, get_list, get_str

_SOURCES = ("persistentVolumeClaim", "dataVolume", "memoryDump")


def is_hotpluggable(volume: JsonObject) -> bool:
    """Whether a volume may come and go while the guest runs."""
    return any(get_bool(volume, source, "hotpluggable") for source in _SOURCES)


def hotplugged_volumes(vmi: JsonObject) -> set[str]:
    """Names of volumes that reach the guest through attachment pods, never through the launcher's own.

    Those that are declared ``hotpluggable``, from the start or later, and those that the status calls so.
    """
    reported = get_list(vmi, "status", "volumeStatus")
    names = {get_str(item, "name") for item in reported if item.get("hotplugVolume") is not None}
    declared = {get_str(item, "name") for item in get_list(vmi, "spec", "volumes") if is_hotpluggable(item)}
    return names | declared


def permanent_disks(vmi: JsonObject) -> list[JsonObject]:
    """The disks that the guest starts with. The drive of a hotplugged CD-ROM is one of them, empty."""
    hotplugged = hotplugged_volumes(vmi)
    disks = get_list(vmi, "spec", "domain", "devices", "disks")
    return [disk for disk in disks if "cdrom" in disk or get_str(disk, "name") not in hotplugged]

"""Which changes of a VM reach its running guest only by a restart."""

from __future__ import annotations

from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.volumes import Volume
from virtplane.compute.hotplug import is_hotpluggable

MESSAGE = "a non-live-updatable field was changed in the template spec"
_MAPS = ("nodeSelector", "matchLabels", "requests", "limits")
_PLAIN_OBJECTS = (("", "domain"), ("domain", "devices"), ("domain", "resources"), ("features", "acpi"))
"""Objects that KubeVirt cannot tell from absent ones, each with the name of the object around it."""
_CLAIM_SOURCES = ("persistentVolumeClaim", "dataVolume")


def needs_restart(started: JsonObject, current: JsonObject, vmi: JsonObject, *, live_update: bool) -> bool:
    """Whether `current` (a VM's spec) differs from `started` in what a running guest cannot follow.

    Both specs are expanded (instance type applied). What can be followed is made equal first.
    """
    before = deep_copy(get_object(started, "template", "spec"))
    after = deep_copy(get_object(current, "template", "spec"))
    _neutralize_hotplugged(before, after)
    _neutralize_firmware(before, after, vmi)
    if get_str(current, "updateVolumesStrategy") == "Migration":
        _neutralize_claims(before, after)
    # A template that names no network at all is compared as it is: its instance has the default one.
    if _names_networks(after) and not network_needs_restart(after, vmi):
        _copy(before, after, "networks")
        _copy(before, after, "domain", "devices", "interfaces")
    if live_update:
        _copy(before, after, "domain", "cpu", "sockets")
        _copy(before, after, "domain", "memory", "guest")
        for key in ("nodeSelector", "affinity", "tolerations"):
            _copy(before, after, key)
    return _pruned(before) != _pruned(after)


def _copy(source: JsonObject, target: JsonObject, *path: str) -> None:
    """Gives `target` the value of `source` at `path`, or none where `source` has none."""
    parent = get_object(source, *path[:-1])
    if path[-1] in parent:
        node = target
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = parent[path[-1]]
        return
    holder = get_object(target, *path[:-1])
    was_there = holder.pop(path[-1], None) is not None
    if was_there and not holder and len(path) > 1 and path[-2] not in get_object(source, *path[:-2]):
        del get_object(target, *path[:-2])[path[-2]]


def _pruned(value: object, name: str = "", within: str = "") -> object:
    """The value without what means the same empty and absent: lists, texts, and some objects.

    Most objects ask for something by being there (``tpm: {}``) and stay.
    """
    if isinstance(value, dict):
        items = {key: _pruned(item, key, name) for key, item in value.items()}
        return {
            key: item
            for key, item in items.items()
            if item not in ([], None, "") and not (item == {} and _is_nothing_empty(key, name))
        }
    if isinstance(value, list):
        return [_pruned(item, name, within) for item in value]
    return value


def _is_nothing_empty(name: str, within: str) -> bool:
    """Whether an empty object of that name, in an object of the other name, says no more than none."""
    return name in _MAPS or (within, name) in _PLAIN_OBJECTS


def _hotpluggable(spec: JsonObject) -> set[str]:
    return {
        get_str(volume, "name")
        for volume in get_list(spec, "volumes")
        if is_hotpluggable(decode(Volume, volume))
    }


def _neutralize_hotplugged(before: JsonObject, after: JsonObject) -> None:
    """Hotpluggable volumes come and go; empty CD-ROM drives may be filled."""
    movable = _hotpluggable(before) | _hotpluggable(after)
    for spec in (before, after):
        spec["volumes"] = [item for item in get_list(spec, "volumes") if item.get("name") not in movable]
        devices = spec.setdefault("domain", {}).setdefault("devices", {})
        devices["disks"] = [
            item for item in get_list(devices, "disks") if item.get("name") not in movable or "cdrom" in item
        ]


def _neutralize_firmware(before: JsonObject, after: JsonObject, vmi: JsonObject) -> None:
    running = get_str(vmi, "spec", "domain", "firmware", "uuid")
    for spec in (before, after):
        firmware = get_object(spec, "domain", "firmware")
        if firmware.get("uuid") == running:
            firmware.pop("uuid", None)
        if not firmware:
            get_object(spec, "domain").pop("firmware", None)


def _neutralize_claims(before: JsonObject, after: JsonObject) -> None:
    theirs = {get_str(item, "name"): item for item in get_list(after, "volumes")}
    for index, volume in enumerate(get_list(before, "volumes")):
        other = theirs.get(get_str(volume, "name"))
        if other is not None and _is_claim(volume) and _is_claim(other):
            before["volumes"][index] = other


def _is_claim(volume: JsonObject) -> bool:
    return any(source in volume for source in _CLAIM_SOURCES)


def _names_networks(template: JsonObject) -> bool:
    interfaces = get_list(template, "domain", "devices", "interfaces")
    return bool(interfaces or get_list(template, "networks"))


def network_needs_restart(template: JsonObject, vmi: JsonObject) -> bool:
    """Whether the template's networks differ from the instance's in what cannot be plugged while it runs."""
    wanted = {get_str(item, "name"): item for item in get_list(template, "domain", "devices", "interfaces")}
    running = get_list(vmi, "spec", "domain", "devices", "interfaces")
    for interface in running:
        other = wanted.get(get_str(interface, "name"))
        if other is None or _comparable(interface) != _comparable(other):
            return True
    present = {get_str(item, "name") for item in running}
    networks = {get_str(item, "name"): item for item in get_list(template, "networks")}
    for name, network in networks.items():
        if name not in present and "pod" in network:
            return True
    return _networks_changed(networks, vmi)


def _networks_changed(networks: dict[str, JsonObject], vmi: JsonObject) -> bool:
    conditions = get_list(vmi, "status", "conditions")
    is_migratable = any(
        item.get("type") == "LiveMigratable" and item.get("status") == "True" for item in conditions
    )
    for network in get_list(vmi, "spec", "networks"):
        other = networks.get(get_str(network, "name"))
        if other is None:
            return True
        if other != network and not (is_migratable and "multus" in network and "multus" in other):
            return True
    return False


def _comparable(interface: JsonObject) -> JsonObject:
    # A change of the state needs a restart, too: no node changes the link of a running guest yet.
    kept = {key: value for key, value in interface.items() if value not in (None, [], "")}
    return {**kept, "state": get_str(interface, "state") or "up"}

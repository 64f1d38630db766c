"""Adding and removing volumes: the patches of a VM's template or an instance's spec."""

from __future__ import annotations

from collections.abc import Callable

from kubecore import errors
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str

Conflict = Callable[[str], StatusError]
_SOURCES = (("persistentVolumeClaim", "claimName"), ("dataVolume", "name"))


def checked_add(options: JsonObject) -> JsonObject:
    """The options of an add request, with defaults. Raises StatusError if some are missing."""
    if not get_str(options, "name"):
        raise errors.bad_request("AddVolumeOptions requires name to be set")
    if not isinstance(options.get("disk"), dict):
        raise errors.bad_request("AddVolumeOptions requires disk to not be nil")
    if not isinstance(options.get("volumeSource"), dict):
        raise errors.bad_request("AddVolumeOptions requires VolumeSource to not be nil")
    checked = deep_copy(options)
    checked["disk"]["name"] = options["name"]
    for source, _ in _SOURCES:
        if isinstance(checked["volumeSource"].get(source), dict):
            checked["volumeSource"][source]["hotpluggable"] = True
    return checked


def source_name(volume: JsonObject) -> str:
    """The name of the claim or DataVolume of a volume."""
    for source, key in _SOURCES:
        if source in volume:
            return get_str(volume, source, key)
    return ""


def add_operations(
    spec: JsonObject, options: JsonObject, prefix: str, conflict: Conflict
) -> list[JsonObject]:
    """Operations that add a volume and its disk to `spec`, which lies at `prefix`."""
    name, source = get_str(options, "name"), get_object(options, "volumeSource")
    volumes = get_list(spec, "volumes")
    for volume in volumes:
        if volume.get("name") == name:
            raise conflict(f"Unable to add volume [{name}] because volume with that name already exists")
    wanted = source_name(source)
    if wanted and any(source_name(volume) == wanted for volume in volumes):
        raise conflict(f"Unable to add volume source [{wanted}] because it already exists")
    disks = get_list(spec, "domain", "devices", "disks")
    if any(disk.get("name") == name for disk in disks):
        raise conflict(f"Unable to add volume [{name}] because disk with that name already exists")
    return [
        *_list_operations(prefix + "/volumes", spec, ("volumes",), [*volumes, {"name": name, **source}]),
        *_list_operations(
            prefix + "/domain/devices/disks", spec, ("domain", "devices", "disks"), [*disks, options["disk"]]
        ),
    ]


def remove_operations(spec: JsonObject, name: str, prefix: str, conflict: Conflict) -> list[JsonObject]:
    """The operations that remove the volume `name` (or the volume with that claim) and its disk from
    `spec`.
    """
    volumes = get_list(spec, "volumes")
    found = next((item for item in volumes if name in (item.get("name"), source_name(item))), None)
    if found is None:
        raise conflict(f"Unable to remove volume [{name}] because it does not exist")
    if not any(get_object(found, source).get("hotpluggable") is True for source, _ in _SOURCES):
        raise conflict(f"Unable to remove volume [{name}] because it is not hotpluggable")
    disks = get_list(spec, "domain", "devices", "disks")
    kept_disks = [item for item in disks if item.get("name") != found.get("name")]
    return [
        *_list_operations(
            prefix + "/volumes", spec, ("volumes",), [item for item in volumes if item is not found]
        ),
        *_list_operations(prefix + "/domain/devices/disks", spec, ("domain", "devices", "disks"), kept_disks),
    ]


def _list_operations(
    path: str, spec: JsonObject, keys: tuple[str, ...], value: list[JsonObject]
) -> list[JsonObject]:
    parent = get_object(spec, *keys[:-1])
    if keys[-1] not in parent:
        return [{"op": "add", "path": path, "value": value}] if value else []
    test = {"op": "test", "path": path, "value": parent[keys[-1]]}
    if not value and path.startswith("/spec/template"):
        return [test, {"op": "remove", "path": path}]
    return [test, {"op": "replace", "path": path, "value": value}]


def add_request(vm: JsonObject, options: JsonObject, conflict: Conflict) -> list[JsonObject]:
    """Status operations that ask the controller to add a volume."""
    name = get_str(options, "name")
    requests = get_list(vm, "status", "volumeRequests")
    for request in requests:
        if get_str(request, "addVolumeOptions", "name") == name:
            raise conflict(f"add volume request for volume [{name}] already exists")
        if get_str(request, "removeVolumeOptions", "name") == name:
            text = f"unable to add volume since a remove volume request for volume [{name}] already exists"
            raise conflict(f"{text} and is still being processed")
    stored = {key: value for key, value in options.items() if key != "dryRun"}
    return _request_operations(vm, [*requests, {"addVolumeOptions": stored}])


def remove_request(vm: JsonObject, name: str, conflict: Conflict) -> list[JsonObject]:
    """Status operations that ask the controller to remove a volume."""
    requests = get_list(vm, "status", "volumeRequests")
    if any(get_str(request, "removeVolumeOptions", "name") == name for request in requests):
        text = f"a remove volume request for volume [{name}] already exists and is still being processed"
        raise conflict(text)
    kept = [request for request in requests if get_str(request, "addVolumeOptions", "name") != name]
    return _request_operations(vm, [*kept, {"removeVolumeOptions": {"name": name}}])


def _request_operations(vm: JsonObject, requests: list[JsonObject]) -> list[JsonObject]:
    path = "/status/volumeRequests"
    present = get_list(vm, "status", "volumeRequests")
    if present:
        return [
            {"op": "test", "path": path, "value": present},
            {"op": "replace", "path": path, "value": requests},
        ]
    return [{"op": "add", "path": path, "value": requests}]

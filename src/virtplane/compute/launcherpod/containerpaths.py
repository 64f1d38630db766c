"""Folders of the launcher's container that are shared with the guest (volumes of the kind ``containerPath``).

Other webhooks of the cluster mount such folders into the launcher's container, for example the token of a
cloud account. So the servers of these folders are added when the pod is created, not when it is rendered.
"""

from __future__ import annotations

from kubecore.json import JsonObject, get_list, get_str
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volume_sources import ContainerPathVolumeSource
from virtplane.compute.launcherpod.containers import share_server, share_server_name
from virtplane.compute.launcherpod.inputs import RenderInputs

LAUNCHER_USER = 107
_SHAREABLE = ("configMap", "secret", "projected", "downwardAPI", "emptyDir")
"""Volumes in which no user can have made a link that leads out of them."""


def shared_paths(vmi: VirtualMachineInstance) -> dict[str, ContainerPathVolumeSource]:
    """The folders that the instance shares, by the names of their volumes."""
    filesystems = {each.name for each in vmi.spec.domain.devices.filesystems if each.virtiofs is not None}
    return {
        volume.name: volume.container_path
        for volume in vmi.spec.volumes
        if volume.container_path is not None and volume.name in filesystems
    }


def missing_servers(vmi: VirtualMachineInstance, pod: JsonObject) -> list[str]:
    """The names of the volumes that have no server in the launcher's `pod`."""
    present = {get_str(container, "name") for container in get_list(pod, "spec", "containers")}
    return [name for name in shared_paths(vmi) if share_server_name(name) not in present]


def added_servers(inputs: RenderInputs, pod: JsonObject) -> list[JsonObject]:
    """The containers that the launcher's `pod` lacks: one for each folder that lies in a suitable volume."""
    containers = get_list(pod, "spec", "containers")
    compute = next((each for each in containers if get_str(each, "name") == "compute"), None)
    if compute is None:
        return []
    found, paths = [], shared_paths(inputs.vmi)
    for name in missing_servers(inputs.vmi, pod):
        if paths[name].read_only is not True:
            continue
        mounted = _mounted_at(compute, paths[name].path)
        source = _volume(pod, mounted[0]) if mounted is not None else None
        if mounted is None or source is None or not any(kind in source for kind in _SHAREABLE):
            continue
        found.append(_server(inputs, name, mounted, has_token=_has_token(source)))
    return found


def _server(inputs: RenderInputs, name: str, mounted: tuple[str, str], *, has_token: bool) -> JsonObject:
    volume, below = mounted
    # Not where the launcher has it: a webhook that mounts something there would do so here as well.
    folder = f"/virtiofs-data/{name}"
    mount: JsonObject = {"name": volume, "mountPath": folder, "readOnly": True}
    if below:
        mount["subPath"] = below
    options = ["--migration-on-error=guest-error", "--migration-mode=find-paths"]
    if has_token:
        # The token belongs to the launcher's user, and the guest's kernel follows links of root alone there.
        options.append(f"--translate-uid=host:{LAUNCHER_USER}:0:1")
    return share_server(inputs, name, folder, [mount], options)


def _mounted_at(container: JsonObject, path: str) -> tuple[str, str] | None:
    """The name of the volume that is mounted at `path` or above it, and the path in that volume."""
    wanted, best = path.rstrip("/"), None
    length = -1
    for mount in get_list(container, "volumeMounts"):
        folder = get_str(mount, "mountPath").rstrip("/")
        if (wanted == folder or wanted.startswith(folder + "/")) and len(folder) > length:
            length = len(folder)
            inside = [get_str(mount, "subPath").strip("/"), wanted[length:].strip("/")]
            best = get_str(mount, "name"), "/".join(part for part in inside if part)
    return best


def _volume(pod: JsonObject, name: str) -> JsonObject | None:
    volumes = get_list(pod, "spec", "volumes")
    return next((volume for volume in volumes if get_str(volume, "name") == name), None)


def _has_token(volume: JsonObject) -> bool:
    return any("serviceAccountToken" in source for source in get_list(volume, "projected", "sources"))

"""Volumes of the launcher pod and where the compute container finds them.

Names and paths are KubeVirt's: node agents, backup tools and sidecars rely on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kubecore.json import JsonObject, get_str
from kubecore.objects.structs import encode
from virtplane.api.kubevirt_v1.firmware import KernelBootContainer
from virtplane.api.kubevirt_v1.memory import Hugepages
from virtplane.api.kubevirt_v1.volume_sources import (
    CloudInitConfigDriveSource,
    CloudInitNoCloudSource,
    ContainerDiskSource,
    SysprepSource,
)
from virtplane.api.kubevirt_v1.volumes import Volume, claim_name, kind_of
from virtplane.api.launcherpods import KERNEL_BOOT_VOLUME, PLUGIN_SOCKETS
from virtplane.api.paths import (
    CONTAINER_DISK_DIR,
    EMPTY_DISK_DIR,
    EPHEMERAL_DISK_DIR,
    HOTPLUG_DIR,
    IMAGE_VOLUME_DIR,
    KERNEL_BOOT_DIR,
    LIBVIRT_RUNTIME_DIR,
    NETWORK_INFO_DIR,
    NETWORK_INFO_FILE,
    PLUGIN_SOCKET_DIR,
    PRIVATE_DIR,
    SHARE_DIR,
)
from virtplane.compute.launcherpod import network
from virtplane.compute.launcherpod.inputs import RenderInputs

STATE_VOLUME = "vm-state"

_EMPTY_DIRS = (
    ("private", PRIVATE_DIR),
    ("public", SHARE_DIR),
    ("sockets", SHARE_DIR + "/sockets"),
    ("ephemeral-disks", EPHEMERAL_DISK_DIR),
    ("libvirt-runtime", LIBVIRT_RUNTIME_DIR),
    ("container-disks", CONTAINER_DISK_DIR),
)


@dataclass(slots=True)
class VolumeSet:
    """Volumes of the pod, with mounts and block devices of the compute container."""

    volumes: list[JsonObject] = field(default_factory=list)
    mounts: list[JsonObject] = field(default_factory=list)
    devices: list[JsonObject] = field(default_factory=list)
    pull_secrets: list[str] = field(default_factory=list)
    service_account: str = ""

    def add(self, volume: JsonObject, mount_path: str = "", **mount: object) -> None:
        """Adds a volume once, and its mount once where a path is given."""
        if all(existing["name"] != volume["name"] for existing in self.volumes):
            self.volumes.append(volume)
        wanted = {"name": volume["name"], "mountPath": mount_path, **mount}
        if mount_path and wanted not in self.mounts:
            self.mounts.append(wanted)


def pod_volumes(inputs: RenderInputs) -> VolumeSet:
    """Everything the compute container mounts. Raises ValueError for sysprep without a source."""
    result = VolumeSet()
    for name, path in _EMPTY_DIRS:
        mount = {"mountPropagation": "HostToContainer"} if name == "container-disks" else {}
        result.add({"name": name, "emptyDir": {}}, path, **mount)
    if not inputs.devices.disable_hotplug:
        result.add({"name": "hotplug-disks", "emptyDir": {}}, HOTPLUG_DIR, mountPropagation="HostToContainer")
    if inputs.domain.memory.hugepages not in (None, Hugepages()):
        result.add({"name": "hugepages", "emptyDir": {"medium": "HugePages"}}, "/dev/hugepages")
        result.add({"name": "hugetblfs-dir", "emptyDir": {}}, "/dev/hugepages/libvirt/qemu")
    if inputs.devices.filesystems:
        result.add({"name": "virtiofs-containers", "emptyDir": {}}, SHARE_DIR + "/virtiofs-containers")
    if inputs.settings.gate("Plugins"):
        result.add({"name": PLUGIN_SOCKETS, "emptyDir": {}}, PLUGIN_SOCKET_DIR)
    carried = inputs.volumes
    for index, volume in enumerate(inputs.spec.volumes):
        if volume in carried:
            _add_user_volume(inputs, result, index, volume)
    _add_kernel_boot(inputs, result)
    _add_access_credentials(inputs, result)
    _add_state(inputs, result)
    if network.wants_network_info(inputs):
        _add_network_info(result)
    return result


def is_block(inputs: RenderInputs, claim: str) -> bool:
    """Whether a claim is a raw block device."""
    return get_str(inputs.claims.get(claim), "spec", "volumeMode") == "Block"


def mount_path(volume: Volume) -> str:
    """Where the pod mounts a volume: a disk, or the files from which virt-handler makes one."""
    kind = kind_of(volume)
    return kind.mount(volume.name) if kind is not None else ""


def _add_user_volume(inputs: RenderInputs, result: VolumeSet, index: int, volume: Volume) -> None:
    name = volume.name
    claim = claim_name(volume)
    if claim:
        _add_claim(inputs, result, volume, claim)
    elif volume.container_disk is not None:
        _add_container_disk(inputs, result, index, name, volume.container_disk)
    elif volume.config_map is not None or volume.secret is not None or volume.downward_api is not None:
        _add_config(result, volume)
    elif volume.sysprep is not None:
        _add_sysprep(result, volume, volume.sysprep)
    elif volume.service_account is not None:
        result.service_account = volume.service_account.service_account_name or ""
    elif volume.host_disk is not None:
        must_exist = volume.host_disk.type == "Disk"
        kind = "Directory" if must_exist else "DirectoryOrCreate"
        host = {"path": volume.host_disk.path.rpartition("/")[0], "type": kind}
        result.add({"name": name, "hostPath": host}, mount_path(volume))
    elif volume.downward_metrics is not None:
        memory = {"medium": "Memory", "sizeLimit": "1Mi"}
        result.add({"name": name, "emptyDir": memory}, f"{PRIVATE_DIR}/downwardapi-disks")
    elif volume.empty_disk is not None:
        result.add({"name": "empty-disks", "emptyDir": {}}, EMPTY_DISK_DIR)
    for source in (volume.cloud_init_no_cloud, volume.cloud_init_config_drive):
        if source is not None:
            _add_cloud_init(result, name, source)


def _add_claim(inputs: RenderInputs, result: VolumeSet, volume: Volume, claim: str) -> None:
    name = volume.name
    source: JsonObject = {"claimName": claim}
    ephemeral = volume.ephemeral.persistent_volume_claim if volume.ephemeral is not None else None
    given = volume.persistent_volume_claim or ephemeral
    if given is not None and given.read_only:
        source["readOnly"] = True
    pod_volume = {"name": name, "persistentVolumeClaim": source}
    if is_block(inputs, claim):
        result.add(pod_volume)
        result.devices.append({"name": name, "devicePath": f"/dev/{name}"})
    else:
        result.add(pod_volume, mount_path(volume))


def _add_container_disk(
    inputs: RenderInputs, result: VolumeSet, index: int, name: str, disk: ContainerDiskSource
) -> None:
    _remember_secret(result, disk)
    if inputs.uses_image_volumes:
        result.add(image_volume(inputs, name, disk), f"{IMAGE_VOLUME_DIR}/volume_{index}", readOnly=True)


def image_volume(
    inputs: RenderInputs, name: str, source: ContainerDiskSource | KernelBootContainer
) -> JsonObject:
    """An image volume, pinned to a digest if one is known."""
    image: JsonObject = {"reference": inputs.image_digests.get(name) or source.image}
    if source.image_pull_policy:
        image["pullPolicy"] = source.image_pull_policy
    return {"name": name, "image": image}


def _remember_secret(result: VolumeSet, source: ContainerDiskSource | KernelBootContainer) -> None:
    secret = source.image_pull_secret
    if secret and secret not in result.pull_secrets:
        result.pull_secrets.append(secret)


def _add_config(result: VolumeSet, volume: Volume) -> None:
    name, path = volume.name, mount_path(volume)
    if volume.config_map is not None:
        source = _present(name=volume.config_map.name, optional=volume.config_map.optional)
        result.add({"name": name, "configMap": source}, path, readOnly=True)
    elif volume.secret is not None:
        source = _present(secretName=volume.secret.secret_name, optional=volume.secret.optional)
        result.add({"name": name, "secret": source}, path, readOnly=True)
    elif volume.downward_api is not None:
        items = [encode(file) for file in volume.downward_api.fields]
        result.add({"name": name, "downwardAPI": {"items": items}}, path)


def _present(**fields: object) -> JsonObject:
    return {name: value for name, value in fields.items() if value is not None}


def _add_sysprep(result: VolumeSet, volume: Volume, source: SysprepSource) -> None:
    name = volume.name
    if source.secret is not None:
        pod_volume: JsonObject = {"name": name, "secret": {"secretName": source.secret.name or ""}}
    elif source.config_map is not None:
        pod_volume = {"name": name, "configMap": {"name": source.config_map.name or ""}}
    else:
        raise ValueError("Sysprep must have Secret or ConfigMap reference set {nil nil}")
    result.add(pod_volume, mount_path(volume), readOnly=True)


def _add_cloud_init(
    result: VolumeSet, name: str, source: CloudInitNoCloudSource | CloudInitConfigDriveSource
) -> None:
    for secret, suffix, files in (
        (source.secret_ref, "udata", ("userdata", "userData")),
        (source.network_data_secret_ref, "ndata", ("networkdata", "networkData")),
    ):
        if secret is None or not secret.name:
            continue
        volume_name = f"{name}-{suffix}"
        result.add({"name": volume_name, "secret": {"secretName": secret.name}})
        for file in files:
            path = f"{PRIVATE_DIR}/secret/{name}/{file}"
            result.mounts.append({"name": volume_name, "mountPath": path, "subPath": file, "readOnly": True})


def _add_kernel_boot(inputs: RenderInputs, result: VolumeSet) -> None:
    container = inputs.domain.firmware.kernel_boot.container
    if container is None:
        return
    _remember_secret(result, container)
    if inputs.uses_image_volumes:
        result.add(image_volume(inputs, KERNEL_BOOT_VOLUME, container), KERNEL_BOOT_DIR, readOnly=True)


def _add_access_credentials(inputs: RenderInputs, result: VolumeSet) -> None:
    for credential in inputs.spec.access_credentials:
        for kind in (credential.ssh_public_key, credential.user_password):
            if kind is None or kind.source.secret is None or not kind.source.secret.secret_name:
                continue
            secret = kind.source.secret.secret_name
            volume = {"name": f"{secret}-access-cred", "secret": {"secretName": secret}}
            result.add(volume, f"{PRIVATE_DIR}/secret/{secret}-access-cred", readOnly=True)


def _add_state(inputs: RenderInputs, result: VolumeSet) -> None:
    """The claim for what the instance keeps. What it does not keep stays in the pod and ends with it."""
    if not inputs.state_claim:
        return
    root = "/var/lib/libvirt/" if inputs.is_root else f"{PRIVATE_DIR}/libvirt/qemu/"
    tpm, efi = inputs.devices.tpm, inputs.domain.firmware.bootloader.efi
    paths = {"cbt": f"{root}cbt" if not inputs.is_root else "/var/lib/libvirt/qemu/cbt"}
    if tpm is not None and tpm.persistent:
        paths |= {"swtpm": f"{root}swtpm", "swtpm-localca": "/var/lib/swtpm-localca"}
    if efi is not None and efi.persistent:
        paths["nvram"] = f"{root}nvram" if not inputs.is_root else "/var/lib/libvirt/qemu/nvram"
    paths["meta"] = f"{PRIVATE_DIR}/backend-storage-meta"
    volume = {"name": STATE_VOLUME, "persistentVolumeClaim": {"claimName": inputs.state_claim}}
    for sub_path, path in paths.items():
        result.add(volume, path, subPath=sub_path)


def _add_network_info(result: VolumeSet) -> None:
    field_path = f"metadata.annotations['{network.NETWORK_INFO_ANNOTATION}']"
    items = [{"path": NETWORK_INFO_FILE, "fieldRef": {"fieldPath": field_path}}]
    result.add({"name": "network-info-annotation", "downwardAPI": {"items": items}}, NETWORK_INFO_DIR)

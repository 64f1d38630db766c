"""Volumes of the launcher pod and where the compute container finds them.

Names and paths are KubeVirt's: node agents, backup tools and sidecars rely on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kubecore.json import JsonObject, get_list, get_object, get_str
from virtplane.compute.launcherpod import network
from virtplane.compute.launcherpod.inputs import RenderInputs, claim_name

PRIVATE_DIR = "/var/run/kubevirt-private"
SHARE_DIR = "/var/run/kubevirt"
EPHEMERAL_DISK_DIR = "/var/run/kubevirt-ephemeral-disks"
CONTAINER_DISK_DIR = "/var/run/kubevirt/container-disks"
HOTPLUG_DIR = "/var/run/kubevirt/hotplug-disks"
IMAGE_VOLUME_DIR = "/var/run/kubevirt-image-volume"
KERNEL_BOOT_DIR = "/var/run/kubevirt-kernel-boot"
HOOK_SOCKET_DIR = "/var/run/kubevirt-hooks"
STATE_VOLUME = "vm-state"
KERNEL_BOOT_VOLUME = "kernel-boot-volume"

_EMPTY_DIRS = (
    ("private", PRIVATE_DIR),
    ("public", SHARE_DIR),
    ("sockets", SHARE_DIR + "/sockets"),
    ("ephemeral-disks", EPHEMERAL_DISK_DIR),
    ("libvirt-runtime", "/var/run/libvirt"),
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
        """Adds a volume once, and its mount where a path is given."""
        if all(existing["name"] != volume["name"] for existing in self.volumes):
            self.volumes.append(volume)
        if mount_path:
            self.mounts.append({"name": volume["name"], "mountPath": mount_path, **mount})


def pod_volumes(inputs: RenderInputs) -> VolumeSet:
    """Everything the compute container mounts."""
    result = VolumeSet()
    for name, path in _EMPTY_DIRS:
        mount = {"mountPropagation": "HostToContainer"} if name == "container-disks" else {}
        result.add({"name": name, "emptyDir": {}}, path, **mount)
    if inputs.devices.get("disableHotplug") is not True:
        result.add({"name": "hotplug-disks", "emptyDir": {}}, HOTPLUG_DIR, mountPropagation="HostToContainer")
    if get_object(inputs.domain, "memory", "hugepages"):
        result.add({"name": "hugepages", "emptyDir": {"medium": "HugePages"}}, "/dev/hugepages")
        result.add({"name": "hugetblfs-dir", "emptyDir": {}}, "/dev/hugepages/libvirt/qemu")
    filesystems = {get_str(item, "name") for item in get_list(inputs.devices, "filesystems")}
    if filesystems:
        result.add({"name": "virtiofs-containers", "emptyDir": {}}, SHARE_DIR + "/virtiofs-containers")
    for index, volume in enumerate(get_list(inputs.spec, "volumes")):
        if volume in inputs.volumes:
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


def _add_user_volume(inputs: RenderInputs, result: VolumeSet, index: int, volume: JsonObject) -> None:
    name = get_str(volume, "name")
    claim = claim_name(volume)
    if claim:
        _add_claim(inputs, result, volume, claim)
    elif "containerDisk" in volume:
        _add_container_disk(inputs, result, index, volume)
    elif "configMap" in volume or "secret" in volume or "downwardAPI" in volume:
        _add_config(result, volume)
    elif "sysprep" in volume:
        _add_sysprep(result, volume)
    elif "serviceAccount" in volume:
        result.service_account = get_str(volume, "serviceAccount", "serviceAccountName")
    elif "hostDisk" in volume:
        path = get_str(volume, "hostDisk", "path")
        host = {"path": path.rpartition("/")[0], "type": "DirectoryOrCreate"}
        result.add({"name": name, "hostPath": host}, f"{PRIVATE_DIR}/vmi-disks/{name}")
    elif "downwardMetrics" in volume:
        memory = {"medium": "Memory", "sizeLimit": "1Mi"}
        result.add({"name": name, "emptyDir": memory}, f"{PRIVATE_DIR}/downwardapi-disks")
    elif "emptyDisk" in volume:
        result.add({"name": "empty-disks", "emptyDir": {}}, "/var/run/libvirt/empty-disks")
    for source in ("cloudInitNoCloud", "cloudInitConfigDrive"):
        if source in volume:
            _add_cloud_init(result, name, get_object(volume, source))


def _add_claim(inputs: RenderInputs, result: VolumeSet, volume: JsonObject, claim: str) -> None:
    name = get_str(volume, "name")
    read_only = get_object(volume, "persistentVolumeClaim").get("readOnly") is True
    source: JsonObject = {"claimName": claim}
    if read_only:
        source["readOnly"] = True
    pod_volume = {"name": name, "persistentVolumeClaim": source}
    if is_block(inputs, claim):
        result.add(pod_volume)
        result.devices.append({"name": name, "devicePath": f"/dev/{name}"})
    else:
        result.add(pod_volume, f"{PRIVATE_DIR}/vmi-disks/{name}")


def _add_container_disk(inputs: RenderInputs, result: VolumeSet, index: int, volume: JsonObject) -> None:
    disk = get_object(volume, "containerDisk")
    _remember_secret(result, disk)
    if inputs.uses_image_volumes:
        name = get_str(volume, "name")
        result.add(image_volume(inputs, name, disk), f"{IMAGE_VOLUME_DIR}/volume_{index}", readOnly=True)


def image_volume(inputs: RenderInputs, name: str, source: JsonObject) -> JsonObject:
    """An image as volume, pinned to a digest where one is known."""
    image: JsonObject = {"reference": inputs.image_digests.get(name) or get_str(source, "image")}
    if source.get("imagePullPolicy"):
        image["pullPolicy"] = source["imagePullPolicy"]
    return {"name": name, "image": image}


def _remember_secret(result: VolumeSet, source: JsonObject) -> None:
    secret = get_str(source, "imagePullSecret")
    if secret and secret not in result.pull_secrets:
        result.pull_secrets.append(secret)


def _add_config(result: VolumeSet, volume: JsonObject) -> None:
    name = get_str(volume, "name")
    if "configMap" in volume:
        source = {k: v for k, v in get_object(volume, "configMap").items() if k in ("name", "optional")}
        result.add({"name": name, "configMap": source}, f"{PRIVATE_DIR}/config-map/{name}", readOnly=True)
    elif "secret" in volume:
        source = {k: v for k, v in get_object(volume, "secret").items() if k in ("secretName", "optional")}
        result.add({"name": name, "secret": source}, f"{PRIVATE_DIR}/secret/{name}", readOnly=True)
    else:
        items = get_list(volume, "downwardAPI", "fields")
        result.add({"name": name, "downwardAPI": {"items": items}}, f"{PRIVATE_DIR}/downwardapi/{name}")


def _add_sysprep(result: VolumeSet, volume: JsonObject) -> None:
    name = get_str(volume, "name")
    source = get_object(volume, "sysprep")
    if "secret" in source:
        pod_volume: JsonObject = {"name": name, "secret": {"secretName": get_str(source, "secret", "name")}}
    else:
        pod_volume = {"name": name, "configMap": {"name": get_str(source, "configMap", "name")}}
    result.add(pod_volume, f"{PRIVATE_DIR}/sysprep/{name}", readOnly=True)


def _add_cloud_init(result: VolumeSet, name: str, source: JsonObject) -> None:
    for key, suffix, files in (
        ("secretRef", "udata", ("userdata", "userData")),
        ("networkDataSecretRef", "ndata", ("networkdata", "networkData")),
    ):
        secret = get_str(source, key, "name")
        if not secret:
            continue
        volume_name = f"{name}-{suffix}"
        result.add({"name": volume_name, "secret": {"secretName": secret}})
        for file in files:
            path = f"{PRIVATE_DIR}/secret/{name}/{file}"
            result.mounts.append({"name": volume_name, "mountPath": path, "subPath": file, "readOnly": True})


def _add_kernel_boot(inputs: RenderInputs, result: VolumeSet) -> None:
    container = get_object(inputs.domain, "firmware", "kernelBoot", "container")
    if not container:
        return
    _remember_secret(result, container)
    if inputs.uses_image_volumes:
        result.add(image_volume(inputs, KERNEL_BOOT_VOLUME, container), KERNEL_BOOT_DIR, readOnly=True)


def _add_access_credentials(inputs: RenderInputs, result: VolumeSet) -> None:
    for credential in get_list(inputs.spec, "accessCredentials"):
        for kind in ("sshPublicKey", "userPassword"):
            secret = get_str(credential, kind, "source", "secret", "secretName")
            if secret:
                name = f"{secret}-access-cred"
                result.add(
                    {"name": name, "secret": {"secretName": secret}},
                    f"{PRIVATE_DIR}/secret/{name}",
                    readOnly=True,
                )


def _add_state(inputs: RenderInputs, result: VolumeSet) -> None:
    if not inputs.state_claim:
        return
    root = "/var/lib/libvirt/" if inputs.is_root else f"{PRIVATE_DIR}/libvirt/qemu/"
    paths = {
        "swtpm": f"{root}swtpm",
        "swtpm-localca": "/var/lib/swtpm-localca",
        "nvram": f"{root}nvram" if not inputs.is_root else "/var/lib/libvirt/qemu/nvram",
        "cbt": f"{root}cbt" if not inputs.is_root else "/var/lib/libvirt/qemu/cbt",
        "meta": f"{PRIVATE_DIR}/backend-storage-meta",
    }
    volume = {"name": STATE_VOLUME, "persistentVolumeClaim": {"claimName": inputs.state_claim}}
    for sub_path, path in paths.items():
        result.add(volume, path, subPath=sub_path)


def _add_network_info(result: VolumeSet) -> None:
    field_path = f"metadata.annotations['{network.NETWORK_INFO_ANNOTATION}']"
    items = [{"path": "network-info", "fieldRef": {"fieldPath": field_path}}]
    result.add({"name": "network-info-annotation", "downwardAPI": {"items": items}}, "/etc/podinfo")

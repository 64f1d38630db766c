"""The containers of the launcher pod, except hook sidecars.

Images of users need not contain any program: commands in their containers come from a static ``busybox`` of
the launcher image, mounted as image volume, or copied into an emptyDir where image volumes are switched off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from kubecore.json import JsonObject
from virtplane.api import labels as wellknown
from virtplane.api import paths
from virtplane.api.kubevirt_v1.firmware import KernelBootContainer
from virtplane.api.kubevirt_v1.probes import Probe
from virtplane.api.kubevirt_v1.volume_sources import ContainerDiskSource
from virtplane.api.kubevirt_v1.volumes import Volume
from virtplane.api.launcherpods import KERNEL_BOOT_VOLUME, QEMU_USER, image_holder
from virtplane.compute.launcher import seriallog
from virtplane.compute.launcherpod import network, probes, resources, volumes
from virtplane.compute.launcherpod.inputs import RenderInputs
from virtplane.compute.launcherpod.volumes import VolumeSet

BINARY_VOLUME = "virt-bin-share-dir"
_TOOLS_DIR = "/virtplane-tools"
_GRACE_EXTRA_SECONDS = 15
_BUSYBOX = "/usr/bin/busybox"
ImageSource: TypeAlias = ContainerDiskSource | KernelBootContainer
"""Where an image is pulled from."""

_VIRTIOFS_PROFILE = {"type": "Localhost", "localhostProfile": paths.VIRTIOFS_SECCOMP_PROFILE}
"""virt-handler installs it on its node. That of the pod would not let the server confine itself."""

_HOLD = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
"""Keeps a container, and so its image, until the pod is stopped."""


def restricted(*, group: bool = False) -> JsonObject:
    """The security context of helper containers: the guest's user, no capabilities."""
    context: JsonObject = {
        "runAsUser": QEMU_USER,
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    if group:
        context["runAsGroup"] = QEMU_USER
    return context


def compute(inputs: RenderInputs, pod_volumes: VolumeSet) -> JsonObject:
    """The container that runs the guest."""
    container: JsonObject = {
        "name": "compute",
        "image": inputs.images.launcher,
        "imagePullPolicy": inputs.settings.image_pull_policy,
        "command": ["virt-launcher"],
        "args": launcher_arguments(inputs),
        "env": _environment(inputs),
        "resources": resources.compute_resources(inputs),
        "securityContext": _compute_security(inputs),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": pod_volumes.mounts,
    }
    if pod_volumes.devices:
        container["volumeDevices"] = pod_volumes.devices
    ports = network.container_ports(inputs)
    if ports:
        container["ports"] = ports
    domain = f"{inputs.namespace_name}_{inputs.name}"
    asked = {"livenessProbe": inputs.spec.liveness_probe, "readinessProbe": inputs.spec.readiness_probe}
    for kind, probe in asked.items():
        if probe is not None and probe != Probe():
            container[kind] = probes.container_probe(probe, domain)
    return container


def launcher_arguments(inputs: RenderInputs) -> list[str]:
    """The launcher's flags."""
    grace = inputs.spec.termination_grace_period_seconds
    arguments = ["--qemu-timeout", f"{inputs.qemu_timeout_seconds}s"]
    arguments += ["--name", inputs.name, "--uid", inputs.uid, "--namespace", inputs.namespace_name]
    arguments += [
        "--kubevirt-share-dir",
        paths.SHARE_DIR,
        "--ephemeral-disk-dir",
        paths.EPHEMERAL_DISK_DIR,
    ]
    arguments += ["--container-disk-dir", paths.CONTAINER_DISK_DIR]
    arguments += ["--grace-period-seconds", str((30 if grace is None else grace) + _GRACE_EXTRA_SECONDS)]
    arguments += ["--hook-sidecars", "0", "--ovmf-path", inputs.settings.ovmf_path(inputs.architecture)]
    developer = inputs.settings.configuration.developer_configuration
    checks = developer.disk_verification
    limit = str(checks.memory_limit) if checks is not None else "2000Mi"
    arguments += ["--disk-memory-limit", limit, "--hypervisor", "kvm"]
    filters = inputs.annotations.get(wellknown.LIBVIRT_LOG_FILTERS)
    if filters:
        arguments += ["--libvirt-log-filters", filters]
    flags = {
        "--run-as-nonroot": not inputs.is_root,
        "--image-volume": inputs.uses_image_volumes,
        "--allow-emulation": inputs.settings.use_emulation,
        "--upgrade-ordinal-ifaces": inputs.settings.gate("PodSecondaryInterfaceNamingUpgrade"),
        "--vm-stats-collector": inputs.settings.gate("VMStatsCollector"),
        "--firmware-auto-selection": inputs.settings.gate("FirmwareAutoSelection"),
        "--keep-after-failure": _is_true(inputs, wellknown.KEEP_LAUNCHER_ALIVE),
        "--simulate-crash": wellknown.FAIL_FAST in inputs.annotations,
    }
    return arguments + [flag for flag, is_on in flags.items() if is_on]


def _is_true(inputs: RenderInputs, annotation: str) -> bool:
    return inputs.annotations.get(annotation) == "true"


def _environment(inputs: RenderInputs) -> list[JsonObject]:
    labels = inputs.vmi.metadata.labels
    values = {
        "XDG_CACHE_HOME": paths.PRIVATE_DIR,
        "XDG_CONFIG_HOME": paths.PRIVATE_DIR,
        "XDG_RUNTIME_DIR": "/var/run",
    }
    levels = inputs.settings.configuration.developer_configuration.log_verbosity
    verbosity = labels.get("logVerbosity") or levels.virt_launcher
    if verbosity:
        values["VIRT_LAUNCHER_LOG_VERBOSITY"] = str(verbosity)
    if labels.get("debugLogs") == "true":
        values["LIBVIRT_DEBUG_LOGS"] = "1"
    if labels.get("virtiofsdDebugLogs") == "true":
        values["VIRTIOFSD_DEBUG_LOGS"] = "1"
    environment: list[JsonObject] = [{"name": key, "value": value} for key, value in values.items()]
    pod_name = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
    return [*environment, {"name": "POD_NAME", "valueFrom": pod_name}]


def _compute_security(inputs: RenderInputs) -> JsonObject:
    if inputs.is_root:
        return {
            "runAsUser": 0,
            "runAsNonRoot": False,
            "capabilities": {"add": ["NET_BIND_SERVICE", "SYS_NICE"]},
        }
    return {**restricted(group=True), "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}}


def guest_console_log(inputs: RenderInputs) -> JsonObject | None:
    """The container whose log is the guest's serial console, unless console or log are switched off."""
    if inputs.devices.autoattach_serial_console is False or inputs.devices.log_serial_console is False:
        return None
    options = inputs.settings.configuration.virtual_machine_options
    if options.disable_serial_console_log is not None and not inputs.devices.log_serial_console:
        return None
    log = f"{paths.PRIVATE_DIR}/{inputs.uid}/{seriallog.FILE}"
    script = f"trap 'exit 0' TERM; tail -n +1 -F {log} & wait $!"
    return {
        "name": "guest-console-log",
        "image": inputs.images.launcher,
        "imagePullPolicy": inputs.settings.image_pull_policy,
        "command": [_BUSYBOX],
        "args": ["sh", "-c", script],
        "restartPolicy": "Always",
        "resources": resources.support_resources(inputs, "guest-console-log"),
        "securityContext": restricted(),
        "volumeMounts": [{"name": "private", "mountPath": paths.PRIVATE_DIR, "readOnly": True}],
    }


def container_disks(inputs: RenderInputs) -> list[tuple[str, ImageSource]]:
    """The names and sources of the guest's images: container disks and boot image.

    Raises ValueError for the launcher's own image. It may be reserved for the product's accounts:
    virt-controller creates the pod, and a user must not get access to the image through it.
    """
    found: list[tuple[str, ImageSource]] = [
        (volume.name, volume.container_disk) for volume in inputs.volumes if volume.container_disk is not None
    ]
    boot = inputs.domain.firmware.kernel_boot.container
    if boot is not None:
        found.append((KERNEL_BOOT_VOLUME, boot))
    for name, source in found:
        refuse_own_image(inputs, f"volume {name}", source.image)
    return found


def refuse_own_image(inputs: RenderInputs, place: str, image: str) -> None:
    """Raise ValueError if an instance uses the launcher's own image (with any tag) at `place`."""
    own = _repository(inputs.images.launcher)
    if _repository(image) == own:
        raise ValueError(f"{place}: {own} is the launcher's own image, which disks and sidecars may not use")


def _repository(reference: str) -> str:
    """An image reference without its tag and digest."""
    name = reference.partition("@")[0]
    path, colon, tag = name.rpartition(":")
    return path if colon and "/" not in tag else name


def image_containers(
    inputs: RenderInputs, pod_volumes: VolumeSet
) -> tuple[list[JsonObject], list[JsonObject]]:
    """Init containers and containers for the guest's images.

    With image volumes, an init container for each image makes its digest visible in the pod's status, which
    pins the image when the guest migrates. Without image volumes, a container for each image keeps it mounted
    for virt-handler.
    """
    disks = container_disks(inputs)
    if not disks:
        return [], []
    tools = {"name": BINARY_VOLUME, "mountPath": _TOOLS_DIR, "readOnly": True}
    if inputs.uses_image_volumes:
        if inputs.annotations.get("kubevirt.io/image-volume-skip-digest-resolution") == "true":
            return [], []
        pod_volumes.volumes.append(_launcher_volume(inputs))
        program = _TOOLS_DIR + _BUSYBOX
        return [_image_container(inputs, disk, "volume{}", [program, "true"], tools) for disk in disks], []
    pod_volumes.volumes.append({"name": BINARY_VOLUME, "emptyDir": {}})
    program = f"{_TOOLS_DIR}/busybox"
    inits = [_image_container(inputs, disk, "volume{}-init", [program, "true"], tools) for disk in disks]
    holders = [
        _image_container(inputs, disk, "volume{}", [program, "sh", "-c", _HOLD, image_holder(disk[0])], tools)
        for disk in disks
    ]
    return [_binary_container(inputs), *inits], holders


def _launcher_volume(inputs: RenderInputs) -> JsonObject:
    """The launcher's image as a volume, with the pull policy of its containers."""
    image = {"reference": inputs.images.launcher, "pullPolicy": inputs.settings.image_pull_policy}
    return {"name": BINARY_VOLUME, "image": image}


def _image_container(
    inputs: RenderInputs, disk: tuple[str, ImageSource], name: str, command: list[str], tools: JsonObject
) -> JsonObject:
    volume, source = disk
    container: JsonObject = {
        "name": name.format(volume),
        "image": inputs.image_digests.get(volume) or source.image,
        "command": command[:1],
        "args": command[1:],
        "resources": resources.support_resources(inputs, "container-disk"),
        "securityContext": restricted(),
        "volumeMounts": [tools],
    }
    if source.image_pull_policy:
        container["imagePullPolicy"] = source.image_pull_policy
    return container


def _binary_container(inputs: RenderInputs) -> JsonObject:
    return {
        "name": "container-disk-binary",
        "image": inputs.images.launcher,
        "imagePullPolicy": inputs.settings.image_pull_policy,
        "command": [_BUSYBOX],
        "args": ["cp", _BUSYBOX, f"{_TOOLS_DIR}/busybox"],
        "resources": resources.support_resources(inputs, "container-disk-binary"),
        "securityContext": restricted(group=True),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": BINARY_VOLUME, "mountPath": _TOOLS_DIR}],
    }


def virtiofs_containers(inputs: RenderInputs, pod_volumes: VolumeSet) -> list[JsonObject]:
    """One virtiofs server for each shared directory, but those of the launcher's container itself."""
    by_name = {volume.name: volume for volume in inputs.volumes}
    result = []
    for filesystem in inputs.devices.filesystems:
        name = filesystem.name
        volume = by_name.get(name, Volume(name=name))
        if volume.container_path is None:
            mounts = [mount for mount in pod_volumes.mounts if mount["name"] == name]
            result.append(share_server(inputs, name, _shared_directory(volume), mounts))
    return result


def share_server_name(volume: str) -> str:
    """The name of the container that shares a volume with the guest."""
    return f"virtiofs-{volume}"


def share_server(
    inputs: RenderInputs, name: str, folder: str, mounts: Sequence[JsonObject], options: Sequence[str] = ()
) -> JsonObject:
    """The container that shares `folder` with the guest, which mounts it by `name`."""
    sockets = f"{paths.SHARE_DIR}/virtiofs-containers"
    context = restricted(group=True)
    context["seccompProfile"] = _VIRTIOFS_PROFILE
    return {
        "name": share_server_name(name),
        "image": inputs.images.launcher,
        "imagePullPolicy": inputs.settings.image_pull_policy,
        # The product's: it becomes the distribution's newer server where there is one.
        "command": ["virtiofsd"],
        "args": [
            f"--socket-path={sockets}/{name}.sock",
            f"--shared-dir={folder}",
            "--sandbox=none",
            "--cache=auto",
            *options,
        ],
        "resources": resources.support_resources(inputs, "virtiofs"),
        "securityContext": context,
        "volumeMounts": [{"name": "virtiofs-containers", "mountPath": sockets}, *mounts],
    }


def _shared_directory(volume: Volume) -> str:
    if volume.service_account is not None:
        return "/var/run/secrets/kubernetes.io/serviceaccount/"
    return volumes.mount_path(volume) or f"{paths.PRIVATE_DIR}/vmi-disks/{volume.name}"

"""Rules on volumes, container disks and credentials."""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Iterator, Sequence

from kubecore.objects.quantity import Quantity
from virtplane.api.config import ClusterConfig
from virtplane.api.core_v1 import LocalObjectReference
from virtplane.api.kubevirt_v1.credentials import (
    AccessCredentialSecretSource,
    SSHPublicKeyAccessCredentialPropagationMethod,
)
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.api.kubevirt_v1.volume_sources import (
    CloudInitConfigDriveSource,
    CloudInitNoCloudSource,
    HostDisk,
)
from virtplane.api.kubevirt_v1.volumes import VOLUME_KINDS, Volume
from virtplane.api.markers import ApiStruct
from virtplane.serving.responses import NOT_FOUND, REQUIRED, Cause

MAX_CLOUD_INIT_BYTES = 2048


def volumes(field: str, entries: Sequence[Volume], config: ClusterConfig) -> Iterator[Cause]:
    """Each volume by itself, and how many there are of some. `field` is the path of the list."""
    first: dict[str, int] = {}
    for index, volume in enumerate(entries):
        own, name = f"{field}[{index}]", volume.name
        if name in first:
            yield Cause(f"{own} and {field}[{first[name]}] must not have the same Name.", f"{own}.name")
        first.setdefault(name, index)
        yield from _source(own, volume, config)
    for kind in VOLUME_KINDS:
        if kind.unique and sum(1 for volume in entries if kind.source(volume) is not None) > 1:
            yield Cause(f"{field} must have max one {kind.unique} set", field)


def _source(own: str, volume: Volume, config: ClusterConfig) -> Iterator[Cause]:
    if sum(1 for kind in VOLUME_KINDS if kind.source(volume) is not None) != 1:
        yield Cause(f"{own} must have exactly one source type set", own)
    if volume.data_volume is not None and not volume.data_volume.name:
        yield Cause("DataVolume 'name' must be set", f"{own}.name", REQUIRED)
    for kind, source in (
        ("cloudInitNoCloud", volume.cloud_init_no_cloud),
        ("cloudInitConfigDrive", volume.cloud_init_config_drive),
    ):
        if source is not None:
            yield from _cloud_init(f"{own}.{kind}", kind, source)
    if volume.downward_metrics is not None and not config.gate("DownwardMetrics"):
        yield Cause(
            "downwardMetrics disks are not allowed: DownwardMetrics feature gate is not enabled.", own
        )
    if volume.host_disk is not None:
        if not config.gate("HostDisk"):
            yield Cause("HostDisk feature gate is not enabled", own)
        yield from _host_disk(f"{own}.hostDisk", volume.host_disk)
    for known in VOLUME_KINDS:
        if known.lacks_required(volume):
            path = f"{own}.{known.name}.{known.required}"
            yield Cause(f"{path} is a required field", path)


def _cloud_init(
    own: str, kind: str, source: CloudInitNoCloudSource | CloudInitConfigDriveSource
) -> Iterator[Cause]:
    user = _given(source.secret_ref, source.user_data_base64, source.user_data)
    if user > 1:
        yield Cause(f"{own} must have only one userdatasource set.", own)
    yield from _cloud_init_data(own, kind, "userData", source.user_data, source.user_data_base64)
    network = _given(source.network_data_secret_ref, source.network_data_base64, source.network_data)
    if network > 1:
        yield Cause(f"{own} must have only one networkdata source set.", own)
    yield from _cloud_init_data(own, kind, "networkData", source.network_data, source.network_data_base64)
    if not user and not network:
        yield Cause(f"{own} must have at least one userdatasource or one networkdatasource set.", own)


def _given(secret: LocalObjectReference | None, *texts: str | None) -> int:
    """How many sources of data there are."""
    return sum(map(bool, (secret is not None and secret.name, *texts)))


def _cloud_init_data(own: str, kind: str, key: str, text: str | None, encoded: str | None) -> Iterator[Cause]:
    size = len((text or "").encode())
    if encoded:
        field = f"{own}.{key}Base64"
        try:
            size = len(base64.b64decode(encoded, validate=True))
        except (binascii.Error, ValueError):
            # The part is named twice, as in KubeVirt's message.
            yield Cause(f"{field}.{kind}.{key}Base64 is not a valid base64 value.", field)
            return
    if size > MAX_CLOUD_INIT_BYTES:
        yield Cause(
            f"{own} {key.lower()} exceeds {MAX_CLOUD_INIT_BYTES} byte limit."
            f" Should use {key[0].upper()}{key[1:]}SecretRef for larger data.",
            own,
        )


def _host_disk(own: str, source: HostDisk) -> Iterator[Cause]:
    if not source.path:
        yield Cause(f"{own}.path is required for hostDisk volume", f"{own}.path", NOT_FOUND)
    if source.type not in ("Disk", "DiskOrCreate"):
        yield Cause(
            f"{own}.type has invalid value '{source.type}', allowed are 'Disk' or 'DiskOrCreate'",
            f"{own}.type",
        )
    if source.type == "Disk" and not Quantity.parse(source.capacity or 0).is_zero:
        yield Cause(
            f"{own}.capacity is allowed to pass only with {own}.type equal to 'DiskOrCreate'",
            f"{own}.capacity",
        )


def container_paths(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Paths of disks within images are absolute and clean."""
    for index, volume in enumerate(spec.volumes):
        if volume.container_disk is not None:
            yield from inner_path(f"{path}.volumes[{index}].containerDisk", volume.container_disk.path)


def inner_path(field: str, path: str | None) -> Iterator[Cause]:
    """The path of a file within an image; a slash at its end does no harm."""
    if not path:
        return
    if path == "/":
        yield Cause(f"{field} must not point to root", field)
    elif posixpath.normpath("/" + path.lstrip("/")) != path.removesuffix("/"):
        yield Cause(f"{field} must be an absolute path to a file without relative components", field)


def credentials(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Access credentials have one type, one source and one way into the guest."""
    for index, credential in enumerate(spec.access_credentials):
        own = f"{path}.accessCredentials[{index}]"
        key, password = credential.ssh_public_key, credential.user_password
        if key is not None:
            yield from _propagation(own, key.propagation_method, spec.volumes)
            given = key.propagation_method
            methods = (given.no_cloud, given.config_drive, given.qemu_guest_agent)
            yield from _source_and_method(f"{own}.sshPublicKey", own, key.source.secret, methods)
        if password is not None:
            method = password.propagation_method.qemu_guest_agent
            yield from _source_and_method(f"{own}.userPassword", own, password.source.secret, (method,))
        if (key is None) == (password is None):
            yield Cause(f"{own} must have exactly one access credential type set", own)


def _propagation(
    own: str, methods: SSHPublicKeyAccessCredentialPropagationMethod, volumes: Sequence[Volume]
) -> Iterator[Cause]:
    """What each way of bringing keys into the guest needs."""
    field = f"{own}.sshPublicKey.propagationMethod"
    for name, method, carriers in (
        ("noCloud", methods.no_cloud, [volume.cloud_init_no_cloud for volume in volumes]),
        ("configDrive", methods.config_drive, [volume.cloud_init_config_drive for volume in volumes]),
    ):
        if method is not None and not any(carriers):
            yield Cause(
                f"{own} requires a {name} volume to exist when the {name} propagationMethod is in use.", field
            )
    if methods.qemu_guest_agent is not None and not methods.qemu_guest_agent.users:
        yield Cause(
            f"{own} requires at least one user to be present in the users list",
            f"{field}.qemuGuestAgent.users",
        )


def _source_and_method(
    field: str, own: str, secret: AccessCredentialSecretSource | None, methods: Sequence[ApiStruct | None]
) -> Iterator[Cause]:
    if secret is None:
        yield Cause(f"{own} must have exactly one source set", f"{field}.source")
    if sum(1 for method in methods if method is not None) != 1:
        yield Cause(f"{own} must have exactly one propagationMethod set", f"{field}.propagationMethod")

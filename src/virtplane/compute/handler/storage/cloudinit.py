"""Cloud-init data as an ISO image: NoCloud (label ``cidata``) and ConfigDrive (label ``config-2``)."""

from __future__ import annotations

import base64
import binascii
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

from virtplane.api import labels
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volume_sources import CloudInitConfigDriveSource, CloudInitNoCloudSource
from virtplane.compute.handler.rooted import Root

_MISSING = (
    "userDataBase64, userData, networkDataBase64 or networkData is required for a cloud-init data source"
)
_BLOCK_BYTES = 4096
_ESCAPED = "surrogateescape"
_PUBLIC_KEY_SUFFIX = "-public-keys"


CloudInitSource: TypeAlias = CloudInitNoCloudSource | CloudInitConfigDriveSource


class CloudInitError(Exception):
    """The instance's cloud-init data cannot be used."""


@dataclass(frozen=True, slots=True)
class CloudInitData:
    """The cloud-init data for the guest."""

    user_data: str
    """Bytes that are not UTF-8 are escaped (``surrogateescape``): cloud-init takes compressed data, too."""
    network_data: str


def read_data(source: CloudInitSource, root: Root, secrets: str) -> CloudInitData:
    """The data of a ``cloudInitNoCloud`` or ``cloudInitConfigDrive`` source.

    `secrets` is the folder in `root` where the pod mounted the secrets that the source refers to, below the
    volume's name. Raises CloudInitError when there is nothing or it is not decodable.
    """
    user = _inline("userData", source.user_data, source.user_data_base64) or _from_secret(
        root, secrets, ("userdata", "userData")
    )
    network = _inline("networkData", source.network_data, source.network_data_base64) or _from_secret(
        root, secrets, ("networkdata", "networkData")
    )
    if not user and not network:
        raise CloudInitError(_MISSING)
    return CloudInitData(user, network)


def _inline(field: str, plain: str | None, encoded: str | None) -> str:
    if not encoded:
        return plain or ""
    try:
        return base64.b64decode(encoded, validate=True).decode(errors=_ESCAPED)
    except binascii.Error as error:
        raise CloudInitError(f"{field}Base64 cannot be decoded: {error}") from error


def _from_secret(root: Root, folder: str, names: tuple[str, ...]) -> str:
    for name in names:
        if root.is_file(f"{folder}/{name}"):
            return root.read(f"{folder}/{name}").decode(errors=_ESCAPED)
    return ""


def no_cloud_files(vmi: VirtualMachineInstance, data: CloudInitData, keys: list[str]) -> dict[str, bytes]:
    """The files of a NoCloud image by name."""
    metadata = {
        "instance-type": _instance_type(vmi),
        "instance-id": vmi.spec.domain.firmware.uuid or f"{vmi.metadata.name}.{vmi.metadata.namespace}",
        "local-hostname": _hostname(vmi),
        "public-keys": {str(index): key for index, key in enumerate(keys)},
    }
    files = {"meta-data": _json(metadata), "user-data": data.user_data.encode(errors=_ESCAPED)}
    if data.network_data:
        files["network-config"] = data.network_data.encode(errors=_ESCAPED)
    return files


def config_drive_files(
    vmi: VirtualMachineInstance,
    data: CloudInitData,
    keys: list[str],
    devices: Sequence[Mapping[str, object]] = (),
) -> dict[str, bytes]:
    """The files of a ConfigDrive image by path; `devices` are those with a tag."""
    metadata = {
        "instance_type": _instance_type(vmi),
        "instance_id": f"{vmi.metadata.name}.{vmi.metadata.namespace}",
        "hostname": _hostname(vmi),
        "uuid": vmi.spec.domain.firmware.uuid,
        "devices": devices,
        "public_keys": {str(index): key for index, key in enumerate(keys)},
    }
    files = {"openstack/latest/meta_data.json": _json(metadata)}
    if data.user_data:
        files["openstack/latest/user_data"] = data.user_data.encode(errors=_ESCAPED)
    if data.network_data:
        files["openstack/latest/network_data.json"] = data.network_data.encode(errors=_ESCAPED)
    return files


def _json(metadata: Mapping[str, object]) -> bytes:
    """As KubeVirt writes it: guests find their data with tools that do not read JSON."""
    found = {key: value for key, value in metadata.items() if value}
    return json.dumps(found, separators=(",", ":")).encode()


def _hostname(vmi: VirtualMachineInstance) -> str:
    return vmi.spec.hostname or vmi.metadata.name[:63]


def _instance_type(vmi: VirtualMachineInstance) -> str:
    annotations = vmi.metadata.annotations
    names = (labels.CLUSTER_INSTANCETYPE_NAME, labels.INSTANCETYPE_NAME)
    return next((annotations[name] for name in names if name in annotations), "")


def public_keys(vmi: VirtualMachineInstance, root: Root, secrets: str) -> list[str]:
    """SSH keys of access credentials that are handed over through cloud-init, from the mounted secrets."""
    keys: list[str] = []
    for credential in vmi.spec.access_credentials:
        public = credential.ssh_public_key
        method = public.propagation_method if public is not None else None
        if public is None or method is None or (method.no_cloud is None and method.config_drive is None):
            continue
        secret = public.source.secret.secret_name if public.source.secret is not None else ""
        folder = f"{secrets}/{secret}-access-cred"
        if root.is_folder(folder):
            texts = root.texts(folder).values()
            keys += [line for text in texts for line in text.splitlines() if line.strip()]
    return keys


def write_iso(target: BinaryIO, label: str, files: Mapping[str, bytes]) -> None:
    """Write an ISO 9660 image with Rock Ridge and Joliet names, so that every guest reads the real ones.

    Its size is a multiple of a block of 4 KiB: on disks with such blocks QEMU reads no part of one.
    """
    # Imported for the first image: a node without guests is spared its 2 MiB.
    import pycdlib  # noqa: PLC0415

    image = pycdlib.PyCdlib()
    image.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=label)
    folders: set[str] = set()
    for number, (name, content) in enumerate(sorted(files.items())):
        *parents, _ = name.split("/")
        for depth in range(1, len(parents) + 1):
            folder = "/".join(parents[:depth])
            if folder not in folders:
                folders.add(folder)
                image.add_directory(
                    _short_folder(folder), rr_name=parents[depth - 1], joliet_path=f"/{folder}"
                )
        parent = _short_folder("/".join(parents)) if parents else ""
        image.add_fp(
            io.BytesIO(content),
            len(content),
            f"{parent}/FILE{number:04d}.;1",
            rr_name=name.rpartition("/")[2],
            joliet_path=f"/{name}",
        )
    image.write_fp(target)
    image.close()
    target.write(b"\0" * (-target.seek(0, os.SEEK_END) % _BLOCK_BYTES))


def _short_folder(folder: str) -> str:
    return "".join(f"/{part.upper()[:8]}" for part in folder.split("/"))

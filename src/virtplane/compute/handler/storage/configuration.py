"""Config maps, secrets, fields of the pod, its account's token as disks: ISO images of mounted files."""

from __future__ import annotations

import os

from virtplane.api.kubevirt_v1.volumes import Volume, kind_of
from virtplane.compute.domain.context import PRIVATE_DIRECTORY
from virtplane.compute.handler.rooted import NAMES_LIMIT, READ_LIMIT, Root
from virtplane.compute.handler.storage.cloudinit import write_iso
from virtplane.compute.handler.storage.images import BadImage

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_LABEL = "cfgdata"
_SYSPREP_LABEL = "unattendCD"
_ANSWER_FILES = ("autounattend.xml", "unattend.xml")


def create_disk(root: Root, volume: Volume) -> str:
    """Make the volume's disk unless it is there; its path in the launcher's file system `root`.

    Raises BadImage where the files cannot be a disk, and OSError where they are not mounted.
    """
    kind, name = kind_of(volume), volume.name
    assert kind is not None
    if volume.service_account is not None:
        folder, path = _ACCOUNT, f"{PRIVATE_DIRECTORY}/service-account-disk/service-account.iso"
    else:
        folder = kind.mount(name)
        path = f"{PRIVATE_DIRECTORY}/{kind.folder}-disks/{name}.iso"
    if not root.is_file(path):
        files = _files(root, folder)
        labelled = volume.config_map or volume.secret or volume.downward_api
        label = (labelled.volume_label if labelled is not None else None) or _LABEL
        if volume.sysprep is not None:
            label = _SYSPREP_LABEL
            _check_answers(name, files)
        root.create(path, lambda descriptor: _write(descriptor, name, label, files))
    return path


def is_configuration(volume: Volume) -> bool:
    """Whether a volume is one of these."""
    kind = kind_of(volume)
    return kind is not None and kind.is_made_of_files


def _files(root: Root, folder: str) -> dict[str, bytes]:
    """The files of a mounted volume by relative path, without the kubelet's internal ones. Raises BadImage
    for more data than a config map or secret can hold.
    """
    files: dict[str, bytes] = {}
    folders, seen, total = [""], 0, 0
    while folders:
        prefix = folders.pop()
        for name in root.names(f"{folder}/{prefix}"):
            if name.startswith(".."):
                continue
            path = f"{prefix}{name}"
            seen += 1
            if root.is_folder(f"{folder}/{path}"):
                folders.append(f"{path}/")
            else:
                files[path] = root.read(f"{folder}/{path}")
                total += len(files[path])
            if seen > NAMES_LIMIT or total > READ_LIMIT:
                raise BadImage(f"{folder} holds more than {NAMES_LIMIT} files or {READ_LIMIT} bytes")
    return files


def _check_answers(name: str, files: dict[str, bytes]) -> None:
    if not any(file.lower() in _ANSWER_FILES for file in files):
        wanted = " or ".join(_ANSWER_FILES)
        raise BadImage(f"sysprep volume {name} should have a file named {wanted}")


def _write(descriptor: int, name: str, label: str, files: dict[str, bytes]) -> None:
    # Imported for the first image, as by `write_iso`.
    from pycdlib.pycdlibexception import PyCdlibException  # noqa: PLC0415

    try:
        with os.fdopen(descriptor, "wb", closefd=False) as target:
            write_iso(target, label, files)
    except PyCdlibException as error:
        raise BadImage(f"the files of volume {name} cannot be written to an ISO image: {error}") from error

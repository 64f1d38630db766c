"""Rules on volumes, container disks and credentials."""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Iterator

from kubecore.json import JsonObject, get_list, get_object, get_str
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.volumes import VOLUME_KINDS
from virtplane.compute.apiserver.admission.response import NOT_FOUND, REQUIRED, Cause

MAX_CLOUD_INIT_BYTES = 2048


def volumes(field: str, entries: list[JsonObject], config: ClusterConfig) -> Iterator[Cause]:
    """Each volume by itself, and how many there are of some. `field` is the path of the list."""
    first: dict[str, int] = {}
    for index, volume in enumerate(entries):
        own, name = f"{field}[{index}]", get_str(volume, "name")
        if name in first:
            yield Cause(f"{own} and {field}[{first[name]}] must not have the same Name.", f"{own}.name")
        first.setdefault(name, index)
        yield from _source(own, volume, config)
    for kind in VOLUME_KINDS:
        if kind.unique and sum(1 for volume in entries if isinstance(volume.get(kind.name), dict)) > 1:
            yield Cause(f"{field} must have max one {kind.unique} set", field)


def _source(own: str, volume: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    if sum(1 for kind in VOLUME_KINDS if isinstance(volume.get(kind.name), dict)) != 1:
        yield Cause(f"{own} must have exactly one source type set", own)
    if isinstance(volume.get("dataVolume"), dict) and not get_str(volume, "dataVolume", "name"):
        yield Cause("DataVolume 'name' must be set", own, REQUIRED)
    for kind in ("cloudInitNoCloud", "cloudInitConfigDrive"):
        if isinstance(volume.get(kind), dict):
            yield from _cloud_init(f"{own}.{kind}", kind, volume[kind])
    if isinstance(volume.get("downwardMetrics"), dict) and not config.gate("DownwardMetrics"):
        yield Cause(
            "downwardMetrics disks are not allowed: DownwardMetrics feature gate is not enabled.", own
        )
    if isinstance(volume.get("hostDisk"), dict):
        yield from _host_disk(f"{own}.hostDisk", volume["hostDisk"], config)
    for known in VOLUME_KINDS:
        name, key = known.name, known.required
        if key and isinstance(volume.get(name), dict) and not get_str(volume, name, key):
            path = f"{own}.{name}.{key}"
            yield Cause(f"{path} is a required field", path)


def _cloud_init(own: str, kind: str, source: JsonObject) -> Iterator[Cause]:
    user = [key for key in ("secretRef", "userDataBase64", "userData") if source.get(key)]
    if len(user) > 1:
        yield Cause(f"{own} must have only one userdatasource set.", own)
    yield from _cloud_init_data(own, kind, source, "userData", "UserDataSecretRef")
    network = [key for key in ("networkDataSecretRef", "networkDataBase64", "networkData") if source.get(key)]
    if len(network) > 1:
        yield Cause(f"{own} must have only one networkdata source set.", own)
    yield from _cloud_init_data(own, kind, source, "networkData", "NetworkDataSecretRef")
    if not user and not network:
        yield Cause(f"{own} must have at least one userdatasource or one networkdatasource set.", own)


def _cloud_init_data(own: str, kind: str, source: JsonObject, key: str, secret: str) -> Iterator[Cause]:
    text, encoded = get_str(source, key), get_str(source, f"{key}Base64")
    size = len(text.encode())
    if encoded:
        field = f"{own}.{key}Base64"
        try:
            size = len(base64.b64decode(encoded, validate=True))
        except (binascii.Error, ValueError):
            # The part is named twice; clients know the message that way.
            yield Cause(f"{field}.{kind}.{key}Base64 is not a valid base64 value.", field)
            return
    if size > MAX_CLOUD_INIT_BYTES:
        yield Cause(
            f"{own} {key.lower()} exceeds {MAX_CLOUD_INIT_BYTES} byte limit."
            f" Should use {secret} for larger data.",
            own,
        )


def _host_disk(own: str, source: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    if not config.gate("HostDisk"):
        yield Cause("HostDisk feature gate is not enabled", own)
    if not get_str(source, "path"):
        yield Cause(f"{own}.path is required for hostDisk volume", f"{own}.path", NOT_FOUND)
    kind = get_str(source, "type")
    if kind not in ("Disk", "DiskOrCreate"):
        yield Cause(
            f"{own}.type has invalid value '{kind}', allowed are 'Disk' or 'DiskOrCreate'", f"{own}.type"
        )
    if kind == "Disk" and source.get("capacity") not in (None, "", "0", 0):
        yield Cause(
            f"{own}.capacity is allowed to pass only with {own}.type equal to 'DiskOrCreate'",
            f"{own}.capacity",
        )


def container_paths(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Paths within images are absolute and clean: of container disks, kernels and initrds."""
    for index, volume in enumerate(get_list(spec, "volumes")):
        yield from _inner_path(
            f"{path}.volumes[{index}].containerDisk", get_str(volume, "containerDisk", "path")
        )
    container = get_object(spec, "domain", "firmware", "kernelBoot", "container")
    base = f"{path}.domain.firmware.kernelBoot.container"
    for key in ("kernelPath", "initrdPath"):
        yield from _inner_path(f"{base}.{key}", get_str(container, key))


def _inner_path(field: str, path: str) -> Iterator[Cause]:
    if not path:
        return
    if path == "/":
        yield Cause(f"{field} must not point to root", field)
    elif not path.startswith("/") or posixpath.normpath(path) != path:
        yield Cause(f"{field} must be an absolute path to a file without relative components", field)


_KINDS = ("sshPublicKey", "userPassword")
_SSH_METHODS = ("noCloud", "configDrive", "qemuGuestAgent")


def credentials(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Access credentials have one type, one source and one way into the guest."""
    sources = get_list(spec, "volumes")
    for index, credential in enumerate(get_list(spec, "accessCredentials")):
        own = f"{path}.accessCredentials[{index}]"
        kinds = [kind for kind in _KINDS if isinstance(credential.get(kind), dict)]
        if len(kinds) != 1:
            yield Cause(f"{own} must have exactly one access credential type set", own)
        for kind in kinds:
            yield from _credential(f"{own}.{kind}", kind, credential[kind], sources)


def _credential(own: str, kind: str, credential: JsonObject, sources: list[JsonObject]) -> Iterator[Cause]:
    if sum(1 for value in get_object(credential, "source").values() if value is not None) != 1:
        yield Cause(f"{own}.source must have exactly one source set", f"{own}.source")
    method = get_object(credential, "propagationMethod")
    field = f"{own}.propagationMethod"
    methods = [name for name in _SSH_METHODS if method.get(name) is not None]
    if len(methods) != 1:
        yield Cause(f"{field} must have exactly one propagationMethod set", field)
    if kind != "sshPublicKey":
        return
    for name, volume in (("noCloud", "cloudInitNoCloud"), ("configDrive", "cloudInitConfigDrive")):
        if name in methods and not any(volume in source for source in sources):
            where = f"{field}.{name}"
            yield Cause(
                f"{where} requires a {name} volume to exist when the {name} propagationMethod is in use.",
                where,
            )
    if "qemuGuestAgent" in methods and not get_list(method, "qemuGuestAgent", "users"):
        where = f"{field}.qemuGuestAgent.users"
        yield Cause(f"{where} requires at least one user to be present in the users list", where)

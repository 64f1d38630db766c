"""Rules on volumes, container disks and credentials."""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Iterator

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.quantity import Quantity
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
        yield Cause("DataVolume 'name' must be set", f"{own}.name", REQUIRED)
    for kind in ("cloudInitNoCloud", "cloudInitConfigDrive"):
        if isinstance(volume.get(kind), dict):
            yield from _cloud_init(f"{own}.{kind}", kind, volume[kind])
    if isinstance(volume.get("downwardMetrics"), dict) and not config.gate("DownwardMetrics"):
        yield Cause(
            "downwardMetrics disks are not allowed: DownwardMetrics feature gate is not enabled.", own
        )
    if isinstance(volume.get("hostDisk"), dict):
        if not config.gate("HostDisk"):
            yield Cause("HostDisk feature gate is not enabled", own)
        yield from _host_disk(f"{own}.hostDisk", volume["hostDisk"])
    for known in VOLUME_KINDS:
        name, key = known.name, known.required
        if key and isinstance(volume.get(name), dict) and not get_str(volume, name, key):
            path = f"{own}.{name}.{key}"
            yield Cause(f"{path} is a required field", path)


def _cloud_init(own: str, kind: str, source: JsonObject) -> Iterator[Cause]:
    user = _sources(source, "secretRef", "userDataBase64", "userData")
    if len(user) > 1:
        yield Cause(f"{own} must have only one userdatasource set.", own)
    yield from _cloud_init_data(own, kind, source, "userData", "UserDataSecretRef")
    network = _sources(source, "networkDataSecretRef", "networkDataBase64", "networkData")
    if len(network) > 1:
        yield Cause(f"{own} must have only one networkdata source set.", own)
    yield from _cloud_init_data(own, kind, source, "networkData", "NetworkDataSecretRef")
    if not user and not network:
        yield Cause(f"{own} must have at least one userdatasource or one networkdatasource set.", own)


def _sources(source: JsonObject, secret: str, *texts: str) -> list[str]:
    given = [secret] if get_str(source, secret, "name") else []
    return given + [key for key in texts if source.get(key)]


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


def _host_disk(own: str, source: JsonObject) -> Iterator[Cause]:
    if not get_str(source, "path"):
        yield Cause(f"{own}.path is required for hostDisk volume", f"{own}.path", NOT_FOUND)
    kind = get_str(source, "type")
    if kind not in ("Disk", "DiskOrCreate"):
        yield Cause(
            f"{own}.type has invalid value '{kind}', allowed are 'Disk' or 'DiskOrCreate'", f"{own}.type"
        )
    if kind == "Disk" and not Quantity.parse(source.get("capacity") or 0).is_zero:
        yield Cause(
            f"{own}.capacity is allowed to pass only with {own}.type equal to 'DiskOrCreate'",
            f"{own}.capacity",
        )


def container_paths(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Paths of disks within images are absolute and clean."""
    for index, volume in enumerate(get_list(spec, "volumes")):
        field = f"{path}.volumes[{index}].containerDisk"
        yield from inner_path(field, get_str(volume, "containerDisk", "path"))


def inner_path(field: str, path: str) -> Iterator[Cause]:
    """The path of a file within an image; a slash at its end does no harm."""
    if not path:
        return
    if path == "/":
        yield Cause(f"{field} must not point to root", field)
    elif posixpath.normpath("/" + path.lstrip("/")) != path.removesuffix("/"):
        yield Cause(f"{field} must be an absolute path to a file without relative components", field)


_SSH_METHODS = {"noCloud": "cloudInitNoCloud", "configDrive": "cloudInitConfigDrive", "qemuGuestAgent": ""}
_METHODS = {"sshPublicKey": _SSH_METHODS, "userPassword": {"qemuGuestAgent": ""}}
"""How each kind of credential gets into the guest, with the kind of volume that carries it."""


def credentials(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Access credentials have one type, one source and one way into the guest."""
    volume_kinds = {kind for volume in get_list(spec, "volumes") for kind in volume}
    for index, credential in enumerate(get_list(spec, "accessCredentials")):
        own = f"{path}.accessCredentials[{index}]"
        kinds = [kind for kind in _METHODS if isinstance(credential.get(kind), dict)]
        for kind in kinds:
            yield from _credential(own, kind, credential[kind], volume_kinds)
        if len(kinds) != 1:
            yield Cause(f"{own} must have exactly one access credential type set", own)


def _credential(own: str, kind: str, credential: JsonObject, volume_kinds: set[str]) -> Iterator[Cause]:
    field = f"{own}.{kind}.propagationMethod"
    given = get_object(credential, "propagationMethod")
    methods = [name for name in _METHODS[kind] if given.get(name) is not None]
    for name in methods:
        if _METHODS[kind][name] not in volume_kinds | {""}:
            yield Cause(
                f"{own} requires a {name} volume to exist when the {name} propagationMethod is in use.", field
            )
    if (
        kind == "sshPublicKey"
        and "qemuGuestAgent" in methods
        and not get_list(given, "qemuGuestAgent", "users")
    ):
        yield Cause(
            f"{own} requires at least one user to be present in the users list",
            f"{field}.qemuGuestAgent.users",
        )
    if get_object(credential, "source").get("secret") is None:
        yield Cause(f"{own} must have exactly one source set", f"{own}.{kind}.source")
    if len(methods) != 1:
        yield Cause(f"{own} must have exactly one propagationMethod set", field)

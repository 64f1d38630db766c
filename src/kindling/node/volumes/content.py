"""The files of config map, secret, downward API and projected volumes; pure."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kindling.node.pods.downward_api import FieldProblem, NodeFacts, field_value, resource_value
from kindling.node.volumes.atomic_writer import File
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str

DEFAULT_MODE = 0o644

_MOST_BYTES = 64 * 1024 * 1024
"""Of one pod's rendered files together, of which those of secrets are in the node's memory."""

_PAGE = 4096
"""What even an empty file takes, and a directory."""
_DEEPEST = 64
"""Directories that a file may be below."""
_SHOWN = 128


class ContentProblem(Exception):
    """A volume's content cannot be made now; the text goes into the FailedMount event."""


class MountProblem(ContentProblem):
    """A step of a storage driver failed; `event_message` and `reason` are those of the pod's event."""

    def __init__(self, what: str, volume: str, message: str, reason: str = "FailedMount") -> None:
        super().__init__(message)
        self.reason = reason
        self.event_message = f'{what} for volume "{volume}" : {message}'


class NotAttached(ContentProblem):
    """A volume was not attached to the node in time."""


@dataclass(frozen=True, slots=True)
class Token:
    """A service account token of a projected volume. Times are seconds since the epoch."""

    text: str
    expires_at: float
    refresh_at: float


@dataclass(frozen=True)
class Materials:
    """What contents are made from. Objects are keyed by name, tokens by (audience, expiration)."""

    pod: JsonObject
    node: NodeFacts
    config_maps: Mapping[str, JsonObject] = field(default_factory=dict)
    secrets: Mapping[str, JsonObject] = field(default_factory=dict)
    tokens: Mapping[tuple[str, int], Token] = field(default_factory=dict)
    pod_ips: tuple[str, ...] = ()


class Allowance:
    """What the files of one pod's volumes may still take: a pod can name one long key of one small object
    under thousands of paths.
    """

    def __init__(self, most: int = _MOST_BYTES) -> None:
        self._most = self._left = most

    def take(self, file: File) -> File:
        """Count a file. Raises ContentProblem when it does not fit."""
        self._count(max(len(file.content), _PAGE))
        return file

    def take_directories(self, number: int) -> None:
        """Count directories. Raises ContentProblem when they do not fit."""
        self._count(number * _PAGE)

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ContentProblem(f"the pod's files of this kind take more than {self._most} bytes")


def references(volume: JsonObject) -> tuple[set[str], set[str]]:
    """The names of the config maps and secrets that a volume is rendered from."""
    sources = [volume, *get_list(volume, "projected", "sources")]
    config_maps = {get_str(source, "configMap", "name") for source in sources}
    secrets = {
        get_str(source, "secret", "secretName") or get_str(source, "secret", "name") for source in sources
    }
    return config_maps - {""}, secrets - {""}


def token_requests(volume: JsonObject) -> set[tuple[str, int]]:
    """(audience, expiration seconds) of the tokens that a projected volume wants."""
    return {
        (get_str(request, "audience"), int(request.get("expirationSeconds") or 3600))
        for source in get_list(volume, "projected", "sources")
        if (request := get_object(source, "serviceAccountToken"))
    }


def is_content(volume: JsonObject) -> bool:
    """Whether the agent renders the volume's files (config map, secret, downward API, projected)."""
    return any(kind in volume for kind in ("configMap", "secret", "downwardAPI", "projected"))


def payload(volume: JsonObject, materials: Materials, allowance: Allowance) -> dict[str, File]:
    """Files of a volume by relative path, all of them inside it. Raises ContentProblem."""
    try:
        files = _files(volume, materials, allowance)
    except ValueError as error:
        raise ContentProblem(f"its data cannot be read: {error}") from error
    for path in files:
        if not path or path.startswith(("/", "..")) or ".." in path.split("/"):
            raise ContentProblem(
                f"invalid path: {path!r} must be relative, inside the volume and without '..'"
            )
        if path.count("/") > _DEEPEST:
            raise ContentProblem(f"invalid path: {path[:_SHOWN]!r} is below more than {_DEEPEST} directories")
        allowance.take_directories(path.count("/"))
    return files


def _files(volume: JsonObject, materials: Materials, allowance: Allowance) -> dict[str, File]:
    if "configMap" in volume:
        return _config_map(volume["configMap"], materials, _mode(volume["configMap"]), allowance)
    if "secret" in volume:
        return _secret(volume["secret"], materials, _mode(volume["secret"]), allowance)
    if "downwardAPI" in volume:
        return _downward(volume["downwardAPI"], materials, _mode(volume["downwardAPI"]), allowance)
    files: dict[str, File] = {}
    mode = _mode(volume["projected"])
    for source in get_list(volume, "projected", "sources"):
        if "configMap" in source:
            files.update(_config_map(source["configMap"], materials, mode, allowance))
        elif "secret" in source:
            files.update(_secret(source["secret"], materials, mode, allowance))
        elif "downwardAPI" in source:
            files.update(_downward(source["downwardAPI"], materials, mode, allowance))
        elif "serviceAccountToken" in source:
            files.update(_token(source["serviceAccountToken"], materials, mode, allowance))
        else:
            raise ContentProblem(f"unsupported source of a projected volume: {', '.join(source)}")
    return files


def _mode(source: JsonObject) -> int:
    mode = source.get("defaultMode")
    return mode if isinstance(mode, int) else DEFAULT_MODE


def _config_map(source: JsonObject, materials: Materials, mode: int, allowance: Allowance) -> dict[str, File]:
    name = get_str(source, "name")
    found = materials.config_maps.get(name)
    if found is None:
        if get_bool(source, "optional"):
            return {}
        raise ContentProblem(f'configmap "{name}" not found')
    data, binary = get_object(found, "data"), get_object(found, "binaryData")

    def read(key: str) -> File:
        return allowance.take(
            File(base64.b64decode(binary[key]) if key in binary else data[key].encode(), mode)
        )

    return _select({**data, **binary}, read, source, "configmap references non-existent config key: {}")


def _secret(source: JsonObject, materials: Materials, mode: int, allowance: Allowance) -> dict[str, File]:
    name = get_str(source, "secretName") or get_str(source, "name")
    found = materials.secrets.get(name)
    if found is None:
        if get_bool(source, "optional"):
            return {}
        raise ContentProblem(f'secret "{name}" not found')
    data = get_object(found, "data")

    def read(key: str) -> File:
        return allowance.take(File(base64.b64decode(data[key]), mode))

    return _select(data, read, source, "references non-existent secret key: {}")


def _select(
    data: JsonObject, read: Callable[[str], File], source: JsonObject, missing: str
) -> dict[str, File]:
    items = get_list(source, "items")
    if not items:
        return {key: read(key) for key in data}
    files = {}
    for item in items:
        key = get_str(item, "key")
        if key not in data:
            if get_bool(source, "optional"):
                continue
            raise ContentProblem(missing.format(key))
        own = item.get("mode")
        file = read(key)
        files[get_str(item, "path")] = replace(file, mode=own) if isinstance(own, int) else file
    return files


def _downward(source: JsonObject, materials: Materials, mode: int, allowance: Allowance) -> dict[str, File]:
    files = {}
    for item in get_list(source, "items"):
        own = item.get("mode")
        try:
            if "fieldRef" in item:
                path = get_str(item, "fieldRef", "fieldPath")
                value = field_value(materials.pod, path, materials.node, materials.pod_ips)
            else:
                value = resource_value(
                    materials.pod, get_object(item, "resourceFieldRef"), "", materials.node
                )
        except FieldProblem as problem:
            raise ContentProblem(str(problem)) from problem
        file = File(value.encode(), own if isinstance(own, int) else mode)
        files[get_str(item, "path")] = allowance.take(file)
    return files


def _token(source: JsonObject, materials: Materials, mode: int, allowance: Allowance) -> dict[str, File]:
    wanted = (get_str(source, "audience"), int(source.get("expirationSeconds") or 3600))
    token = materials.tokens.get(wanted)
    if token is None:
        raise ContentProblem("the service account token has not been issued yet")
    uid = None
    if "fsGroup" in get_object(materials.pod, "spec", "securityContext"):
        mode = 0o600
    elif (user := _common_user(materials.pod)) is not None:
        uid, mode = user, 0o600
    return {get_str(source, "path"): allowance.take(File(token.text.encode(), mode, uid))}


def _common_user(pod: JsonObject) -> int | None:
    """The user ID that all containers of the pod run as; None unless they have one in common."""
    default = get_object(pod, "spec", "securityContext").get("runAsUser")
    users = {
        get_object(container, "securityContext").get("runAsUser", default)
        for container in get_list(pod, "spec", "initContainers") + get_list(pod, "spec", "containers")
    }
    only = users.pop() if len(users) == 1 else None
    return only if isinstance(only, int) else None

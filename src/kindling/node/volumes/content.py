"""The files of config map, secret, downward API and projected volumes; pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from kindling.node.pods.downward_api import FieldProblem, NodeFacts, field_value, resource_value
from kindling.node.volumes.atomic_writer import File
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str

DEFAULT_MODE = 0o644


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


def payload(volume: JsonObject, materials: Materials) -> dict[str, File]:
    """Files of a volume by relative path, all of them inside it. Raises ContentProblem."""
    try:
        files = _files(volume, materials)
    except ValueError as error:
        raise ContentProblem(f"its data cannot be read: {error}") from error
    for path in files:
        if not path or path.startswith(("/", "..")) or ".." in path.split("/"):
            raise ContentProblem(
                f"invalid path: {path!r} must be relative, inside the volume and without '..'"
            )
    return files


def _files(volume: JsonObject, materials: Materials) -> dict[str, File]:
    if "configMap" in volume:
        return _config_map(volume["configMap"], materials, _mode(volume["configMap"]))
    if "secret" in volume:
        return _secret(volume["secret"], materials, _mode(volume["secret"]))
    if "downwardAPI" in volume:
        return _downward(volume["downwardAPI"], materials, _mode(volume["downwardAPI"]))
    files: dict[str, File] = {}
    mode = _mode(volume["projected"])
    for source in get_list(volume, "projected", "sources"):
        if "configMap" in source:
            files |= _config_map(source["configMap"], materials, mode)
        elif "secret" in source:
            files |= _secret(source["secret"], materials, mode)
        elif "downwardAPI" in source:
            files |= _downward(source["downwardAPI"], materials, mode)
        elif "serviceAccountToken" in source:
            files |= _token(source["serviceAccountToken"], materials, mode)
        else:
            raise ContentProblem(f"unsupported source of a projected volume: {', '.join(source)}")
    return files


def _mode(source: JsonObject) -> int:
    mode = source.get("defaultMode")
    return mode if isinstance(mode, int) else DEFAULT_MODE


def _config_map(source: JsonObject, materials: Materials, mode: int) -> dict[str, File]:
    name = get_str(source, "name")
    found = materials.config_maps.get(name)
    if found is None:
        if get_bool(source, "optional"):
            return {}
        raise ContentProblem(f'configmap "{name}" not found')
    data = {key: value.encode() for key, value in get_object(found, "data").items()}
    data |= {key: base64.b64decode(value) for key, value in get_object(found, "binaryData").items()}
    return _select(data, source, mode, "configmap references non-existent config key: {}")


def _secret(source: JsonObject, materials: Materials, mode: int) -> dict[str, File]:
    name = get_str(source, "secretName") or get_str(source, "name")
    found = materials.secrets.get(name)
    if found is None:
        if get_bool(source, "optional"):
            return {}
        raise ContentProblem(f'secret "{name}" not found')
    data = {key: base64.b64decode(value) for key, value in get_object(found, "data").items()}
    return _select(data, source, mode, "references non-existent secret key: {}")


def _select(data: Mapping[str, bytes], source: JsonObject, mode: int, missing: str) -> dict[str, File]:
    items = get_list(source, "items")
    if not items:
        return {key: File(value, mode) for key, value in data.items()}
    files = {}
    for item in items:
        key = get_str(item, "key")
        if key not in data:
            if get_bool(source, "optional"):
                continue
            raise ContentProblem(missing.format(key))
        own = item.get("mode")
        files[get_str(item, "path")] = File(data[key], own if isinstance(own, int) else mode)
    return files


def _downward(source: JsonObject, materials: Materials, mode: int) -> dict[str, File]:
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
        files[get_str(item, "path")] = File(value.encode(), own if isinstance(own, int) else mode)
    return files


def _token(source: JsonObject, materials: Materials, mode: int) -> dict[str, File]:
    wanted = (get_str(source, "audience"), int(source.get("expirationSeconds") or 3600))
    token = materials.tokens.get(wanted)
    if token is None:
        raise ContentProblem("the service account token has not been issued yet")
    uid = None
    if "fsGroup" in get_object(materials.pod, "spec", "securityContext"):
        mode = 0o600
    elif (user := _common_user(materials.pod)) is not None:
        uid, mode = user, 0o600
    return {get_str(source, "path"): File(token.text.encode(), mode, uid)}


def _common_user(pod: JsonObject) -> int | None:
    """The user ID that all containers of the pod run as; None unless they have one in common."""
    default = get_object(pod, "spec", "securityContext").get("runAsUser")
    users = {
        get_object(container, "securityContext").get("runAsUser", default)
        for container in get_list(pod, "spec", "initContainers") + get_list(pod, "spec", "containers")
    }
    only = users.pop() if len(users) == 1 else None
    return only if isinstance(only, int) else None

"""NetworkAttachmentDefinitions, and the CNI configurations in them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from kindling.network import pod_filter
from kindling.node.files import read_end
from kindling.node.networks import overlays, policy
from kindling.node.networks.overlays import Overlay
from kindling.node.networks.problems import NetworkProblem
from kindling.node.networks.selection import NetworkSelection
from kindling.node.programs import run_program
from kubecore import json
from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from kubecore.resources import ResourceType

_log = logging.getLogger(__name__)

DEFINITIONS = ResourceType(
    "k8s.cni.cncf.io", "v1", "network-attachment-definitions", "NetworkAttachmentDefinition"
)
_MAX_CONFIG = 256 * 1024
_MAX_FILES = 1000
_VERSIONS = ("", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
"""Of the CNI specification. Plugins are always called with 1.0.0, which all that may run speak."""


class NotFound(NetworkProblem):
    """There is no such NetworkAttachmentDefinition."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network as the node sets it up."""

    name: str
    """In the CNI configuration, which is not the definition's own name."""
    plugins: tuple[JsonObject, ...]
    keeps_addresses: bool = False
    """Addresses are kept for whoever has a claim on them (``allowPersistentIPs``)."""
    overlay: Overlay | None = None
    """Set where the first plugin attaches to a network of all nodes, which is to be there before."""


class Definitions:
    """Reads definitions from the API; those without a configuration name a file in `files`."""

    def __init__(self, client: Client, files: Path) -> None:
        self._client = client
        self._files = files

    async def read(self, wanted: NetworkSelection) -> Network:
        """The network that is asked for. Raises NotFound, NetworkProblem."""
        try:
            found = await self._client.get(DEFINITIONS, wanted.name, wanted.namespace)
        except (StatusError, ConnectionFailed) as error:
            text = (
                f"cannot find a network-attachment-definition ({wanted.name}) in namespace "
                f"({wanted.namespace}): {error}"
            )
            is_missing = isinstance(error, StatusError) and error.code == 404
            raise (NotFound if is_missing else NetworkProblem)(text) from error
        config = get_str(found, "spec", "config")
        if not config:
            config = await asyncio.to_thread(_from_file, self._files, wanted.name)
        pod_links = await _ports(pod_filter.BRIDGE)
        try:
            return parse(config, wanted, pod_links)
        except NetworkProblem as problem:
            raise NetworkProblem(f"{wanted.network}: {problem}") from problem


def parse(config: str, wanted: NetworkSelection, pod_links: Collection[str]) -> Network:
    """The network of a CNI configuration, or of a list of them, for a pod that asks for it (pure).

    `pod_links` are the ports of the pod network's bridge. Raises NetworkProblem.
    """
    document = _object(config)
    version = get_str(document, "cniVersion")
    if version not in _VERSIONS:
        raise NetworkProblem(f"cniVersion {version[:32]!r} is not known")
    if get_str(document, "type"):
        plugins: list[Any] = [document]
    else:
        plugins = list(get_list(document, "plugins"))
        if not plugins:
            raise NetworkProblem("LoadDelegateNetConfList: delegate must have the 'type' or 'plugin' field")
    if len(plugins) > policy.MAX_PLUGINS:
        raise NetworkProblem(f"{len(plugins)} plugins are more than a network may have")
    if not all(isinstance(plugin, dict) and plugin.get("type") for plugin in plugins):
        raise NetworkProblem("LoadDelegateNetConfList: a plugin delegate must have the 'type' field")
    name = policy.check_name(get_str(document, "name") or wanted.name)
    overlay, admitted = None, []
    if get_str(plugins[0], "type") == overlays.KIND:
        overlay = overlays.read(plugins.pop(0), name, wanted)
        admitted.append(overlay.plugin())
    admitted += [policy.admitted(_with_arguments(plugin, wanted), pod_links) for plugin in plugins]
    return Network(
        name=name,
        plugins=tuple(admitted),
        keeps_addresses=any(get_bool(item, "allowPersistentIPs") for item in (document, *plugins)),
        overlay=overlay,
    )


def _with_arguments(plugin: JsonObject, wanted: NetworkSelection) -> Mapping[str, Any]:
    """The pod's cni-args win over those of the definition."""
    if not wanted.cni_args:
        return plugin
    return {**plugin, "args": {"cni": {**get_object(plugin, "args", "cni"), **wanted.cni_args}}}


def _object(config: str) -> JsonObject:
    if len(config) > _MAX_CONFIG:
        raise NetworkProblem(f"a configuration of more than {_MAX_CONFIG} characters")
    try:
        document = json.decode(config.encode())
    except (orjson.JSONDecodeError, json.TooDeep) as error:
        raise NetworkProblem(f"LoadDelegateNetConf: error unmarshalling delegate config: {error}") from error
    if not isinstance(document, dict):
        raise NetworkProblem("LoadDelegateNetConf: error unmarshalling delegate config: not an object")
    return document


async def _ports(bridge: str) -> frozenset[str]:
    """The ports of a bridge of the node; none while there is no such bridge. Raises NetworkProblem."""
    # Not from /sys, which shows the links of the machine: it is mounted outside of the node.
    code, listed, problem = await run_program("ip", "-j", "link", "show", "type", "bridge_slave", seconds=20)
    if code != 0:
        raise NetworkProblem(f"listing the ports of the node's bridges: {problem}")
    found = json.decode((listed or "[]").encode())
    return frozenset(str(item["ifname"]) for item in found if item.get("master") == bridge)


def _from_file(directory: Path, name: str) -> str:
    """The configuration of this name in the administrator's directory. Raises NetworkProblem."""
    endings = (".conf", ".conflist", ".json")
    try:
        files = sorted(path for path in islice(directory.iterdir(), _MAX_FILES) if path.suffix in endings)
    except OSError:
        files = []
    if not files:
        raise NetworkProblem(f"GetCNIConfig: err in GetCNIConfigFromFile: No networks found in {directory}")
    for path in files:
        try:
            text = read_end(path, _MAX_CONFIG).decode("utf-8", "replace")
            if get_str(_object(text), "name") == name:
                return text
        except (OSError, NetworkProblem) as error:
            _log.warning("the CNI configuration %s cannot be read, trying the next: %s", path, error)
    raise NetworkProblem(
        f"GetCNIConfig: err in GetCNIConfigFromFile: no network available in the name {name} in cni dir "
        f"{directory}"
    )

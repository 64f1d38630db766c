"""Hook sidecars: containers of the launcher's pod that may change the domain and the cloud-init data.

They are asked over gRPC, each by a socket in a folder of its own. They are the tenant's: what they answer is
limited in size and time and has the rights of the launcher, no more. The folders are the kubelet's work, so
that their number is known whatever the configuration says meanwhile.
"""

from __future__ import annotations

import json
import logging
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lxml import etree

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.hooks import messages
from virtplane.compute.handler.hooks.calls import (
    QUOTED,
    Channel,
    HookError,
    asked,
    document,
    own_domain,
    parsed,
)
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import PodPaths
from virtplane.compute.handler.storage.cloudinit import CloudInitData
from virtplane.compute.handler.threads import StepBlocked, Steps

if TYPE_CHECKING:
    from kubecore.wire import Message

logger = logging.getLogger(__name__)

DEFINE, CLOUD_INIT, SHUTDOWN = "OnDefineDomain", "PreCloudInitIso", "Shutdown"
_VOLUME = "hook-sidecar-sockets"
_FOLDER = re.compile(r"hook-sidecar-(0|[1-9][0-9]?)", re.ASCII)
_MOST_NAMES = 64
"""Names in a sidecar's folder that are looked at."""

_MOST_POINTS = 16
CALL_SECONDS = 20.0
"""A step that asks one sidecar ends before a step counts as blocked."""

_INFO_SECONDS = 5.0

_TABLES = ("system", "bios", "baseBoard", "chassis")
"""Tables of SMBIOS, in the order in which sidecars see them."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """One sidecar, as it presents itself."""

    socket: Path
    """Below the folder of all sidecars."""
    name: str
    version: str
    priorities: tuple[tuple[str, int], ...]
    """The hooks that it wants, each with its priority; higher ones are called first."""

    def priority(self, hook: str) -> int | None:
        """The priority of a hook that it wants, else None."""
        return dict(self.priorities).get(hook)


class HookSidecars:
    """The sidecars of one launcher's pod."""

    def __init__(self, paths: PodPaths, steps: Steps) -> None:
        self._folder = paths.empty_dir(_VOLUME)
        self._steps = steps
        self._known: tuple[Sidecar, ...] | None = None

    async def define(self, vmi: VirtualMachineInstance, name: str, xml: str) -> str:
        """The XML of the domain `name` after every sidecar has seen it. Raises HookError, StepBlocked and
        OSError.
        """
        if self._known is None:
            self._known = await self._steps.run("hooks", self._present)
        for sidecar in self._wanting(DEFINE):
            told = shown_domain(sidecar.name, xml)
            values = {"domainXML": told.encode(), "vmi": document(vmi)}
            answer = await self._steps.run("hook", self._call, sidecar, DEFINE, values)
            xml = checked_domain(sidecar.name, name, answer.domainXML)
        return xml

    def change_cloud_init(self, vmi: VirtualMachineInstance, data: CloudInitData) -> CloudInitData:
        """The cloud-init data after every sidecar has seen it, in a thread that may block. Raises HookError
        and OSError.
        """
        if self._known is None:
            self._known = self._present()
        for sidecar in self._wanting(CLOUD_INIT):
            told = {"UserData": data.user_data, "NetworkData": data.network_data}
            source = {"userData": data.user_data, "networkData": data.network_data}
            values = {
                "cloudInitData": json.dumps(told).encode(),
                "cloudInitNoCloudSource": json.dumps(source).encode(),
                "vmi": document(vmi),
            }
            answer = self._call(sidecar, CLOUD_INIT, values)
            data = changed_data(sidecar.name, answer.cloudInitData, answer.cloudInitNoCloudSource)
        return data

    async def shut_down(self) -> None:
        """Tell sidecars that their guest has ended. Nobody waits for those that do not listen."""
        for sidecar in self._known or ():
            if sidecar.priority(SHUTDOWN) is None or sidecar.version != "v1alpha3":
                continue
            try:
                await self._steps.run("hook", self._call, sidecar, SHUTDOWN, {})
            except (HookError, OSError, StepBlocked) as error:
                logger.info("A hook sidecar did not hear of the end", extra={"err": str(error)})

    def _wanting(self, hook: str) -> list[Sidecar]:
        """The sidecars that want a hook, in the order of their calls."""
        ranked = [(each.priority(hook), each) for each in self._known or ()]
        wanting = [(-priority, each.name, each) for priority, each in ranked if priority is not None]
        return [each for _, _, each in sorted(wanting, key=lambda item: item[:2])]

    def _present(self) -> tuple[Sidecar, ...]:
        if not self._folder.is_dir():
            return ()
        with Root(self._folder, beneath=True) as root:
            folders = sorted(
                (name for name in root.names(".") if _FOLDER.fullmatch(name)),
                key=lambda name: (len(name), name),
            )
            sockets = [_socket_in(root, folder) for folder in folders]
        return tuple(self._introduced(Path(socket)) for socket in sockets)

    def _introduced(self, socket: Path) -> Sidecar:
        info = messages.info()
        with self._channel(socket) as channel:
            call = info.stub(channel, "Info")["Info"]
            said = asked(call, info.message("InfoParams"), _INFO_SECONDS, _silent(socket))
        version = next((each for each in messages.VERSIONS if each in said.versions), None)
        if version is None:
            raise HookError(f"hook sidecar {socket.parent.name} speaks none of {messages.VERSIONS}")
        points = tuple((str(each.name), int(each.priority)) for each in said.hookPoints[:_MOST_POINTS])
        return Sidecar(socket, str(said.name)[:QUOTED], version, points)

    def _call(self, sidecar: Sidecar, hook: str, values: dict[str, bytes]) -> Message:
        callbacks = messages.callbacks(sidecar.version)
        methods = callbacks.methods["Callbacks"]
        if hook not in methods:
            raise HookError(f"hook sidecar {sidecar.name} has no {hook} in version {sidecar.version}")
        with self._channel(sidecar.socket) as channel:
            call = callbacks.stub(channel, "Callbacks")[hook]
            request = callbacks.message(f"{hook}Params", values)
            return asked(call, request, CALL_SECONDS, _silent(sidecar.socket))

    def _channel(self, socket: Path) -> Channel:
        return Channel(self._folder / socket, self._folder)


def _silent(socket: Path) -> str:
    return f"hook sidecar {socket.parent.name} does not answer"


def _socket_in(root: Root, folder: str) -> str:
    """The first socket in a sidecar's folder."""
    for name in sorted(root.names(folder)[:_MOST_NAMES]):
        if stat.S_ISSOCK(root.mode(f"{folder}/{name}")):
            return f"{folder}/{name}"
    raise HookError(f"{folder} has not opened its socket yet")


def shown_domain(sidecar: str, xml: str) -> str:
    """The domain as KubeVirt shows it to sidecars, many of which change its text (pure). Raises HookError.

    Elements without content have an end tag, and the tables of SMBIOS are there even where they are empty.
    """
    root = parsed(f"hook sidecar {sidecar}", xml.encode())
    tables = root.find("sysinfo")
    if tables is not None:
        for index, name in enumerate(_TABLES):
            if tables.find(name) is None:
                tables.insert(index, etree.Element(name))
    for node in root.iter(etree.Element):
        if len(node) == 0 and node.text is None:
            node.text = ""
    return etree.tostring(root, encoding="unicode")


def checked_domain(sidecar: str, name: str, answer: bytes) -> str:
    """The XML that a sidecar made of the domain `name` (pure). Raises HookError."""
    root = own_domain(f"hook sidecar {sidecar}", name, answer)
    for tables in root.findall("sysinfo"):
        for table in [each for each in tables if len(each) == 0]:
            tables.remove(table)
    return etree.tostring(root, encoding="unicode")


def changed_data(sidecar: str, data: bytes, source: bytes) -> CloudInitData:
    """The cloud-init data that a sidecar made; old ones answer in the form of a volume's source (pure).

    Raises HookError.
    """
    try:
        said = json.loads(data or source)
    except (ValueError, RecursionError) as error:
        text = f"hook sidecar {sidecar} answers with no JSON: {str(error)[:QUOTED]}"
        raise HookError(text) from error
    names = ("UserData", "NetworkData") if data else ("userData", "networkData")
    found = [said.get(name) or "" for name in names] if isinstance(said, dict) else [None]
    if not all(isinstance(text, str) for text in found):
        raise HookError(f"hook sidecar {sidecar} answers with cloud-init data that is no text")
    return CloudInitData(*found)

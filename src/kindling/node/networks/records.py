"""What was attached to which sandbox: written down before a plugin runs, and removed after it undid its work.

Like the results that libcni keeps, a record has everything that DEL needs, so that the definition, the pod
and the agent that made the attachment may be gone by then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kindling.node.networks.selection import NetworkSelection
from kubecore.json import get_str

_log = logging.getLogger(__name__)

_SANDBOX = re.compile(r"[A-Za-z0-9_-]{1,128}")


class PodName(msgspec.Struct, frozen=True, kw_only=True):
    """The pod whose sandbox it is."""

    namespace: str
    name: str
    uid: str


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """One network of a sandbox. `result` is the plugins' CNI result; None until they have succeeded."""

    sandbox: str
    interface: str
    wanted: NetworkSelection
    pod: PodName
    namespace_path: str
    """The file of the sandbox's network namespace."""
    name: str
    """The network's name in its CNI configuration."""
    plugins: tuple[Mapping[str, Any], ...]
    capabilities: Mapping[str, Any] = {}
    """What plugins that declare the capability get as runtimeConfig."""
    arguments: tuple[tuple[str, str], ...] = ()
    """CNI_ARGS beside those that name the pod."""
    made: int = 0
    """Counts the attachments of the sandbox, so that they are undone in the reverse order."""
    result: Mapping[str, Any] | None = None


class Records:
    """The attachments of all sandboxes of a node: files in `directory`, read once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, dict[str, Attachment]] = {}

    def load(self) -> None:
        """Read what earlier agents wrote. Raises OSError."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in self._directory.glob("*.new"):
            path.unlink()  # An agent was killed while it wrote; the record before it holds, or there is none.
        for path in sorted(self._directory.glob("*.json")):
            try:
                found = msgspec.json.decode(path.read_bytes(), type=Attachment)
            except msgspec.MsgspecError as error:
                # Files are replaced as a whole, so somebody else wrote this one.
                _log.error("the attachment in %s cannot be read, so it is not undone: %s", path, error)
                continue
            self._known.setdefault(found.sandbox, {})[found.interface] = found

    def of(self, sandbox: str) -> list[Attachment]:
        """The attachments of a sandbox, in the order in which they were made."""
        return sorted(self._known.get(sandbox, {}).values(), key=lambda item: item.made)

    def sandboxes(self) -> set[str]:
        """The sandboxes with attachments."""
        return set(self._known)

    def bridges(self) -> set[str]:
        """The bridges of the node that attachments are ports of."""
        attached = (item for of_sandbox in self._known.values() for item in of_sandbox.values())
        return {get_str(plugin, "bridge") for item in attached for plugin in item.plugins}

    async def write(self, attachment: Attachment) -> None:
        """Write an attachment down, for good before this returns. Raises OSError."""
        path = self._path(attachment)
        await asyncio.to_thread(_replace, path, msgspec.json.encode(attachment))
        self._known.setdefault(attachment.sandbox, {})[attachment.interface] = attachment

    async def completed(self, attachment: Attachment, result: Mapping[str, Any]) -> Attachment:
        """Write down the result of an attachment that was made, and return it with that. Raises OSError."""
        done = msgspec.structs.replace(attachment, result=result)
        await self.write(done)
        return done

    async def remove(self, attachment: Attachment) -> None:
        """Forget an attachment that was undone. Raises OSError."""
        await asyncio.to_thread(self._path(attachment).unlink, missing_ok=True)
        of_sandbox = self._known.get(attachment.sandbox, {})
        of_sandbox.pop(attachment.interface, None)
        if not of_sandbox:
            self._known.pop(attachment.sandbox, None)

    def _path(self, attachment: Attachment) -> Path:
        if not _SANDBOX.fullmatch(attachment.sandbox):
            raise OSError(f"{attachment.sandbox!r} is not the ID of a sandbox")
        return self._directory / f"{attachment.sandbox}.{attachment.interface}.json"


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(descriptor)
    temporary.replace(path)

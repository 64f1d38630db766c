"""The few calls of an oVirt engine's REST API that an import needs: disks, snapshots, image transfers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from lxml import etree
from yarl import URL

from virtplane.storage.cdi.importer.http import Web, reason
from virtplane.storage.cdi.importer.outcome import ImportFailed

_log = logging.getLogger(__name__)

RAW = "raw"
QCOW2 = "cow"
TRANSFERRING = "transferring"

_INITIALIZING = "initializing"
_ENDED = frozenset(
    {
        "cancelled",
        "cancelled_system",
        "cancelled_user",
        "finalizing_cleanup",
        "finalizing_failure",
        "finalizing_success",
        "finished_failure",
        "finished_success",
    }
)
"""Phases in which nothing is left to do: the disk is free, or is about to be."""
_INACTIVITY_SECONDS = 60
"""After so long without a request the engine gives a transfer up by itself: an importer may be killed."""
_EXTEND_SECONDS = 30.0
_LOCKED = ("Disk is locked", "disks are locked")
_LOCKED_SECONDS = 15.0
_POLL_SECONDS = 1.0
_GRACE_SECONDS = 5.0
"""For the answer to a request that was already sent: a pod that is removed has 30 seconds."""
_CLEANUPS = 10
_CLEANUP_SECONDS = 2.0
_REASON_CHARACTERS = 500


class EngineError(Exception):
    """The engine refuses, cannot be reached, or answers what cannot be read.

    `status` is 0 without an answer.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk. `size_bytes` includes its snapshots; `image` is the id of its active layer."""

    id: str
    size_bytes: int
    image: str
    domains: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A layer of a disk."""

    id: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """The right to read a disk for a while.

    `addresses` are where it is served: by the host, by the engine.
    """

    id: str
    phase: str
    addresses: tuple[str, ...]


class Engine:
    """A session with the engine whose API is at `endpoint`."""

    def __init__(self, web: Web, endpoint: URL) -> None:
        self._web, self._endpoint = web, endpoint
        self._token = ""

    async def log_in(self, user: str, password: str) -> None:
        """Get a token. Raises EngineError."""
        form = {"grant_type": "password", "scope": "ovirt-app-api", "username": user, "password": password}
        answer = await self._form("/ovirt-engine/sso/oauth/token", form)
        try:
            document = json.loads(answer)
            token = document.get("access_token")
            problem = document.get("error_description") or document.get("error") or "there is no token"
        except (ValueError, AttributeError, RecursionError) as error:
            raise EngineError("the answer of the single sign-on is no JSON object") from error
        if not isinstance(token, str) or not token:
            raise EngineError(str(problem)[:_REASON_CHARACTERS])
        self._token = token

    async def log_out(self) -> None:
        """Give the token back; the engine forgets it by itself, too."""
        with contextlib.suppress(EngineError):
            await self._form("/ovirt-engine/services/sso-logout", {"scope": "", "token": self._token})

    async def disk(self, name: str) -> Disk:
        """The disk with the id `name`. Raises EngineError."""
        found = await self._call("GET", "disks", name)
        domains = (each.get("id", "") for each in found.iterfind("storage_domains/storage_domain"))
        return Disk(
            found.get("id") or name,
            _number(found, "total_size"),
            found.findtext("image_id", ""),
            tuple(each for each in domains if each),
        )

    async def snapshot(self, disk: Disk, name: str) -> Snapshot | None:
        """The layer of `disk` with the id `name`; None if there is none. Raises EngineError."""
        for domain in disk.domains:
            found = await self._call("GET", "storagedomains", domain, "disksnapshots")
            for each in found.iterfind("disk_snapshot"):
                if each.get("id") == name:
                    return Snapshot(name, _number(each, "actual_size"))
        return None

    async def begin(self, source: Disk | Snapshot, image_format: str) -> Transfer:
        """Begin a download of `source`; a disk that is locked is waited for. Raises EngineError."""
        document = etree.Element("image_transfer")
        etree.SubElement(document, "snapshot" if isinstance(source, Snapshot) else "image", id=source.id)
        for name, text in (
            ("direction", "download"),
            ("format", image_format),
            ("inactivity_timeout", str(_INACTIVITY_SECONDS)),
        ):
            etree.SubElement(document, name).text = text
        while True:
            try:
                return _transfer(await self._call("POST", "imagetransfers", body=etree.tostring(document)))
            except EngineError as error:
                if not any(text in str(error) for text in _LOCKED):
                    raise
                _log.info("the disk is locked; trying again in %d seconds", _LOCKED_SECONDS)
            await asyncio.sleep(_LOCKED_SECONDS)

    async def transfer(self, name: str) -> Transfer:
        """The transfer as it is now. Raises EngineError."""
        return _transfer(await self._call("GET", "imagetransfers", name))

    async def act(self, name: str, action: str) -> None:
        """Do `action` (finalize, cancel, extend) to a transfer. Raises EngineError."""
        await self._call("POST", "imagetransfers", name, action, body=b"<action/>")

    async def _call(self, method: str, *path: str, body: bytes | None = None) -> etree._Element:
        headers = {"Accept": "application/xml", "Authorization": f"Bearer {self._token}"}
        if body is not None:
            headers["Content-Type"] = "application/xml"
        url = self._endpoint
        for part in path:
            url = url / part
        status, content = await self._send(method, url, headers, body)
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
        try:
            found = etree.fromstring(content, parser)
        except etree.XMLSyntaxError as error:
            raise EngineError(f"status {status}, and the answer is no XML", status) from error
        if status >= 300:
            text = (
                found.findtext("detail") or found.findtext("reason") or found.findtext("fault/detail") or ""
            )
            raise EngineError(f"status {status}: {text[:_REASON_CHARACTERS]}", status)
        return found

    async def _form(self, path: str, form: dict[str, str]) -> bytes:
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        url = self._endpoint.origin().with_path(path)
        _, content = await self._send("POST", url, headers, URL.build(query=form).raw_query_string.encode())
        return content

    async def _send(
        self, method: str, url: URL, headers: dict[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        try:
            return await self._web.call(method, url, headers, body)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise EngineError(reason(error)) from error


@asynccontextmanager
async def session(web: Web, endpoint: URL, user: str, password: str) -> AsyncIterator[Engine]:
    """A session that is ended with the context. Raises ImportFailed."""
    engine = Engine(web, endpoint)
    try:
        await engine.log_in(user, password)
    except EngineError as error:
        raise failed(f"Error creating connection: {error}") from error
    try:
        yield engine
    finally:
        await engine.log_out()


@asynccontextmanager
async def transferring(engine: Engine, source: Disk | Snapshot, image_format: str) -> AsyncIterator[Transfer]:
    """A transfer that can be read while the context lasts, and is ended with it whatever happens.

    Raises ImportFailed.
    """
    beginning = asyncio.create_task(engine.begin(source, image_format))
    try:
        transfer = await asyncio.shield(beginning)
    except EngineError as error:
        raise failed(f"Error sending transfer image request: {error}") from error
    except asyncio.CancelledError:
        # The engine may have begun one already, which would keep the disk locked.
        with contextlib.suppress(EngineError, TimeoutError):
            await _end(engine, (await asyncio.wait_for(beginning, _GRACE_SECONDS)).id, is_good=False)
        raise
    extending: asyncio.Task[None] | None = None
    is_good = False
    try:
        transfer = await _begun(engine, transfer)
        extending = asyncio.create_task(_extend(engine, transfer.id))
        yield transfer
        is_good = True
    finally:
        if extending is not None:
            extending.cancel()
        await _end(engine, transfer.id, is_good=is_good)


def failed(why: object) -> ImportFailed:
    """The error that a disk cannot be had."""
    return ImportFailed(f"Unable to connect to imageio data source: {why}")


async def _begun(engine: Engine, transfer: Transfer) -> Transfer:
    while transfer.phase == _INITIALIZING:
        await asyncio.sleep(_POLL_SECONDS)
        try:
            transfer = await engine.transfer(transfer.id)
        except EngineError as error:
            raise failed(f"Error sending transfer image request: {error}") from error
    if transfer.phase != TRANSFERRING:
        raise failed(f"Error transfer phase: {transfer.phase}")
    if not transfer.addresses:
        raise failed("Error transfer url not available")
    return transfer


async def _extend(engine: Engine, name: str) -> None:
    """Keep the transfer while the volume takes its time."""
    while True:
        await asyncio.sleep(_EXTEND_SECONDS)
        try:
            await engine.act(name, "extend")
        except EngineError as error:
            _log.warning("the image transfer could not be extended: %s", error)


async def _end(engine: Engine, name: str, *, is_good: bool) -> None:
    """Finalize or cancel a transfer: until then its disk is locked. What fails is logged."""
    for _ in range(_CLEANUPS):
        try:
            phase = (await engine.transfer(name)).phase
            if phase in _ENDED:
                return
            await engine.act(name, "finalize" if is_good and phase == TRANSFERRING else "cancel")
            continue
        except EngineError as error:
            if error.status == 404:
                return
            _log.warning("the image transfer could not be ended: %s", error)
        await asyncio.sleep(_CLEANUP_SECONDS)
    _log.error("the image transfer is not known to have ended: its disk may be locked for a while")


def _transfer(found: etree._Element) -> Transfer:
    addresses = (found.findtext("transfer_url", ""), found.findtext("proxy_url", ""))
    name, phase = found.get("id", ""), found.findtext("phase", "")
    if not name:
        raise EngineError("Error image transfer not available")
    return Transfer(name, phase, tuple(each for each in addresses if each))


def _number(found: etree._Element, name: str) -> int:
    text = found.findtext(name, "")
    return int(text) if text.isdecimal() and len(text) < 20 else 0

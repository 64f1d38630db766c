"""An oVirt engine and the imageio of its host on loopback, as far as a download of a disk goes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from lxml import etree

USER = "admin@internal"
PASSWORD = "the-password"
TOKEN = "the-token"
DISK = "disk-id"
IMAGE = "active-image"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)$")


@dataclass
class OvirtDisk:
    """What the engine has: a disk, and its layers by their ids."""

    content: bytes
    layers: dict[str, bytes] = field(default_factory=dict)
    extents: bool = True
    unreachable_host: bool = False
    phases: list[str] = field(default_factory=lambda: ["initializing", "transferring"])
    locked_answers: int = 0
    breaks: int = 0
    stalls: bool = False
    asked: list[str] = field(default_factory=list)
    """Method and path of requests to the engine, in order."""
    ranges: list[tuple[int, int]] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    phase: str = ""
    served: bytes = b""
    reading: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def actions(self) -> list[str]:
        """How transfers were ended."""
        found = (path.rpartition("/")[2] for path in self.asked)
        return [action for action in found if action in ("finalize", "cancel")]


def extents_of(content: bytes, size: int = 1 << 20) -> list[dict[str, object]]:
    """Runs of zeros and of other bytes, in blocks."""
    found: list[dict[str, object]] = []
    for start in range(0, len(content), size):
        block = content[start : start + size]
        found.append({"start": start, "length": len(block), "zero": not block.strip(b"\0"), "hole": False})
    return found


@asynccontextmanager
async def ovirt_engine(disk: OvirtDisk) -> AsyncIterator[str]:
    """The address of the engine's API."""
    engine = _Engine(disk)
    application = web.Application()
    application.router.add_post("/ovirt-engine/sso/oauth/token", _token)
    application.router.add_post("/ovirt-engine/services/sso-logout", _logged_out)
    application.router.add_route("*", "/ovirt-engine/api/{path:.*}", engine.answer)
    application.router.add_get("/images/ticket/extents", engine.extents)
    application.router.add_route("*", "/images/ticket", engine.image)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        engine.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield f"{engine.base}/ovirt-engine/api"
    finally:
        await runner.cleanup()


class _Engine:
    def __init__(self, disk: OvirtDisk) -> None:
        self._disk = disk
        self.base = ""

    async def answer(self, request: web.Request) -> web.Response:
        disk, path = self._disk, request.match_info["path"]
        disk.asked.append(f"{request.method} {path}")
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _fault("no session", 401)
        match request.method, path.split("/"):
            case "GET", ["disks", name] if name == DISK:
                made = _document("disk", total_size=str(len(disk.content)), image_id=IMAGE)
                etree.SubElement(etree.SubElement(made, "storage_domains"), "storage_domain", id="domain")
                made.set("id", DISK)
                return _xml(made)
            case "GET", ["storagedomains", "domain", "disksnapshots"]:
                made = etree.Element("disk_snapshots")
                for name in disk.layers:
                    etree.SubElement(made, "disk_snapshot", id=name)
                return _xml(made)
            case "POST", ["imagetransfers"]:
                return self._begin(await request.read())
            case "GET", ["imagetransfers", "transfer-id"]:
                return self._transfer()
            case "POST", ["imagetransfers", "transfer-id", "finalize"]:
                disk.phase = "finished_success"
                return _xml(etree.Element("action"))
            case "POST", ["imagetransfers", "transfer-id", "cancel"]:
                disk.phase = "cancelled"
                return _xml(etree.Element("action"))
        return _fault("not found", 404)

    def _begin(self, body: bytes) -> web.Response:
        disk = self._disk
        if disk.locked_answers:
            disk.locked_answers -= 1
            return _fault("[Cannot transfer Virtual Disk: Disk is locked. Try again later.]", 409)
        asked = etree.fromstring(body)
        disk.bodies.append(etree.tostring(asked).decode())
        layer = asked.find("snapshot")
        disk.served = disk.content if layer is None else disk.layers[layer.get("id", "")]
        disk.phase = disk.phases[0]
        return self._transfer()

    def _transfer(self) -> web.Response:
        disk = self._disk
        if len(disk.phases) > 1 and disk.phase == disk.phases[0]:
            disk.phase = disk.phases[1]
        proxy = f"{self.base}/images/ticket"
        host = "http://127.0.0.1:1/images/ticket" if disk.unreachable_host else proxy
        made = _document("image_transfer", phase=disk.phase, transfer_url=host, proxy_url=proxy)
        made.set("id", "transfer-id")
        return _xml(made)

    async def image(self, request: web.Request) -> web.StreamResponse:
        disk = self._disk
        if disk.phase != "transferring":
            return web.Response(status=403)
        if request.method == "OPTIONS":
            return web.json_response({"features": ["extents"] if disk.extents else [], "max_readers": 8})
        found = _RANGE.match(request.headers.get("Range", ""))
        first, last, status = 0, len(disk.served) - 1, 200
        headers = {"Accept-Ranges": "bytes"}
        if found:
            first, last, status = int(found[1]), min(int(found[2] or last), last), 206
            headers["Content-Range"] = f"bytes {first}-{last}/{len(disk.served)}"
            disk.ranges.append((first, last))
        response = web.StreamResponse(status=status, headers=headers)
        response.content_length = last - first + 1
        await response.prepare(request)
        if disk.stalls:
            disk.reading.set()
            await asyncio.Event().wait()
        if disk.breaks:
            disk.breaks -= 1
            await response.write(disk.served[first : (first + last) // 2])
            assert request.transport is not None
            request.transport.close()
            return response
        await response.write(disk.served[first : last + 1])
        return response

    async def extents(self, _: web.Request) -> web.Response:
        return web.json_response(extents_of(self._disk.served))


async def _token(request: web.Request) -> web.Response:
    form = await request.post()
    if (form["username"], form["password"]) != (USER, PASSWORD):
        refusal = {"error": "access_denied", "error_description": "Cannot authenticate user."}
        return web.json_response(refusal, status=401)
    return web.json_response({"access_token": TOKEN})


async def _logged_out(_: web.Request) -> web.Response:
    return web.Response()


def _document(name: str, **members: str) -> etree._Element:
    made = etree.Element(name)
    for key, text in members.items():
        etree.SubElement(made, key).text = text
    return made


def _xml(made: etree._Element, status: int = 200) -> web.Response:
    return web.Response(body=etree.tostring(made), status=status, content_type="application/xml")


def _fault(detail: str, status: int) -> web.Response:
    return _xml(_document("fault", reason="Operation Failed", detail=detail), status)

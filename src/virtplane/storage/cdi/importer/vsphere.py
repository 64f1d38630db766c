"""The few calls of vSphere's SOAP API that an import needs: a machine, disks, snapshots, changed areas."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from lxml import etree
from yarl import URL

from virtplane.storage.cdi.importer.http import Web, reason
from virtplane.storage.cdi.importer.outcome import ImportFailed

_ENVELOPE = "http://schemas.xmlsoap.org/soap/envelope/"
_VIM = "urn:vim25"
_TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"
_ANSWER_BYTES = 16 << 20
_FAULT_CHARACTERS = 500
_CONNECT_SECONDS = 60.0
_SNAPSHOT = "VirtualMachineSnapshot"
_DEVICES = "config.hardware.device"


@dataclass(frozen=True, slots=True)
class Reference:
    """A managed object."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk of a machine, or as it was at a snapshot: `files` is its file and those that it rests on."""

    key: str
    id: str
    size_bytes: int
    files: tuple[str, ...]
    change_id: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a machine."""

    reference: Reference
    label: str


@dataclass(frozen=True, slots=True)
class Area:
    """Bytes of a disk."""

    start: int
    length: int


class VSphere:
    """A session with the vCenter or ESXi host whose API is at `url`."""

    def __init__(self, web: Web, url: URL) -> None:
        self._web, self._url = web, url
        self._services: dict[str, Reference] = {}

    async def log_in(self, user: str, password: str) -> None:
        """Begin a session. Raises ImportFailed."""
        found = await self._call(Reference("ServiceInstance", "ServiceInstance"), "RetrieveServiceContent")
        for content in found:
            self._services = {each.tag: _reference(each) for each in content if each.get("type")}
        await self._call(self._service("sessionManager"), "Login", userName=user, password=password)

    async def log_out(self) -> None:
        """End the session; vSphere ends it after a while, too."""
        with contextlib.suppress(ImportFailed):
            await self._call(self._service("sessionManager"), "Logout")

    async def machine(self, uuid: str) -> Reference:
        """The machine with this instance UUID, or else BIOS UUID. Raises ImportFailed."""
        for instance in ("true", "false"):
            call = {"uuid": uuid, "vmSearch": "true", "instanceUuid": instance}
            found = await self._call(self._service("searchIndex"), "FindByUuid", **call)
            for each in found:
                return _reference(each)
        raise failed("unable to locate VM in any datacenter")

    async def disks(self, owner: Reference) -> list[Disk]:
        """The disks of a machine or of a snapshot. Raises ImportFailed."""
        found = await self._property(owner, _DEVICES)
        return [_disk(each) for each in found if each.get(_TYPE, "").endswith("VirtualDisk")]

    async def snapshots(self, machine: Reference) -> list[Snapshot]:
        """The snapshots of a machine, parents before children. Raises ImportFailed."""
        found = await self._property(machine, "snapshot")
        return [*_tree(found.iterfind("rootSnapshotList"))] if found is not None else []

    async def changed_areas(
        self, machine: Reference, snapshot: Snapshot, disk: Disk, change_id: str
    ) -> AsyncIterator[Area]:
        """What has changed on `disk` between a change and a snapshot. Raises ImportFailed."""
        offset = 0
        while offset < disk.size_bytes:
            call = etree.Element("call")
            _add_reference(call, "snapshot", snapshot.reference)
            for name, text in (
                ("deviceKey", disk.key),
                ("startOffset", str(offset)),
                ("changeId", change_id),
            ):
                etree.SubElement(call, name).text = text
            found = await self._send(machine, "QueryChangedDiskAreas", list(call))
            if not found:
                raise failed("the server does not tell what has changed")
            areas = found[0].findall("changedArea")
            for each in areas:
                yield Area(_number(each, "start"), _number(each, "length"))
            end = _number(found[0], "startOffset") + _number(found[0], "length")
            if end <= offset and areas:
                raise failed("the changed areas do not follow each other")
            if end <= offset:
                return
            offset = end

    def _service(self, name: str) -> Reference:
        if name not in self._services:
            raise failed(f"the server has no {name}")
        return self._services[name]

    async def _property(self, owner: Reference, name: str) -> etree._Element:
        """The value of a property; an empty element if it has none."""
        call = etree.Element("call")
        spec = etree.SubElement(call, "specSet")
        wanted = etree.SubElement(spec, "propSet")
        etree.SubElement(wanted, "type").text = owner.kind
        etree.SubElement(wanted, "pathSet").text = name
        _add_reference(etree.SubElement(spec, "objectSet"), "obj", owner)
        etree.SubElement(call, "options")
        found = await self._send(self._service("propertyCollector"), "RetrievePropertiesEx", list(call))
        for value in found:
            for each in value.iterfind("objects/propSet/val"):
                return each
        return etree.Element("val")

    async def _call(self, owner: Reference, method: str, **members: str) -> list[etree._Element]:
        call = etree.Element("call")
        for name, text in members.items():
            etree.SubElement(call, name).text = text
        return await self._send(owner, method, list(call))

    async def _send(
        self, owner: Reference, method: str, members: list[etree._Element]
    ) -> list[etree._Element]:
        """The values that a method returns, without namespaces. Raises ImportFailed."""
        envelope = etree.Element(f"{{{_ENVELOPE}}}Envelope")
        body = etree.SubElement(envelope, f"{{{_ENVELOPE}}}Body")
        call = etree.fromstring(f'<{method} xmlns="{_VIM}"/>')
        body.append(call)
        _add_reference(call, "_this", owner)
        for member in members:
            call.append(member)
        for each in call.iterdescendants():
            each.tag = f"{{{_VIM}}}{etree.QName(each).localname}"
        headers = {"Content-Type": 'text/xml; charset="utf-8"', "SOAPAction": f"{_VIM}/6.5"}
        try:
            _, content = await self._web.call(
                "POST", self._url, headers, etree.tostring(envelope), _ANSWER_BYTES
            )
            parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
            answer = etree.fromstring(content, parser)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise failed(reason(error)) from error
        except (ValueError, etree.XMLSyntaxError) as error:
            raise failed("the server's answer is no SOAP") from error
        for each in answer.iter(etree.Element):
            each.tag = etree.QName(each).localname
        fault = answer.findtext(".//Fault/faultstring")
        if fault is not None:
            raise failed(fault[:_FAULT_CHARACTERS])
        return answer.findall(f".//{method}Response/returnval")


@asynccontextmanager
async def session(web: Web, endpoint: URL, user: str, password: str) -> AsyncIterator[VSphere]:
    """A session that is ended with the context. Raises ImportFailed."""
    server = VSphere(web, endpoint.origin().with_path("/sdk"))
    await server.log_in(user, password)
    try:
        yield server
    finally:
        await server.log_out()


async def pinned_tls(url: URL, thumbprint: str) -> ssl.SSLContext:
    """TLS that trusts the one certificate with the SHA-1 `thumbprint` (``AA:BB:...``).

    Raises ImportFailed.
    """
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(url.host, url.port, ssl=anybody)
    except (OSError, TimeoutError) as error:
        raise failed(reason(error)) from error
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
    writer.close()
    wanted = thumbprint.replace(":", "").lower()
    if hashlib.sha1(found, usedforsecurity=False).hexdigest() != wanted:
        raise failed("the server's certificate has another thumbprint")
    context = ssl.create_default_context(cadata=ssl.DER_cert_to_PEM_cert(found))
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def failed(why: object) -> ImportFailed:
    """The error that a disk cannot be had."""
    return ImportFailed(f"Unable to connect to vddk data source: {why}")


def _tree(roots: Iterator[etree._Element]) -> Iterator[Snapshot]:
    for each in roots:
        name = each.find("snapshot")
        if name is not None:
            yield Snapshot(Reference(_SNAPSHOT, name.text or ""), each.findtext("name", ""))
        yield from _tree(each.iterfind("childSnapshotList"))


def _disk(found: etree._Element) -> Disk:
    files = [each.text or "" for each in found.iterfind("backing//fileName")]
    size = _number(found, "capacityInBytes") or _number(found, "capacityInKB") << 10
    return Disk(
        found.findtext("key", ""),
        found.findtext("diskObjectId", ""),
        size,
        tuple(files),
        found.findtext("backing/changeId", ""),
    )


def _reference(found: etree._Element) -> Reference:
    return Reference(found.get("type", ""), found.text or "")


def _add_reference(parent: etree._Element, name: str, reference: Reference) -> None:
    made = etree.SubElement(parent, name, type=reference.kind)
    made.text = reference.name


def _number(found: etree._Element, name: str) -> int:
    text = found.findtext(name, "")
    return int(text) if text.isdecimal() and len(text) < 20 else 0

"""A vCenter on loopback, as far as the import of a machine's disk goes, and a program that plays nbdkit."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trustme
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

USER = "administrator@vsphere.local"
PASSWORD = "the-password"
UUID = "instance-uuid"
FILE = "[store] vm/disk.vmdk"
CHANGE_ID = "52 de c0 d9 b9 43 9d 10-61 d5 4c 1b e9 7b 65 63/81"
_COOKIE = "vmware_soap_session"
_NBDKIT = """\
#!/bin/sh
printf '%s\\n' "$@" >> {folder}/arguments
env >> {folder}/environment
case "$1" in
--dump-plugin) [ ! -e {folder}/refusal ] || {{ cat {folder}/refusal >&2; exit 1; }}; exit 0;;
esac
for argument do case "$argument" in
  --unix) next=1;;
  password=-*) cat "/proc/self/fd/${{argument#password=-}}" > {folder}/password;;
  *) [ -z "$next" ] || {{ socket=$argument; next=; }};;
esac; done
echo 'nbdkit: debug: VMware VixDiskLib (7.0.3) Release build-15832853' >&2
echo 'nbdkit: debug: vddk: config key=password, value=the-password' >&2
echo "nbdkit: vddk[1]: debug: DISKLIB-LINK  : Opened 'vpxa://[s] v/d.vmdk@esx1.test:902' (0xa): custom" >&2
[ ! -e {folder}/failure ] || {{ cat {folder}/failure >&2; exit 1; }}
exec {nbdkit} --foreground --readonly --exit-with-parent --unix "$socket" file {folder}/disk
"""


@dataclass
class VCenter:
    """What it has and what it was asked. The disk's content is nbdkit's to tell."""

    size: int
    areas: list[tuple[int, int]] = field(default_factory=list)
    """What changed, given out in two answers."""
    has_snapshots: bool = True
    bios_only: bool = False
    thumbprint: str = ""
    asked: list[str] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)


def fake_nbdkit(folder: Path, disk: bytes, nbdkit: str) -> Path:
    """A folder for ``PATH`` with a program that notes how it is called, and serves `disk` by `nbdkit`."""
    (folder / "disk").write_bytes(disk)
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    program = programs / "nbdkit"
    program.write_text(_NBDKIT.format(folder=folder, nbdkit=nbdkit))
    program.chmod(0o755)
    return programs


@asynccontextmanager
async def vcenter(server: VCenter) -> AsyncIterator[str]:
    """The address of the server, whose certificate nobody has signed that a client knows."""
    authority = trustme.CA()
    certificate = authority.issue_cert("vcenter.example")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(tls)
    found = x509.load_pem_x509_certificate(certificate.cert_chain_pems[0].bytes())
    server.thumbprint = hashlib.sha1(found.public_bytes(Encoding.DER)).digest().hex(":").upper()
    return_to = _Server(server)
    application = web.Application()
    application.router.add_post("/sdk", return_to.answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"https://127.0.0.1:{runner.addresses[0][1]}/sdk"
    finally:
        await runner.cleanup()


class _Server:
    def __init__(self, server: VCenter) -> None:
        self._server = server

    async def answer(self, request: web.Request) -> web.Response:
        text = await request.text()
        found = re.search(r"Body><(\w+)", text)
        assert found is not None
        method = found[1]
        self._server.asked.append(method)
        self._server.bodies.append(text)
        if method == "RetrieveServiceContent":
            return _returned(
                method,
                '<rootFolder type="Folder">f</rootFolder>'
                '<propertyCollector type="PropertyCollector">pc</propertyCollector>'
                "<about><apiType>VirtualCenter</apiType></about>"
                '<sessionManager type="SessionManager">sm</sessionManager>'
                '<searchIndex type="SearchIndex">si</searchIndex>',
            )
        if method == "Login":
            if f"<password>{PASSWORD}</password>" not in text:
                return _fault("Cannot complete login due to an incorrect user name or password.")
            answer = _returned(method, "<key>k</key>")
            answer.set_cookie(_COOKIE, "session")
            return answer
        if request.cookies.get(_COOKIE) != "session":
            return _fault("The session is not authenticated.")
        return self._of_session(method, text)

    def _of_session(self, method: str, text: str) -> web.Response:
        server = self._server
        if method == "FindByUuid":
            wanted = "false" if server.bios_only else "true"
            if UUID not in text or f"<instanceUuid>{wanted}</instanceUuid>" not in text:
                return _returned(method, None)
            return _envelope(
                f'<{method}Response xmlns="urn:vim25"><returnval type="VirtualMachine">vm-7</returnval>'
                f"</{method}Response>"
            )
        if method == "RetrievePropertiesEx":
            return _returned(method, self._properties(text))
        if method == "QueryChangedDiskAreas":
            return self._changed(method, text)
        return _envelope(f'<{method}Response xmlns="urn:vim25"/>')

    def _properties(self, text: str) -> str:
        if ">snapshot</pathSet>" in text or "<pathSet>snapshot<" in text:
            if not self._server.has_snapshots:
                return ""
            child = _snapshot("snapshot-2", "two", "")
            tree = _snapshot("snapshot-1", "one", child)
            return f"<objects><propSet><name>snapshot</name><val>{tree}</val></propSet></objects>"
        file = FILE
        if ">snapshot-2<" in text:
            file = "[store] vm/disk-000001.vmdk"
        disk = (
            f'<VirtualDevice xsi:type="VirtualDisk"><key>2000</key>'
            f'<backing xsi:type="VirtualDiskFlatVer2BackingInfo"><fileName>{file}</fileName>'
            f"<changeId>{CHANGE_ID}</changeId></backing>"
            f"<capacityInKB>{self._server.size >> 10}</capacityInKB><diskObjectId>1-2000</diskObjectId>"
            f"</VirtualDevice>"
        )
        other = '<VirtualDevice xsi:type="VirtualIDEController"><key>200</key></VirtualDevice>'
        return f"<objects><propSet><name>d</name><val>{other}{disk}</val></propSet></objects>"

    def _changed(self, method: str, text: str) -> web.Response:
        if f"<changeId>{CHANGE_ID}</changeId>" not in text or ">snapshot-2<" not in text:
            return _fault("A specified parameter was not correct: changeId")
        half = self._server.size // 2
        found = re.search(r"<startOffset>(\d+)", text)
        assert found is not None
        offset = int(found[1])
        areas = "".join(
            f"<changedArea><start>{start}</start><length>{length}</length></changedArea>"
            for start, length in self._server.areas
            if offset <= start < offset + half
        )
        return _returned(method, f"<startOffset>{offset}</startOffset><length>{half}</length>{areas}")


def _snapshot(name: str, label: str, child: str) -> str:
    tag = "childSnapshotList" if name == "snapshot-2" else "rootSnapshotList"
    inner = f'<snapshot type="VirtualMachineSnapshot">{name}</snapshot><name>{label}</name>{child}'
    return f"<{tag}>{inner}</{tag}>"


def _returned(method: str, content: str | None) -> web.Response:
    value = "" if content is None else f"<returnval>{content}</returnval>"
    return _envelope(f'<{method}Response xmlns="urn:vim25">{value}</{method}Response>')


def _fault(text: str) -> web.Response:
    return _envelope(
        f"<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>{text}</faultstring></soapenv:Fault>",
        500,
    )


def _envelope(body: str, status: int = 200) -> web.Response:
    return web.Response(
        text='<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope '
        'xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body>'
        f"{body}</soapenv:Body></soapenv:Envelope>",
        status=status,
        content_type="text/xml",
    )

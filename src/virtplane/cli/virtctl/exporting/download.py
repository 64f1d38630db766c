"""Downloads of VirtualMachineExports: volumes, manifests, and archives of whole machines."""

from __future__ import annotations

import asyncio
import ssl
import sys
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import BinaryIO

import aiohttp
import click

from kubecore.client import Client
from virtplane.cli.virtctl.documents import printable
from virtplane.cli.virtctl.exporting import exports
from virtplane.cli.virtctl.exporting.exports import Export, Link, Say
from virtplane.cli.virtctl.progress import Progress

_TOKEN_HEADER = "x-kubevirt-export-token"
_CHUNK_BYTES = 1 << 20
_CONNECT_SECONDS = 30.0
_STALLED_SECONDS = 300.0
_MEDIA_TYPES = {"": "application/yaml", "yaml": "application/yaml", "json": "application/json"}


@dataclass(frozen=True, slots=True)
class Wish:
    """What is downloaded, and how."""

    volume: str = ""
    format: str = ""
    manifest: bool = False
    manifest_format: str = ""
    include_secret: bool = False
    insecure: bool = False
    retries: int = 0
    service_url: str = ""
    readiness_seconds: float = 120.0

    @property
    def side(self) -> str:
        """Which links are used."""
        return "internal" if self.service_url else "external"


class _Refused(Exception):
    """The server's answer is an error, or there is none; another attempt may go better."""


async def download(client: Client, export: Export, wish: Wish, output: BinaryIO, say: Say) -> None:
    """Write what is wished to `output`. Raises click.ClickException, StatusError."""
    for attempt in range(wish.retries + 1):
        try:
            await _attempt(client, export, wish, output, say)
        except _Refused as error:
            say(printable(str(error)))
            if attempt == wish.retries:
                raise click.ClickException("retry count reached, exiting unsuccessfully") from error
            say("Retrying...")
            _start_over(output)
        else:
            if not wish.manifest:
                say("Download finished successfully")
            return


async def _attempt(client: Client, export: Export, wish: Wish, output: BinaryIO, say: Say) -> None:
    found = await exports.ready(client, export, wish.side, wish.readiness_seconds, say)
    if wish.manifest:
        kinds = ["all", *(["auth-header-secret"] if wish.include_secret else [])]
        links = [exports.manifest_link(found, export, wish.side, kind) for kind in kinds]
    elif wish.format == "oci":
        links = [exports.manifest_link(found, export, wish.side, "oci")]
    else:
        links = [exports.volume_link(found, export, wish.side, wish.volume)]
    token = await exports.token(client, found, export)
    for link in links:
        headers = {_TOKEN_HEADER: token}
        if wish.manifest:
            headers["Accept"] = _MEDIA_TYPES[wish.manifest_format]
        unpack = link.is_compressed and wish.format == "raw"
        if unpack:
            say("Decompressing image:")
        await _copy(link, wish, headers, output, unpack=unpack)


async def _copy(link: Link, wish: Wish, headers: dict[str, str], output: BinaryIO, *, unpack: bool) -> None:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_STALLED_SECONDS)
    connector = aiohttp.TCPConnector(ssl=_tls(link, insecure=wish.insecure), force_close=True)
    url = exports.at(link.url, wish.service_url)
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16) if unpack else None
    try:
        # What the server sends is what is stored: aiohttp unpacks nothing.
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session,
            session.get(url, headers=headers, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise _Refused(f"Bad status: {answer.status} {answer.reason}")
            async for piece in _shown(answer, quiet=wish.manifest):
                await asyncio.to_thread(_write, piece, unpacker, output)
                if unpacker is not None and unpacker.eof:
                    break
        if unpacker is not None and not unpacker.eof:
            raise _Refused("the download ended before the end of the compressed image")
        output.flush()
    except (aiohttp.ClientError, TimeoutError, zlib.error, ssl.SSLError) as error:
        raise _Refused(f'Get "{url}": {error or type(error).__name__}') from error
    except OSError as error:
        raise click.ClickException(f"write: {(error.strerror or str(error)).lower()}") from error


def _write(piece: bytes, unpacker: zlib._Decompress | None, output: BinaryIO) -> None:
    """Write a piece of the answer, unpacked where there is an `unpacker`. Raises zlib.error, OSError.

    A MiB may unpack to a GiB, and the server is a tenant's: it is never in memory as a whole.
    """
    if unpacker is None:
        output.write(piece)
        return
    data = unpacker.decompress(piece, _CHUNK_BYTES)
    while data:
        output.write(data)
        data = b"" if unpacker.eof else unpacker.decompress(unpacker.unconsumed_tail, _CHUNK_BYTES)


async def _shown(answer: aiohttp.ClientResponse, *, quiet: bool) -> AsyncIterator[bytes]:
    """The pieces of the answer; how far they are is shown on standard error."""
    progress = Progress(answer.content_length or 0, sys.stderr)
    show = not quiet and answer.content_length is not None
    async for piece in answer.content.iter_chunked(_CHUNK_BYTES):
        yield piece
        if show:
            progress.add(len(piece))
    if show:
        progress.finish()


def _tls(link: Link, *, insecure: bool) -> ssl.SSLContext | bool:
    if insecure:
        return False
    context = ssl.create_default_context()
    if link.authority:
        try:
            context.load_verify_locations(cadata=link.authority)
        except (ssl.SSLError, ValueError) as error:
            raise click.ClickException(f"the export's certificate is not readable: {error}") from error
        # The export names the server's own certificate.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _start_over(output: BinaryIO) -> None:
    if output.seekable():
        output.seek(0)
        output.truncate()

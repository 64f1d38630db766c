"""``vnc``: the display through a local port, with a viewer or for one, or as a picture."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sys
from pathlib import Path

import click

from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.objects.structs import UnfitDocument, decode
from virtplane.cli.virtctl.connection import Connection, answered, connected
from virtplane.cli.virtctl.talking.streams import StreamLost, carry, open_stream
from virtplane.cli.virtctl.usage import INTEGER

logger = logging.getLogger(__name__)

_VIEWER_SECONDS = 60.0
_OWN_ADDRESS = "127.0.0.1"
_VIEWERS = {
    "remote-viewer": ("remote-viewer", "vnc://{address}"),
    "tiger": ("vncviewer", "{address}"),
}
"""Program and argument of each kind of viewer, in the order of preference."""


@click.command()
@click.argument("name", metavar="(VMI)")
@click.option("--address", default=_OWN_ADDRESS, help="Local address to listen on, with --proxy-only.")
@click.option("--port", type=INTEGER, default=0, help="Local port; 0 chooses a free one.")
@click.option("--proxy-only", is_flag=True, help="Only run the proxy and print its port.")
@click.option("--preserve-session", is_flag=True, help="Fail when another session is open.")
@click.option(
    "--vnc-type", default="", help="The viewer: tiger or remote-viewer. Any that is there otherwise."
)
@click.option("--vnc-path", default="", help="The viewer's program, together with --vnc-type.")
@connected
async def vnc(
    client: Client,
    connection: Connection,
    name: str,
    port: int,
    proxy_only: bool,
    preserve_session: bool,
    **given: str,
) -> None:
    """Open a guest's display."""
    # The viewer runs on this machine; only with --proxy-only another address may be needed.
    address = given["address"] if proxy_only else _OWN_ADDRESS
    path = connection.subresource("virtualmachineinstances", name, "vnc")
    query = {"preserveSession": "true" if preserve_session else "false"}
    try:
        stream = await open_stream(client, path, query)
    except StatusError as error:
        raise click.ClickException(f"can't access VMI {name}: {error.message}") from error
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    server = await asyncio.start_server(lambda *pair: accepted.put_nowait(pair), address, port)
    own_port = server.sockets[0].getsockname()[1]
    viewer: asyncio.subprocess.Process | None = None
    try:
        if proxy_only:
            click.echo(json.dumps({"port": own_port}, separators=(",", ":")))
            sys.stdout.flush()
            reader, writer = await accepted.get()
        else:
            viewer = await _start_viewer(own_port, given["vnc_type"], given["vnc_path"])
            reader, writer = await asyncio.wait_for(accepted.get(), _VIEWER_SECONDS)
        await _warn_when_paused(client, connection, name)
        await carry(stream, reader, writer)
    except StreamLost as error:
        raise click.ClickException(f"error encountered: {error}") from error
    except TimeoutError as error:
        raise click.ClickException(f"Error encountered: no viewer connected to port {own_port}") from error
    finally:
        server.close()
        await stream.close()
        if viewer is not None and viewer.returncode is None:
            viewer.terminate()


@click.command(name="screenshot")
@click.argument("name", metavar="(VMI)")
@click.option("-f", "--file", "path", required=True, help="Where to store the picture; - is standard output.")
@click.option("-m", "--move-cursor", is_flag=True, help="Move the pointer first, which ends screen savers.")
@connected
async def screenshot(client: Client, connection: Connection, name: str, path: str, move_cursor: bool) -> None:
    """Save a picture of a guest's display."""
    query = {"moveCursor": "true" if move_cursor else "false"}
    action = connection.subresource("virtualmachineinstances", name, "vnc/screenshot")
    try:
        picture = (await client.request("GET", action, query=query)).body
    except StatusError as error:
        raise click.ClickException(f"Can't access VMI {name}: {answered(error, name)}") from error
    if path == "-":
        sys.stdout.buffer.write(picture)
        return
    try:
        Path(path).write_bytes(picture)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise click.ClickException(f"Can't write image to a file: open {path}: {reason}") from error


async def _warn_when_paused(client: Client, connection: Connection, name: str) -> None:
    from virtplane.api.conditions import is_true
    from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
    from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES

    try:
        document = await client.get(VIRTUAL_MACHINE_INSTANCES, name, connection.namespace)
        vmi = decode(VirtualMachineInstance, document)
    except (StatusError, UnfitDocument) as error:
        # The display is open already; a failed check for the warning must not end it.
        logger.debug("Nothing known about the instance", extra={"err": str(error)})
        return
    if is_true(vmi.status.conditions, "Paused"):
        click.echo(f"\rWarning: {name} is paused. Console will be active after unpause.", err=True)


async def _start_viewer(port: int, kind: str, path: str) -> asyncio.subprocess.Process:
    program, argument = find_viewer(kind, path)
    return await asyncio.create_subprocess_exec(program, argument.format(address=f"{_OWN_ADDRESS}:{port}"))


def find_viewer(kind: str, path: str) -> tuple[str, str]:
    """The program and the argument of the viewer to start. Raises click.ClickException."""
    if not kind:
        for name, argument in _VIEWERS.values():
            program = shutil.which(name)
            if program:
                return program, argument
        names = " or ".join(name for name, _ in _VIEWERS.values())
        raise click.ClickException(f"error encountered: could not find {names} binary in $PATH")
    if kind not in _VIEWERS:
        raise click.ClickException(f"error encountered: unsupported vnc-type: {kind}")
    name, argument = _VIEWERS[kind]
    if path:
        if not Path(path).exists():
            text = f"error encountered: specified VNC path does not exist: {path}"
            raise click.ClickException(text)
        return path, argument
    program = shutil.which(name)
    if program is None:
        reason = f'exec: "{name}": executable file not found in $PATH'
        raise click.ClickException(f"error encountered: could not find {name} in $PATH: {reason}")
    return program, argument


COMMANDS = {"vnc": vnc, "vnc screenshot": screenshot}

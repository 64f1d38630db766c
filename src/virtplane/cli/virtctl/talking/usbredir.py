"""``usbredir``: a USB device of this machine, in a guest."""

from __future__ import annotations

import asyncio
import shutil

import click

from kubecore.client import Client
from kubecore.errors import StatusError
from virtplane.cli.virtctl.connection import Connection, connected
from virtplane.cli.virtctl.talking.streams import StreamLost, carry, open_stream

_CLIENT = "usbredirect"
_OWN_ADDRESS = "127.0.0.1"


@click.command()
@click.argument("words", nargs=-1, metavar="[(vendor:product)|(bus-device)] (VMI)")
@click.option("--no-launch", is_flag=True, help="Do not start usbredirect; print where to connect it.")
@connected
async def usbredir(client: Client, connection: Connection, words: tuple[str, ...], no_launch: bool) -> None:
    """Lend a USB device of this machine to a guest."""
    if not 1 <= len(words) <= 2:
        raise click.ClickException(f"accepts between 1 and 2 arg(s), received {len(words)}")
    if len(words) == 1 and not no_launch:
        raise click.ClickException("Missing argument")
    # Whoever connects a client says to that one which device it is.
    device, name = words[0], words[-1]
    program = shutil.which(_CLIENT)
    if program is None and not no_launch:
        reason = f'exec: "{_CLIENT}": executable file not found in $PATH'
        raise click.ClickException(f"Error on finding {_CLIENT} in $PATH: {reason}")
    path = connection.subresource("virtualmachineinstances", name, "usbredir")
    try:
        stream = await open_stream(client, path)
    except StatusError as error:
        raise click.ClickException(f"can't access VMI {name}: {error.message}") from error
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    server = await asyncio.start_server(lambda *pair: accepted.put_nowait(pair), _OWN_ADDRESS, 0)
    address = "{}:{}".format(*server.sockets[0].getsockname())
    started: asyncio.subprocess.Process | None = None
    try:
        if no_launch or program is None:
            click.echo(f"User can connect usbredir client at: {address}")
        else:
            started = await asyncio.create_subprocess_exec(program, "--device", device, "--to", address)
        reader, writer = await _connected(accepted, started)
        await carry(stream, reader, writer)
    except StreamLost as error:
        raise click.ClickException(f"error encountered: {error}") from error
    finally:
        server.close()
        await stream.close()
        if started is not None and started.returncode is None:
            started.terminate()
            await started.wait()


async def _connected(
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]],
    started: asyncio.subprocess.Process | None,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The client's connection. Raises click.ClickException where the started client ends without one."""
    connection = asyncio.create_task(accepted.get(), name="usbredir-client")
    ended = None if started is None else asyncio.create_task(started.wait(), name="usbredir-ended")
    tasks = {task for task in (connection, ended) if task is not None}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if connection.done():
            return connection.result()
        raise click.ClickException(f"{_CLIENT} ended before it connected")
    finally:
        for task in tasks:
            task.cancel()


COMMANDS = {"usbredir": usbredir}

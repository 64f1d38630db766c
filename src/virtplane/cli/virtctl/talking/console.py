"""``console``: the serial console in this terminal."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kubecore.client import Client
from kubecore.errors import StatusError
from virtplane.cli.virtctl.connection import Connection, connected
from virtplane.cli.virtctl.talking.streams import StreamLost, open_stream, received
from virtplane.cli.virtctl.usage import INTEGER

if TYPE_CHECKING:
    import aiohttp

_ESCAPE = 29
"""Ctrl+] and Ctrl+5."""

_DISCONNECTED = (
    "\nYou were disconnected from the console. This could be caused by one of the following:"
    "\n - the target VM was powered off"
    "\n - another user connected to the console of the target VM"
    "\n - network issues\n"
)


@click.command()
@click.argument("name", metavar="(VMI)")
@click.option(
    "--timeout",
    "minutes",
    type=INTEGER,
    default=5,
    help="The number of minutes to wait for the instance to be ready.",
)
@connected
async def console(client: Client, connection: Connection, name: str, minutes: int) -> None:
    """Open a guest's serial console in this terminal."""
    path = connection.subresource("virtualmachineinstances", name, "console")
    socket = await _open(client, path, name, minutes * 60.0)
    click.echo(f"Successfully connected to {name} console. Press Ctrl+] or Ctrl+5 to exit console.", err=True)
    try:
        with raw_terminal():
            await talk(socket.send_bytes, received(socket))
    except StreamLost as error:
        click.echo(_DISCONNECTED, err=True, nl=False)
        raise click.ClickException(str(error)) from error
    finally:
        await socket.close()


async def _open(client: Client, path: str, name: str, seconds: float) -> aiohttp.ClientWebSocketResponse:
    """Open the console; waits while the instance is not running yet (400)."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            return await open_stream(client, path)
        except StatusError as error:
            if error.code != 400 or asyncio.get_running_loop().time() > deadline:
                raise click.ClickException(error.message or f"Can't access VMI {name}") from error
        await asyncio.sleep(1)


@contextmanager
def raw_terminal() -> Iterator[None]:
    """Put the terminal into raw mode, so that every key goes to the guest; pipes are left alone."""
    descriptor = sys.stdin.fileno()
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def talk(send: Callable[[bytes], Awaitable[None]], output: AsyncIterator[bytes]) -> None:
    """Copy keys and output until the user leaves or the output ends. Raises StreamLost."""
    loop = asyncio.get_running_loop()
    keys: asyncio.Queue[bytes] = asyncio.Queue()
    descriptor = sys.stdin.fileno()

    def read_keys() -> None:
        data = os.read(descriptor, 4096)
        keys.put_nowait(data)
        if not data:
            loop.remove_reader(descriptor)

    try:
        loop.add_reader(descriptor, read_keys)
    except PermissionError:
        # A regular file is always readable, and event loops cannot watch it.
        keys.put_nowait(sys.stdin.buffer.read())
    typing = asyncio.create_task(_type(send, keys), name="console-keys")
    showing = asyncio.create_task(_show(output), name="console-output")
    try:
        done, _ = await asyncio.wait({typing, showing}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        loop.remove_reader(descriptor)
        for task in (typing, showing):
            task.cancel()
        await asyncio.gather(typing, showing, return_exceptions=True)


async def _type(send: Callable[[bytes], Awaitable[None]], keys: asyncio.Queue[bytes]) -> None:
    while True:
        data = await keys.get()
        if data[:1] == bytes([_ESCAPE]):
            return
        if not data:
            # End of input: the output is still copied.
            await asyncio.Event().wait()
        await send(data)


async def _show(output: AsyncIterator[bytes]) -> None:
    async for data in output:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


COMMANDS = {"console": console}

"""``port-forward``: local ports to a guest's ports."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import sys
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TextIO

import aiohttp
import click

from kubecore.client import Client
from kubecore.errors import StatusError
from virtplane.api.resources import SUBRESOURCES_PATH
from virtplane.cli.virtctl.connection import KINDS, Connection, connected
from virtplane.cli.virtctl.talking.datagrams import DatagramForwarder
from virtplane.cli.virtctl.talking.streams import Sink, StreamLost, carry, open_stream


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a port forward."""

    resource: str
    name: str
    namespace: str
    otherwise: Target | None = None
    """What ``type/name.namespace`` means where no object has a name with a dot."""

    @property
    def kind(self) -> str:
        """The short name of the resource."""
        return "vm" if self.resource == "virtualmachines" else "vmi"


@dataclass(frozen=True, slots=True)
class Port:
    """One forwarded port."""

    protocol: str
    local: int
    remote: int


def parse_target(text: str, namespace: str) -> Target:
    """``type/name[/namespace]``. Raises click.ClickException."""
    parts = text.split("/")
    if len(parts) < 2:
        raise click.ClickException("target must contain type and name separated by '/'")
    if len(parts) > 3:
        raise click.ClickException("target is not valid with more than two '/'")
    resource = KINDS.get(parts[0].lower())
    if resource is None:
        raise click.ClickException(f"unsupported resource type '{parts[0]}'")
    for part, what in zip(parts[1:], ("name", "namespace"), strict=False):
        if not part:
            raise click.ClickException(f"{what} cannot be empty")
    if len(parts) == 3:
        return Target(resource, parts[1], parts[2])
    name, _, own_namespace = parts[1].rpartition(".")
    otherwise = Target(resource, name, own_namespace) if name and own_namespace else None
    return Target(resource, parts[1], namespace, otherwise)


def parse_port(text: str) -> Port:
    """``[protocol/]localPort[:targetPort]``. Raises click.ClickException."""
    protocol, ports = text.split("/")[:2] if "/" in text else ("tcp", text)
    local, remote = [*ports.split(":"), ""][:2]
    numbers = []
    for number in (local or remote, remote or local):
        try:
            numbers.append(int(number))
        except ValueError as error:
            reason = f'strconv.Atoi: parsing "{number}": invalid syntax'
            raise click.ClickException(reason) from error
    if protocol not in ("tcp", "udp"):
        raise click.ClickException(f"unknown protocol: {protocol}")
    return Port(protocol, *numbers)


@click.command(name="port-forward")
@click.argument("words", nargs=-1, metavar="type/name[/namespace] [protocol/]localPort[:targetPort]...")
@click.option("--address", default="127.0.0.1", help="Local address to listen on.")
@click.option("--stdio", is_flag=True, help="Forward standard input and output instead of a local port.")
@connected
async def port_forward(
    client: Client, connection: Connection, words: tuple[str, ...], address: str, stdio: bool
) -> None:
    """Lead local ports to ports of a guest."""
    if len(words) < 2:
        click.echo("port-forward takes a target and at least one port", err=True)
        raise click.ClickException("argument validation failed")
    target, *ports = words
    goal = parse_target(target, connection.namespace)
    wanted = [parse_port(text) for text in ports]
    if stdio:
        if len(wanted) != 1:
            raise click.ClickException("only one port supported when forwarding to stdout")
        await _forward_stdio(client, goal, wanted[0])
        return
    async with AsyncExitStack() as stack:
        for port in wanted:
            try:
                own_port = await _listen(stack, client, goal, port, address)
            except (OSError, OverflowError) as error:
                number = error.errno if isinstance(error, OSError) else None
                reason = os.strerror(number or errno.EINVAL).lower()
                text = f"listen {port.protocol} {address}:{port.local}: bind: {reason}"
                raise click.ClickException(text) from error
            click.echo(f"forwarding {port.protocol} {address}:{own_port} to {port.remote}", err=True)
        await asyncio.Event().wait()


async def _open(client: Client, goal: Target, port: Port) -> aiohttp.ClientWebSocketResponse:
    """Open a stream to the guest's port. Raises StatusError."""
    try:
        return await open_stream(client, _path(goal, port))
    except StatusError as error:
        if error.code != 404 or goal.otherwise is None:
            raise
        try:
            return await open_stream(client, _path(goal.otherwise, port))
        except StatusError:
            raise error from None


def _path(goal: Target, port: Port) -> str:
    own = f"{SUBRESOURCES_PATH}/namespaces/{goal.namespace}/{goal.resource}/{goal.name}"
    return f"{own}/portforward/{port.remote}/{port.protocol}"


async def _listen(stack: AsyncExitStack, client: Client, goal: Target, port: Port, address: str) -> int:
    """Listen until `stack` ends. Returns the port."""
    if port.protocol == "udp":
        return await _listen_for_datagrams(stack, client, goal, port, address)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            stream = await _open(client, goal, port)
        except StatusError as error:
            click.echo(f"can't access {goal.kind}/{goal.name}.{goal.namespace}: {error.message}", err=True)
            writer.close()
            return
        try:
            await carry(stream, reader, writer)
        except StreamLost as error:
            click.echo(f"error handling connection for {port.local}: {error}", err=True)

    server = await asyncio.start_server(serve, address, port.local)
    stack.callback(server.close)
    return int(server.sockets[0].getsockname()[1])


async def _listen_for_datagrams(
    stack: AsyncExitStack, client: Client, goal: Target, port: Port, address: str
) -> int:
    def open_one() -> Awaitable[aiohttp.ClientWebSocketResponse]:
        return _open(client, goal, port)

    label = f"{goal.kind}/{goal.name}.{goal.namespace}"
    transport, forwarder = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: DatagramForwarder(open_one, label), local_addr=(address, port.local)
    )
    stack.push_async_callback(forwarder.close)
    return int(transport.get_extra_info("sockname")[1])


class _Output:
    """Standard output if it is not a pipe."""

    def write(self, data: bytes, /) -> None:
        """Write at once."""
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    async def drain(self) -> None:
        """Everything is written already."""

    def close(self) -> None:
        """The interpreter closes it."""


async def _forward_stdio(client: Client, goal: Target, port: Port) -> None:
    stream = await _open(client, goal, port)
    await carry(stream, await _input(), await _output())


async def _input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    if _is_pipe(sys.stdin):
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    else:
        # Event loops cannot watch regular files, which can always be read.
        reader.feed_data(sys.stdin.buffer.read())
        reader.feed_eof()
    return reader


async def _output() -> Sink:
    if not _is_pipe(sys.stdout):
        return _Output()
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop=loop), sys.stdout
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)


def _is_pipe(file: TextIO) -> bool:
    mode = os.fstat(file.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or file.isatty()


COMMANDS = {"port-forward": port_forward}

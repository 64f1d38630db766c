"""``port-forward``: local ports to a guest's ports."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

import click

from kubecore.client import Client
from kubecore.errors import StatusError
from virtplane.cli.virtctl.connection import SUBRESOURCES, Connection, connected
from virtplane.cli.virtctl.streams import carry, open_stream

_KINDS = {
    "vm": "virtualmachines",
    "vms": "virtualmachines",
    "virtualmachine": "virtualmachines",
    "virtualmachines": "virtualmachines",
    "vmi": "virtualmachineinstances",
    "vmis": "virtualmachineinstances",
    "virtualmachineinstance": "virtualmachineinstances",
    "virtualmachineinstances": "virtualmachineinstances",
}


@dataclass(frozen=True, slots=True)
class Target:
    """What is forwarded to."""

    resource: str
    name: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Port:
    """One forwarded port."""

    protocol: str
    local: int
    remote: int


def parse_target(text: str, namespace: str) -> Target:
    """``type/name[/namespace]``. Raises click.ClickException."""
    parts = text.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise click.ClickException("target must contain type and name separated by '/'")
    resource = _KINDS.get(parts[0].lower())
    if resource is None:
        raise click.ClickException(f"unsupported resource type '{parts[0]}'")
    return Target(resource, parts[1], parts[2] if len(parts) == 3 else namespace)


def parse_port(text: str) -> Port:
    """``[protocol/]localPort[:targetPort]``. Raises click.ClickException."""
    protocol, _, ports = text.rpartition("/")
    protocol = protocol or "tcp"
    if protocol not in ("tcp", "udp"):
        raise click.ClickException(f"unknown protocol: {protocol}")
    local, _, remote = ports.partition(":")
    try:
        return Port(protocol, int(local), int(remote or local))
    except ValueError as error:
        raise click.ClickException(f"invalid port: {text}") from error


@click.command(name="port-forward")
@click.argument("target", metavar="type/name[/namespace]")
@click.argument("ports", nargs=-1, required=True, metavar="[protocol/]localPort[:targetPort]...")
@click.option("--address", default="127.0.0.1", help="Local address to listen on.")
@click.option("--stdio", is_flag=True, help="Forward standard input and output instead of a local port.")
@connected
async def port_forward(
    client: Client, connection: Connection, target: str, ports: tuple[str, ...], address: str, stdio: bool
) -> None:
    """Forward local ports to a virtualmachine or virtualmachineinstance."""
    goal = parse_target(target, connection.namespace)
    wanted = [parse_port(text) for text in ports]
    if stdio:
        if len(wanted) != 1:
            raise click.ClickException("only one port supported when forwarding to stdout")
        await _forward_stdio(client, goal, wanted[0])
        return
    if any(port.protocol == "udp" for port in wanted):
        raise click.ClickException("udp can only be forwarded with --stdio")
    servers = [await _listen(client, goal, port, address) for port in wanted]
    try:
        await asyncio.gather(*(server.serve_forever() for server in servers))
    finally:
        for server in servers:
            server.close()


def _path(goal: Target, port: Port) -> str:
    own = f"{SUBRESOURCES}/namespaces/{goal.namespace}/{goal.resource}/{goal.name}"
    return f"{own}/portforward/{port.remote}/{port.protocol}"


async def _listen(client: Client, goal: Target, port: Port, address: str) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            stream = await open_stream(client, _path(goal, port))
        except StatusError as error:
            click.echo(
                f"Can't access {goal.resource}/{goal.name}.{goal.namespace}: {error.message}", err=True
            )
            writer.close()
            return
        await carry(stream, reader, writer)

    server = await asyncio.start_server(serve, address, port.local)
    own_port = server.sockets[0].getsockname()[1]
    click.echo(f"forwarding {port.protocol} {address}:{own_port} to {port.remote}", err=True)
    return server


async def _forward_stdio(client: Client, goal: Target, port: Port) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop=loop), sys.stdout
    )
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    await carry(await open_stream(client, _path(goal, port)), reader, writer)


COMMANDS = {"port-forward": port_forward}

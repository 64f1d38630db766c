"""``version``."""

from __future__ import annotations

import platform
from typing import Any

import click

from kubecore.client import Client
from kubecore.errors import StatusError
from virtplane import KUBEVIRT_VERSION
from virtplane.api.resources import SUBRESOURCES_PATH
from virtplane.cli.virtctl.connection import Connection, run_connected
from virtplane.cli.virtctl.globalflags import global_flags

_FIELDS = {
    "GitVersion": "gitVersion",
    "GitCommit": "gitCommit",
    "GitTreeState": "gitTreeState",
    "BuildDate": "buildDate",
    "GoVersion": "goVersion",
    "Compiler": "compiler",
    "Platform": "platform",
}


@click.command()
@click.option("-c", "--client", "client_only", is_flag=True, help="Do not ask the server.")
@global_flags
def version(client_only: bool, **given: Any) -> None:
    """Show the versions of this program and of the server."""
    click.echo(f"Client Version: {_render(client_version())}")
    if not client_only:
        run_connected(_server, given, {})


async def _server(client: Client, _connection: Connection) -> None:
    try:
        answer = await client.request("GET", f"{SUBRESOURCES_PATH}/version")
    except StatusError as error:
        raise click.ClickException(f"failed to get server version: {error.message}") from error
    click.echo(f"Server Version: {_render(answer.json())}")


def client_version() -> dict[str, Any]:
    """This program's version in the format of the server's."""
    return {
        "gitVersion": KUBEVIRT_VERSION,
        "gitTreeState": "clean",
        "compiler": platform.python_implementation().lower(),
        "goVersion": f"python{platform.python_version()}",
        "platform": f"{platform.system().lower()}/{platform.machine().replace('x86_64', 'amd64')}",
    }


def _render(info: dict[str, Any]) -> str:
    fields = ", ".join(f'{name}:"{info.get(key, "")}"' for name, key in _FIELDS.items())
    return "version.Info{" + fields + "}"


COMMANDS = {"version": version}

"""``ssh`` and ``scp``: the local OpenSSH, carried by ``port-forward --stdio``."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kubecore.client import Client
from virtplane.cli.virtctl.connection import Connection, connected_besides
from virtplane.cli.virtctl.documents import quoted
from virtplane.cli.virtctl.params import given_flags
from virtplane.cli.virtctl.talking.portforward import Target, parse_target
from virtplane.cli.virtctl.usage import INTEGER

_SSH_FOLDER = Path.home() / ".ssh"


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("-l", "--username", default="", help="The user to log in as."),
        click.option(
            "-i", "--identity-file", default=str(_SSH_FOLDER / "id_rsa"), help="The private key to use."
        ),
        click.option(
            "--known-hosts", default=str(_SSH_FOLDER / "kubevirt_known_hosts"), help="The known hosts file."
        ),
        click.option("-p", "--port", type=INTEGER, default=22, help="The guest's SSH port."),
        click.option("-t", "--local-ssh-opts", multiple=True, help="Further options, verbatim."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("target", metavar="(VM|VMI)")
@click.option("-c", "--command", default="", help="The command to run in the guest.")
@_options
@connected_besides("username")
async def ssh(client: Client, connection: Connection, target: str, command: str, **given: Any) -> None:
    """Log in to a guest by OpenSSH."""
    user, goal = _split(target, connection.namespace, given["username"])
    arguments = ["ssh", *_common(connection, goal, given), _host(user, goal)]
    _become([*arguments, command] if command else arguments)


@click.command()
@click.argument("source")
@click.argument("destination")
@click.option("-r", "--recursive", is_flag=True, help="Copy folders.")
@click.option("--preserve", is_flag=True, help="Preserve times and modes.")
@_options
@connected_besides("username")
async def scp(
    client: Client,
    connection: Connection,
    source: str,
    destination: str,
    recursive: bool,
    preserve: bool,
    **given: Any,
) -> None:
    """Copy files to or from a guest by OpenSSH."""
    remote = [text for text in (source, destination) if ":" in text]
    if len(remote) == 2:
        text = "copying from a remote location to another remote location is not supported"
        raise click.ClickException(f"{text}: {quoted(source)} to {quoted(destination)}")
    if not remote:
        text = "none of the two provided locations seems to be a remote location"
        raise click.ClickException(f"{text}: {quoted(source)} to {quoted(destination)}")
    host, _, path = remote[0].partition(":")
    user, goal = _split(host, connection.namespace, given["username"])
    there = f"{_host(user, goal)}:{path}"
    flags = ["-r"] * recursive + ["-p"] * preserve
    ends = [there if text == remote[0] else text for text in (source, destination)]
    _become(["scp", *_common(connection, goal, given), *flags, *ends])


def _split(target: str, namespace: str, username: str) -> tuple[str, Target]:
    user, _, rest = target.rpartition("@")
    environment = (os.environ.get(name, "") for name in ("USER", "USERNAME", "LOGNAME"))
    chosen = username or user or next(filter(None, environment), "")
    return chosen, parse_target(rest, namespace)


def _host(user: str, goal: Target) -> str:
    name = f"{goal.kind}.{goal.name}.{goal.namespace}"
    return f"{user}@{name}" if user else name


def _common(connection: Connection, goal: Target, given: dict[str, Any]) -> list[str]:
    program = [sys.executable, "-m", "virtplane.cli.virtctl.main", "port-forward", *connection.flags]
    proxy = [*program, "--stdio=true", f"{goal.kind}/{goal.name}/{goal.namespace}", str(given["port"])]
    arguments = ["-o", f"ProxyCommand={shlex.join(proxy)}"]
    flags = given_flags()
    if "known-hosts" in flags:
        arguments += ["-o", f"UserKnownHostsFile={given['known_hosts']}"]
    arguments += given["local_ssh_opts"]
    # Without the flag, OpenSSH looks for keys itself.
    return [*arguments, "-i", given["identity_file"]] if "identity-file" in flags else arguments


def _become(command: list[str]) -> None:
    program = shutil.which(command[0])
    if program is None:
        raise click.ClickException(f"{command[0]} is not installed")
    os.execv(program, command)


COMMANDS = {"ssh": ssh, "scp": scp}

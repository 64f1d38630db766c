"""``kindling node``: the commands for single nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from kindling.cluster import instance as instances
from kindling.cluster.cli_parts import (
    grace_option,
    progress_to_user,
    quiet_option,
    reporting,
    state_option,
)


@click.group()
def node() -> None:
    """Add, remove, stop, start and isolate single nodes of the running cluster."""


def _command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    def decorated(function: Callable[..., None]) -> click.Command:
        return node.command(name)(state_option(reporting(function)))

    return decorated


@_command("list")
def list_nodes(state: Path) -> None:
    """List the nodes: name, address, state, and whether the API shows them as ready."""
    from kindling.cluster import nodes

    click.echo(f"{'NAME':<20}{'ADDRESS':<18}{'STATE':<10}READY")
    for line in nodes.states(instances.require(state)):
        click.echo(f"{line.name:<20}{line.address:<18}{line.state:<10}{line.ready or '-'}")


@_command("add")
@quiet_option
@click.argument("name", default="")
def add(state: Path, quiet: bool, name: str) -> None:
    """Add a node, called NAME or the next free one, and wait until it is ready."""
    from kindling.cluster import nodes

    show = progress_to_user(quiet)
    show(f"ready: {nodes.add(state, name, show)}")


@_command("stop")
@grace_option
@quiet_option
@click.argument("name")
def stop(state: Path, grace_period: float, quiet: bool, name: str) -> None:
    """Stop node NAME with all pods on it, as if it was powered off; it stays so until `start`."""
    from kindling.cluster import nodes

    nodes.stop(state, name, grace_period, progress_to_user(quiet))


@_command("start")
@quiet_option
@click.argument("name")
def start(state: Path, quiet: bool, name: str) -> None:
    """Start the stopped node NAME, or connect it again if it is isolated, and wait until it is ready."""
    from kindling.cluster import nodes

    show = progress_to_user(quiet)
    nodes.start(state, name, show)
    show(f"ready: {name}")


@_command("isolate")
@quiet_option
@click.argument("name")
def isolate(state: Path, quiet: bool, name: str) -> None:
    """Cut the link of node NAME, as a broken cable does, until `start`; what runs on it goes on."""
    from kindling.cluster import nodes

    nodes.isolate(state, name, progress_to_user(quiet))


@_command("remove")
@grace_option
@click.option("--force", is_flag=True, help="Also if pods run on it, which are lost.")
@quiet_option
@click.argument("name")
def remove(state: Path, grace_period: float, force: bool, quiet: bool, name: str) -> None:
    """Stop node NAME and remove it with its disks. First: kubectl drain NAME."""
    from kindling.cluster import nodes

    nodes.remove(state, name, grace_period, progress_to_user(quiet), force=force)

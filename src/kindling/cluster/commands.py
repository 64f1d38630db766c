"""The commands of kindling. They import what they need when they run."""

from __future__ import annotations

import errno
import ipaddress
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kindling import program
from kindling.cluster import instance as instances
from kindling.cluster import node_cli, serving
from kindling.cluster.cli_parts import (
    grace_option,
    progress_to_user,
    quiet_option,
    reporting,
    state_option,
)
from kindling.cluster.errors import ExitCode, SetupError

_EPILOG = (
    "Exit codes: 0 done; 1 failed, or not ready; 2 wrong arguments, or something is missing on this machine; "
    "3 not permitted."
)


def _ranges(_context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Parse ranges of addresses from the command line."""
    for value in values:
        try:
            ipaddress.ip_network(value)
        except ValueError as error:
            raise click.BadParameter(str(error), param=parameter) from error
    return values


def _accounts(
    _context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Parse names of service accounts (NAMESPACE/NAME) from the command line."""
    for value in values:
        if value.count("/") != 1 or not all(value.split("/")):
            raise click.BadParameter(f"{value!r} is not NAMESPACE/NAME", param=parameter)
    return values


def _links(_context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Check names of nodes' links from the command line."""
    from kindling.cluster.node_links import problem_of

    for value in values:
        if problem := problem_of(value):
            raise click.BadParameter(problem, param=parameter)
    return values


def _bytes(_context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Parse a size in bytes, as Kubernetes writes quantities, from the command line."""
    from kubecore.objects.quantity import Quantity

    try:
        return None if value is None else Quantity.parse(value).value
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from error


def _node_options(
    _context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Check options of nodes from the command line."""
    from kindling.node import options

    try:
        options.parse(values)
    except options.OptionProblem as error:
        raise click.BadParameter(str(error), param=parameter) from error
    return values


@click.group(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """A Kubernetes of real parts on one machine."""


main.add_command(node_cli.node)


def _command(name: str | None = None, **settings: Any) -> Callable[[Callable[..., None]], click.Command]:
    """A command on a cluster, whose failures are reported."""

    def decorated(function: Callable[..., None]) -> click.Command:
        return main.command(name, **settings)(state_option(reporting(function)))

    return decorated


@_command(context_settings={"ignore_unknown_options": True})
@click.option("--nodes", type=click.IntRange(1, 200), help="How many nodes; each is isolated like a machine.")
@click.option("--host-image/--no-host-image", default=True, help="Offer kindling.local/host:latest.")
@click.option(
    "--port",
    "api_port",
    type=int,
    help="Port of the API server (default: as before; a free one at first).",
)
@click.option(
    "--external-range",
    "external_ranges",
    multiple=True,
    metavar="CIDR",
    callback=_ranges,
    help="Where services may have external addresses; load balancers get theirs there. May be repeated.",
)
@click.option(
    "--host-image-account",
    "image_accounts",
    multiple=True,
    metavar="NAMESPACE/NAME",
    callback=_accounts,
    help="A service account that may use the host image; may be repeated.",
)
@click.option(
    "--storage",
    metavar="SIZE",
    callback=_bytes,
    help="Size of the storage pool, such as 200Gi; it takes space as it is written, and may grow later. "
    "0: none. Default: as before; most of the free space at first.",
)
@click.option(
    "--node-option",
    "node_options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_node_options,
    help="An option of all nodes, named as a kubelet's flag, for example system-reserved=memory=1Gi; may be "
    "repeated.",
)
@click.option(
    "--node-link",
    "node_links",
    multiple=True,
    metavar="NAME",
    callback=_links,
    help="A link that every node gets beside the one to the cluster, all on one switch, for secondary "
    "networks of pods; may be repeated.",
)
@click.option(
    "--isolate-networks/--no-isolate-networks",
    default=None,
    help="Let pods use definitions of secondary networks only from their own namespace and from default "
    "(default: as before; from every namespace at first).",
)
@click.option(
    "--ip-family",
    type=click.Choice(instances.IP_FAMILIES),
    help="Addresses of nodes, pods and services: IPv4 alone, or IPv6 as well where the machine has it. "
    "Default: as before; dual at first.",
)
@quiet_option
@click.argument("api_flags", nargs=-1, type=click.UNPROCESSED)
def up(quiet: bool, **options: Any) -> None:
    """Start the cluster, or what is missing of it. API_FLAGS go to the API server."""
    from kindling.cluster import bringup

    show = progress_to_user(quiet)
    instance = bringup.up(bringup.UpOptions(**options), show)
    show(f"ready: kubectl --kubeconfig {instance.kubeconfig} get nodes")


@_command()
@grace_option
@quiet_option
def down(state: Path, grace_period: float, quiet: bool) -> None:
    """Stop everything, pods included, and keep the state."""
    from kindling.cluster import teardown

    teardown.down(instances.require(state), progress_to_user(quiet), grace_period)


@_command()
@quiet_option
def reset(state: Path, quiet: bool) -> None:
    """Stop everything and remove every trace."""
    from kindling.cluster import state_directory, teardown

    if not state_directory.check_removable(state):
        click.echo(f"{state}: there is no cluster, nothing to remove", err=True)
        return
    teardown.reset(instances.require(state), progress_to_user(quiet))


@_command()
def status(state: Path) -> None:
    """Show which processes run and what is missing; exit code 1 when the cluster is down or not ready."""
    from kindling.cluster import processes, readiness, supervision, supervisor

    instance = instances.require(state)
    if not os.access(instance.pki, os.R_OK | os.X_OK):
        # Without read access every process would be shown as not running.
        raise PermissionError(
            errno.EACCES, "the status cannot be shown without permission to read", str(instance.pki)
        )
    click.echo(f"state       {instance.state}\napi         {instance.api_url}")
    click.echo(f"subnet      {', '.join(instance.subnets)}")
    pid = supervision.supervisor_pid(instance)
    click.echo(f"supervisor  {pid or 'not running'}")
    specs = processes.specs(instance)
    running = supervisor.find_children(instance.id, specs)
    for spec in specs:
        click.echo(f"{spec.name:<20}{running.get(spec.name, 'not running')}")
    for node in instance.nodes():
        if node.name in instance.stopped_nodes or node.name in instance.isolated_nodes:
            what = "stopped" if node.name in instance.stopped_nodes else "isolated"
            click.echo(f"{node.name:<20}{what}: {program.command(f'node start {node.name}', instance.state)}")
    if not pid:
        click.echo(f"start it: {program.command('up', instance.state)}")
        sys.exit(int(ExitCode.FAILED))
    missing = readiness.missing_parts(instance)
    click.echo(f"cluster     {f'not ready: waiting for {missing}' if missing else 'ready'}")
    if missing and (refused := readiness.refusal(instance.logs / "apiserver.log", 0)):
        click.echo(f"the API server does not start: {refused}")
    if missing:
        sys.exit(int(ExitCode.FAILED))


@_command()
@click.argument("file", type=click.Path(path_type=Path))
def backup(state: Path, file: Path) -> None:
    """Write all objects, keys and settings of the cluster to the new FILE, while it runs or not.

    FILE contains the cluster's keys: everybody who can read it can control the cluster. It does not contain
    volumes and disks of machines.
    """
    from kindling.cluster import backups

    taken = backups.take(instances.require(state), file)
    click.echo(f"{file}: {taken.objects} objects as of revision {taken.revision}")


@_command()
@click.argument("file", type=click.Path(path_type=Path))
def restore(state: Path, file: Path) -> None:
    """Replace the stopped cluster's objects, keys and settings by those of the backup FILE.

    If there is no cluster, one is created from the backup. Replaced files are renamed and kept.
    """
    from kindling.cluster import backups

    outcome = backups.restore(state, file)
    restored, settled = outcome.restored, outcome.instance
    click.echo(f"{settled.state}: {outcome.backup.objects} objects as of revision {outcome.backup.revision}")
    click.echo(f"revisions continue from {restored.revision}, so that every client lists again")
    if restored.aside is not None:
        click.echo(f"the replaced database: {restored.aside}")
    if outcome.keys_replaced:
        click.echo(
            "the keys are the backup's: kubeconfigs and tokens signed with other keys are no longer valid"
        )
    click.echo(f"start the cluster: {program.command('up', settled.state)}")


@_command()
@click.option("--content", is_flag=True, help="Print the file itself instead of its path.")
@click.option("--merge", is_flag=True, help="Add the cluster to your own kubeconfig, as its current context.")
def kubeconfig(state: Path, content: bool, merge: bool) -> None:
    """Print the path of the administrator's kubeconfig."""
    instance = instances.require(state)
    if merge:
        from kindling.cluster import kubeconfig_merge

        path = kubeconfig_merge.merge(instance)
        click.echo(f"{path}: the context {kubeconfig_merge.name_of(instance)} is the current one")
        return
    click.echo(instance.kubeconfig.read_text() if content else instance.kubeconfig)


@_command()
@click.option("--follow", "-f", is_flag=True, help="Go on as the log grows.")
@click.option("--lines", "-n", type=int, default=100, show_default=True, help="How many of the last lines.")
@click.argument("component", required=False)
def logs(state: Path, follow: bool, lines: int, component: str | None) -> None:
    """Print a component's log; without COMPONENT, the names of all."""
    import subprocess

    directory = instances.require(state).logs
    if component is None:
        for path in sorted(directory.glob("*.log")):
            click.echo(path.stem)
        return
    path = directory / f"{component}.log"
    if not path.exists():
        names = ", ".join(sorted(item.stem for item in directory.glob("*.log")))
        raise SetupError(f"log of {component}", "there is none", f"one of {names}", code=ExitCode.UNUSABLE)
    if not os.access(path, os.R_OK):
        raise PermissionError(errno.EACCES, "no permission to read the log", str(path))
    command = ["tail", "-n", str(lines), *(["-F"] if follow else []), str(path)]
    sys.exit(subprocess.run(command, check=False).returncode)


@_command("load")
@click.argument(
    "archives", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
def load_images(state: Path, archives: tuple[Path, ...]) -> None:
    """Import image archives (OCI or Docker) into every node; prints the images' names."""
    from kindling.cluster import nodeimages

    for said in nodeimages.load(instances.require(state), archives):
        click.echo(said, nl=False)


@_command()
def apiserver(state: Path) -> None:
    """Run the API server in the foreground."""
    sys.exit(serving.api_server(state))


@_command()
@click.option("--nodes", envvar="KINDLING_NODES", default="", metavar="NAME,...", help="default: all")
def controllers(state: Path, nodes: str) -> None:
    """Run the controllers, the scheduler and the services' proxy in the foreground."""
    from kindling.cluster import components

    components.run_controllers(instances.require(state), [name for name in nodes.split(",") if name])


@_command("run-node", hidden=True)
@click.argument("name")
def run_node(state: Path, name: str) -> None:
    """Run the agent of node NAME in the foreground."""
    serving.node(state, name)


@_command(hidden=True)
def supervise(state: Path) -> None:
    """Run the supervisor in the foreground."""
    serving.supervisor(state)


@_command(hidden=True)
def renew(state: Path) -> None:
    """Renew certificates that expire within a month; the supervisor restarts the processes that use them."""
    from kindling.cluster import certificates, kubeconfig_merge, kubeconfigs

    instance = instances.require(state)
    for name in certificates.ensure(instance):
        click.echo(f"renewed the certificate {name}")
    kubeconfigs.ensure(instance)
    kubeconfig_merge.refresh(instance)

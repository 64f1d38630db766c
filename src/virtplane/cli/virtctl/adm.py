"""``adm``, and its ``log-verbosity``: how much the components of the installation log."""

from __future__ import annotations

import click

from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.patch.diff import pointer
from virtplane.cli.virtctl.connection import Connection, connected
from virtplane.cli.virtctl.explaining.drainplan import drain_plan
from virtplane.cli.virtctl.params import given_flags, refuse_together
from virtplane.cli.virtctl.usage import BareOption, Commands, Integer

_FIELDS = {
    "virt-api": "virtAPI",
    "virt-controller": "virtController",
    "virt-handler": "virtHandler",
    "virt-launcher": "virtLauncher",
    "virt-operator": "virtOperator",
}
_SHOW = 10
"""What a flag without a value stands for."""

_UNSET = 11
_HIGHEST = 9
_DEVELOPER = ("spec", "configuration", "developerConfiguration")


def _level(component: str, what: str) -> click.Option:
    text = f"Level of {what}, 0 to 9; without a level, show it."
    return BareOption(f"--{component}", bare=_SHOW, type=Integer(0, 2**64 - 1), default=_UNSET, help=text)


@click.group(cls=Commands, invoke_without_command=True)
@click.pass_context
def adm(context: click.Context) -> None:
    """Settings of the installation, and what a drain would do."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@click.command(name="log-verbosity")
@click.option("--reset", is_flag=True, help="Go back to the usual level (2).")
@connected
async def log_verbosity(client: Client, connection: Connection, reset: bool, **levels: int) -> None:
    """How much the components log: show, change or reset it.

    A level stands behind an equals sign. Flags without one show levels, and so do not go together with flags
    that change them.
    """
    refuse_together(("reset", "all"), given_flags())
    wanted = {name.replace("_", "-"): level for name, level in levels.items() if level != _UNSET}
    kubevirt = await _installation(client)
    shows = operation(wanted, reset=reset)
    if shows is None:
        context = click.get_current_context()
        click.echo(context.get_help())
        raise click.ClickException("no flag specified - expecting at least one flag")
    present = get_object(kubevirt, *_DEVELOPER, "logVerbosity")
    if shows:
        for line in shown(wanted, present):
            click.echo(line)
        return
    operations = changes(kubevirt, wanted, reset=reset)
    if operations:
        await _patch(client, kubevirt, operations)
        click.echo("successfully set/reset the log verbosity")


def operation(wanted: dict[str, int], *, reset: bool) -> bool | None:
    """Whether the levels are to be shown (else changed); None if nothing is asked for.

    Raises click.ClickException.
    """
    for component, level in sorted(wanted.items()):
        if level != _SHOW and level > _HIGHEST:
            raise click.ClickException(f"{component}: log verbosity must be 0-{_HIGHEST}")
    shows = _SHOW in wanted.values()
    changes_some = reset or any(level != _SHOW for level in wanted.values())
    if shows and changes_some:
        raise click.ClickException("only show or set is allowed")
    return shows if shows or changes_some else None


def shown(wanted: dict[str, int], present: JsonObject) -> list[str]:
    """One line for each component that is asked for."""
    from virtplane.api.config import ClusterConfig

    usual = ClusterConfig().configuration.developer_configuration.log_verbosity
    components = list(_FIELDS) if "all" in wanted else sorted(wanted)
    lines = []
    for component in components:
        level = present.get(_FIELDS[component], getattr(usual, component.replace("-", "_")))
        lines.append(f"{component}={level}")
    return lines


def changes(kubevirt: JsonObject, wanted: dict[str, int], *, reset: bool) -> list[JsonObject]:
    """The operations on the KubeVirt object; none where a reset finds nothing to reset."""
    present = get_object(kubevirt, *_DEVELOPER, "logVerbosity")
    if reset and not wanted and not present:
        return []
    levels: JsonObject = {} if reset else dict(present)
    if "all" in wanted:
        levels |= dict.fromkeys(_FIELDS.values(), wanted["all"])
    levels |= {_FIELDS[component]: level for component, level in wanted.items() if component != "all"}
    parents = (_DEVELOPER[:2], _DEVELOPER)
    missing = [path for path in parents if not isinstance(_at(kubevirt, path), dict)]
    operations: list[JsonObject] = [{"op": "add", "path": pointer(*path), "value": {}} for path in missing]
    return [*operations, {"op": "add", "path": pointer(*_DEVELOPER, "logVerbosity"), "value": levels}]


def _at(document: JsonObject, path: tuple[str, ...]) -> object:
    return get_object(document, *path[:-1]).get(path[-1])


async def _installation(client: Client) -> JsonObject:
    """The only KubeVirt of the cluster. Raises click.ClickException."""
    from virtplane.api.resources import KUBEVIRTS

    try:
        found = get_list(await client.list(KUBEVIRTS), "items")
    except StatusError as error:
        text = f"could not list KubeVirt CRs across all namespaces: {error.message}"
        raise click.ClickException(text) from error
    if not found:
        raise click.ClickException("could not detect a KubeVirt installation")
    if len(found) > 1:
        text = "invalid kubevirt installation, more than one KubeVirt resource found"
        raise click.ClickException(text)
    kubevirt: JsonObject = found[0]
    return kubevirt


async def _patch(client: Client, kubevirt: JsonObject, operations: list[JsonObject]) -> None:
    from virtplane.api.resources import KUBEVIRTS

    name, namespace = get_str(kubevirt, "metadata", "name"), get_str(kubevirt, "metadata", "namespace")
    await client.patch(KUBEVIRTS, name, operations, namespace, type="json")


log_verbosity.params[:0] = [
    _level("all", "all components"),
    *(_level(component, component) for component in _FIELDS),
]
adm.add_command(log_verbosity)
adm.add_command(drain_plan)

COMMANDS = {"adm": adm}

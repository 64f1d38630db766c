"""``start``, ``stop``, ``restart``, ``migrate``, ``migrate-cancel`` and ``evacuate-cancel``."""

from __future__ import annotations

from typing import Any

import click

from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import get_list
from kubecore.objects.structs import decode
from virtplane.cli.virtctl.connection import KINDS, Connection, connected, dry_run_body, key_values, put
from virtplane.cli.virtctl.params import given_flags
from virtplane.cli.virtctl.usage import INTEGER

_FORCE_RULE = "Must both use --force=true and set --grace-period."


@click.command()
@click.argument("name", metavar="(VM)")
@click.option("--paused", is_flag=True, help="Do not let the guest run yet.")
@click.option("--dry-run", is_flag=True, help="Do not change anything on the server.")
@connected
async def start(client: Client, connection: Connection, name: str, paused: bool, dry_run: bool) -> None:
    """Start a VM."""
    body = dry_run_body(dry_run) | ({"paused": True} if paused else {})
    await _act(client, connection, name, "start", body, "Error starting VirtualMachine ")


@click.command()
@click.argument("name", metavar="(VM)")
@click.option("--force", is_flag=True, help="Force the action; needs --grace-period.")
@click.option("--grace-period", type=INTEGER, default=-1, help="Seconds for the guest to shut down.")
@click.option("--dry-run", is_flag=True, help="Do not change anything on the server.")
@connected
async def stop(
    client: Client, connection: Connection, name: str, force: bool, grace_period: int, dry_run: bool
) -> None:
    """Shut a VM down."""
    body = dry_run_body(dry_run) | _forced(force, grace_period, "gracePeriod")
    failure = "error force stopping VirtualMachine: " if force else "error stopping VirtualMachine "
    await _act(client, connection, name, "stop", body, failure)


@click.command()
@click.argument("name", metavar="(VM)")
@click.option("--force", is_flag=True, help="Force the action; needs --grace-period.")
@click.option("--grace-period", type=INTEGER, default=-1, help="Seconds for the guest to shut down.")
@click.option("--dry-run", is_flag=True, help="Do not change anything on the server.")
@connected
async def restart(
    client: Client, connection: Connection, name: str, force: bool, grace_period: int, dry_run: bool
) -> None:
    """Stop a VM's guest and start it again."""
    body = dry_run_body(dry_run) | _forced(force, grace_period, "gracePeriodSeconds")
    failure = "error force restarting VirtualMachine: " if force else "error restarting VirtualMachine: "
    await _act(client, connection, name, "restart", body, failure)


@click.command()
@click.argument("name", metavar="(VM)")
@click.option("--addedNodeSelector", "added", multiple=True, help="key=value the target node must have.")
@click.option("--to", default="", help="The target node; what keeps the guest from it is told beforehand.")
@click.option("--dry-run", is_flag=True, help="Do not change anything on the server.")
@connected
async def migrate(
    client: Client, connection: Connection, name: str, added: tuple[str, ...], to: str, dry_run: bool
) -> None:
    """Move a running guest to another node."""
    selector = key_values(added, "addedNodeSelector") if added else {}
    if to:
        from virtplane.cli.virtctl.explaining.migrateto import selector_for

        selector |= await selector_for(client, connection.namespace, name, to)
    body = dry_run_body(dry_run)
    if selector:
        body["addedNodeSelector"] = selector
    await _act(client, connection, name, "migrate", body, "Error migrating VirtualMachine ")


@click.command(name="migrate-cancel")
@click.argument("name", metavar="(VM)")
@click.option("--dry-run", is_flag=True, help="Do not change anything on the server.")
@connected
async def migrate_cancel(client: Client, connection: Connection, name: str, dry_run: bool) -> None:
    """Stop the migration of a guest that is under way."""
    from virtplane.api.kubevirt_v1.migration import VirtualMachineInstanceMigration
    from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCE_MIGRATIONS as MIGRATIONS

    try:
        found = await client.list(
            MIGRATIONS, connection.namespace, label_selector=f"kubevirt.io/vmi-name=={name}"
        )
    except StatusError as error:
        text = f"Error fetching virtual machine instance migration list  {error.message}"
        raise click.ClickException(text) from error
    trial = bool(dry_run_body(dry_run))
    for document in get_list(found, "items"):
        migration = decode(VirtualMachineInstanceMigration, document)
        if migration.status is not None and migration.status.phase in ("Succeeded", "Failed"):
            continue
        own = migration.metadata.name
        try:
            await client.delete(MIGRATIONS, own, connection.namespace, dry_run=trial)
        except StatusError as error:
            text = f"Error canceling migration {own} of a VirtualMachine {name}: {error.message}"
            raise click.ClickException(text) from error
        click.echo(f"VM {name} was scheduled to migrate-cancel")
        return
    raise click.ClickException(f"Found no migration to cancel for {name}")


@click.command(name="evacuate-cancel")
@click.argument("kind", metavar="vm|vmi")
@click.argument("name", metavar="(vm-name)|(vmi-name)")
@click.option("--dry-run", is_flag=True, help="Do not change anything on the server.")
@connected
async def evacuate_cancel(
    client: Client, connection: Connection, kind: str, name: str, dry_run: bool
) -> None:
    """Take back a guest's request to leave its node."""
    from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
    from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES

    resource = KINDS.get(kind.lower())
    if resource is None:
        raise click.ClickException(f'unsupported resource type "{kind}"')
    body = dry_run_body(dry_run)
    what = f"{'VM' if resource == 'virtualmachines' else 'VMI'} {connection.namespace}/{name}"
    try:
        vmi = await client.get(VIRTUAL_MACHINE_INSTANCES, name, connection.namespace)
    except StatusError as error:
        text = f"error retrieving VMI for evacuation cancel for {what}: {error.message}"
        raise click.ClickException(text) from error
    node = decode(VirtualMachineInstance, vmi).status.node_name
    if not node:
        raise click.ClickException(f"{what} doesn't report Node name")
    path = connection.subresource(resource, name, "evacuate/cancel")
    await put(client, path, {**body, "evacuationNodeName": node}, f"error canceling evacuation for {what}: ")
    click.echo(f"{what} was canceled evacuation")


def _forced(force: bool, grace_period: int, field: str) -> dict[str, Any]:
    if force != ("grace-period" in given_flags()):
        raise click.ClickException(_FORCE_RULE)
    return {field: grace_period} if force else {}


async def _act(
    client: Client, connection: Connection, name: str, action: str, body: dict[str, Any], failure: str
) -> None:
    await put(client, connection.subresource("virtualmachines", name, action), body, failure)
    click.echo(f"VM {name} was scheduled to {action}")


COMMANDS = {
    "start": start,
    "stop": stop,
    "restart": restart,
    "migrate": migrate,
    "migrate-cancel": migrate_cancel,
    "evacuate-cancel": evacuate_cancel,
}

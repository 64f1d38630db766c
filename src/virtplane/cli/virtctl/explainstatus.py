"""``explain-status``: why a machine waits, which field to change, and the numbers behind it."""

from __future__ import annotations

import click

from kubecore.client import Client
from kubecore.errors import StatusError
from virtplane.cli.virtctl.connection import Connection, connected
from virtplane.cli.virtctl.documents import as_json, printable


@click.command(name="explain-status")
@click.argument("name", metavar="(VM)")
@click.option("-o", "--output", default="", help="json, for programs.")
@connected
async def explain_status(client: Client, connection: Connection, name: str, output: str) -> None:
    """Say why a VM waits, which field to change, and the numbers.

    Nothing is changed. What may not be read (nodes, for users of one namespace) is left out.
    """
    from virtplane.cli.virtctl.explaining.causes import explain
    from virtplane.cli.virtctl.explaining.facts import gather

    if output not in ("", "json"):
        raise click.ClickException(f"unsupported output format: {output} (must be 'json')")
    try:
        facts = await gather(client, connection.namespace, name)
    except StatusError as error:
        raise click.ClickException(f"error fetching VirtualMachine: {error.message}") from error
    answer, status = explain(facts), facts.vm.observed.printable_status or "Unknown"
    if output:
        click.echo(as_json(answer.document(name, status), indent=2))
        return
    click.echo(printable("\n".join(answer.lines(name, status))))


COMMANDS = {"explain-status": explain_status}

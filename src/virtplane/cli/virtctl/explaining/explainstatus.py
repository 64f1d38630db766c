"""``explain-status``: why a machine waits, which field to change, and the numbers behind it."""

from __future__ import annotations

import click

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.resources import ResourceType
from virtplane.api import resources as api
from virtplane.cli.virtctl.connection import Connection, connected
from virtplane.cli.virtctl.documents import as_json, printable

_KINDS: tuple[tuple[ResourceType, tuple[str, ...]], ...] = (
    (api.VIRTUAL_MACHINES, ("vm", "vms")),
    (api.VIRTUAL_MACHINE_INSTANCES, ("vmi", "vmis")),
    (api.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS, ("vmim", "vmims")),
    (api.VIRTUAL_MACHINE_POOLS, ("vmpool", "vmpools")),
    (api.VIRTUAL_MACHINE_SNAPSHOTS, ("vmsnapshot", "vmsnapshots")),
    (api.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS, ("vmsnapshotcontent", "vmsnapshotcontents")),
    (api.VIRTUAL_MACHINE_RESTORES, ("vmrestore", "vmrestores")),
    (api.DATA_VOLUMES, ("dv", "dvs")),
    (api.OBJECT_TRANSFERS, ("ot", "ots")),
    (api.KUBEVIRTS, ("kv", "kvs")),
    (api.CDIS, ()),
    (api.HOSTPATH_PROVISIONERS, ()),
    (api.VOLUME_SNAPSHOTS, ()),
    (api.VOLUME_SNAPSHOT_CONTENTS, ()),
    (resources.PERSISTENT_VOLUME_CLAIMS, ("pvc",)),
    (resources.PERSISTENT_VOLUMES, ("pv",)),
    (resources.VOLUME_ATTACHMENTS, ()),
)
"""The kinds whose deletions are explained, with their short names."""


def kind_of(text: str) -> ResourceType:
    """The kind of a name as kubectl takes it: plural, singular or short. Raises ClickException."""
    wanted = text.lower().partition(".")[0]
    for kind, short in _KINDS:
        if wanted in (kind.plural, kind.kind.lower(), *short):
            return kind
    known = ", ".join(short[0] if short else kind.kind.lower() for kind, short in _KINDS)
    raise click.ClickException(f"unsupported resource type '{text}' (must be one of {known})")


@click.command(name="explain-status")
@click.argument("name", metavar="(VM|TYPE/NAME)")
@click.option("-o", "--output", default="", help="json, for programs.")
@connected
async def explain_status(client: Client, connection: Connection, name: str, output: str) -> None:
    """Say why a VM waits, which field to change, and the numbers.

    Of other objects it says why they are still there after they were deleted, until when they wait, and which
    command ends that. Nothing is changed. What may not be read (nodes, for users of one namespace) is left
    out.
    """
    from virtplane.cli.virtctl.explaining.answer import Answer
    from virtplane.cli.virtctl.explaining.causes import deleted, explain
    from virtplane.cli.virtctl.explaining.facts import deletion, gather

    if output not in ("", "json"):
        raise click.ClickException(f"unsupported output format: {output} (must be 'json')")
    before, slash, after = name.partition("/")
    kind, name = (kind_of(before), after) if slash else (api.VIRTUAL_MACHINES, name)
    try:
        if kind == api.VIRTUAL_MACHINES:
            facts = await gather(client, connection.namespace, name)
            answer, status = explain(facts), facts.vm.observed.printable_status or "Unknown"
            if facts.deletion is not None:
                answer, status = deleted(facts.deletion), "Terminating"
        else:
            document = await client.get(kind, name, connection.namespace if kind.namespaced else None)
            wait = await deletion(client, kind, document)
            status = "Terminating" if wait is not None else "not deleted"
            answer = deleted(wait) if wait is not None else Answer("nobody has deleted it.")
    except StatusError as error:
        raise click.ClickException(f"error fetching {kind.kind}: {error.message}") from error
    if output:
        click.echo(as_json(answer.document(name, status), indent=2))
        return
    click.echo(printable("\n".join(answer.lines(name, status))))


COMMANDS = {"explain-status": explain_status}

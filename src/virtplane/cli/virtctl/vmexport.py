"""``vmexport``: deletes exports. What would wait for an export is refused: nothing serves exports yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from virtplane.api.resources import VIRTUAL_MACHINE_EXPORTS
from virtplane.cli.virtctl.connection import Connection, connected
from virtplane.cli.virtctl.params import given_flags, refuse_together

_SOURCES = ("pvc", "vm", "snapshot", "vmtemplate")
_OF_DOWNLOADS = (
    *("output", "volume", "insecure", "keep-vme", "delete-vme", "format", "port-forward", "retry"),
    *("include-secret", "manifest", "manifest-output-format", "service-url"),
)
"""Flags that make no sense with other functions."""

_UNSERVED = "this server exports nothing yet: a VirtualMachineExport would never be ready"


@click.command()
@click.argument("function", metavar="create/delete/download")
@click.argument("name", metavar="NAME")
@click.option("--vm", default="", help="Export this VM's volumes.")
@click.option("--snapshot", default="", help="Export the volumes of this VirtualMachineSnapshot.")
@click.option("--pvc", default="", help="Export this claim.")
@click.option("--vmtemplate", default="", help="Export the volumes of this VirtualMachineTemplate.")
@click.option("--output", default="", help="The file that is written; - is standard output.")
@click.option("--volume", default="", help="Which volume, where there are several.")
@click.option("--format", default="", help="The format of the download: gzip (default), raw or oci.")
@click.option("--insecure", is_flag=True, help="With 'download': do not verify the server's certificate.")
@click.option("--keep-vme", is_flag=True, help="With 'download': keep the vmexport object afterwards.")
@click.option("--delete-vme", is_flag=True, help="With 'download': delete the vmexport object afterwards.")
@click.option(
    "--ttl", default="", help="The time after which the export may be deleted (2 hours by default)."
)
@click.option("--manifest", is_flag=True, help="Retrieve the VM manifest instead of a volume.")
@click.option("--manifest-output-format", default="", help="Manifest output format: yaml (default) or json.")
@click.option("--include-secret", is_flag=True, help="With --manifest: include a secret for CDI's headers.")
@click.option("--service-url", default="", help="The url to use instead of the one in the export's status.")
@click.option("--port-forward", is_flag=True, help="Download through a forwarded port.")
@click.option("--local-port", default="0", help="The port to be used by --port-forward.")
@click.option("--retry", type=int, default=0, help="How often to retry after a passing error.")
@click.option("--labels", multiple=True, help="Labels of the export and its pod: key=value.")
@click.option("--annotations", multiple=True, help="Annotations of the export and its pod: key=value.")
@click.option("--readiness-timeout", default="", help="How long to wait for the export to be ready.")
@connected
async def vmexport(client: Client, connection: Connection, function: str, name: str, **given: Any) -> None:
    """Make exports of volumes, delete and download them."""
    flags = given_flags()
    refuse_together(("vm", "snapshot", "pvc", "vmtemplate"), flags)
    refuse_together(("keep-vme", "delete-vme"), flags)
    function = function.lower()
    check_flags(function, given)
    if function != "delete":
        raise click.ClickException(_UNSERVED)
    own = f"VirtualMachineExport '{connection.namespace}/{name}'"
    try:
        await client.delete(VIRTUAL_MACHINE_EXPORTS, name, connection.namespace)
    except StatusError as error:
        if not is_not_found(error):
            raise
        click.echo(f"{own} does not exist")
    else:
        click.echo(f"{own} deleted successfully")


def check_flags(function: str, given: Mapping[str, Any]) -> None:
    """Raises click.ClickException for flags that do not fit the function."""
    if function not in ("create", "delete", "download"):
        raise click.ClickException(f"invalid function '{function}'")
    has_source = any(given[source] for source in _SOURCES)
    if function == "create" and not has_source:
        text = "need to specify export kind when attempting to create a VirtualMachineExport"
        raise click.ClickException(f"{text} [--pvc|--vm|--snapshot|--vmtemplate]")
    if function == "delete" and has_source:
        raise click.ClickException("should not specify export kind")
    if function != "download":
        for flag in _OF_DOWNLOADS:
            if given[flag.replace("-", "_")]:
                raise click.ClickException(f"the '--{flag}' flag is incompatible with '{function}'")
        return
    for value, known in (
        (given["format"], "gzip/raw/oci"),
        (given["manifest_output_format"], "json/yaml"),
    ):
        if value and value.lower() not in known.split("/"):
            raise click.ClickException(f"{value} is not a valid value, acceptable values are {known}")


COMMANDS = {"vmexport": vmexport}

"""``expand``, ``objectgraph`` and ``permitted-devices``: documents that the cluster holds or computes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import yaml

from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.structs import decode
from virtplane.api.resources import SUBRESOURCES_PATH
from virtplane.cli.virtctl.connection import Connection, connected, key_values
from virtplane.cli.virtctl.documents import as_json, as_yaml, machine_in_full
from virtplane.cli.virtctl.params import given_flags, refuse_together


@click.command()
@click.option("--vm", default="", help="The VirtualMachine to expand.")
@click.option("-f", "--file", "path", default="", help="A file with a VirtualMachine; - is standard input.")
@click.option("-o", "--output", default="yaml", help="yaml or json.")
@connected
async def expand(client: Client, connection: Connection, vm: str, path: str, output: str) -> None:
    """Show a VM with all that its instance type and preference add."""
    refuse_together(("file", "vm"), given_flags())
    if not vm and not path:
        raise click.ClickException("error invalid arguments - VirtualMachine name or file must be provided")
    if output not in ("json", "yaml"):
        raise click.ClickException(f"error not supported output format defined: {output}")
    method, body, name = "GET", None, vm
    url = connection.subresource("virtualmachines", vm, "expand-spec")
    if path:
        method, body = "PUT", _read(path)
        name = get_str(body, "metadata", "name")
        url = f"{SUBRESOURCES_PATH}/namespaces/{connection.namespace}/expand-vm-spec"
    try:
        answer = (await client.request(method, url, body=body)).json()
    except StatusError as error:
        text = (
            f"error expanding VirtualMachine - {name} in namespace - {connection.namespace}: {error.message}"
        )
        raise click.ClickException(text) from error
    expanded = machine_in_full(answer)
    click.echo(as_json(expanded, indent=1) if output == "json" else as_yaml(expanded), nl=False)


def _read(path: str) -> JsonObject:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise click.ClickException(f"error reading file open {path}: {reason}") from error
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise click.ClickException(f"error decoding VirtualMachine {error}") from error
    if not found:
        raise click.ClickException("error decoding VirtualMachine EOF")
    if not isinstance(found, dict):
        raise click.ClickException("error decoding VirtualMachine: the file holds no object")
    return {"kind": "VirtualMachine", "apiVersion": "kubevirt.io/v1", **found}


@click.command()
@click.argument("name", metavar="(VM|VMI)")
@click.option("--exclude-optional", is_flag=True, help="Leave out what may be missing.")
@click.option("-o", "--output", default="json", help="json or yaml.")
@click.option("--selector", multiple=True, help="key=value that the labels of nodes must have.")
@click.option("--vmi", is_flag=True, help="NAME is that of a VirtualMachineInstance.")
@connected
async def objectgraph(
    client: Client,
    connection: Connection,
    name: str,
    exclude_optional: bool,
    output: str,
    selector: tuple[str, ...],
    vmi: bool,
) -> None:
    """Show which objects a VM or its instance depends on."""
    if output not in ("json", "yaml"):
        raise click.ClickException(f"unsupported output format: {output} (must be 'json' or 'yaml')")
    options: dict[str, Any] = {"includeOptionalNodes": not exclude_optional}
    if selector:
        options["labelSelector"] = {"matchLabels": key_values(selector, "selector")}
    resource = "virtualmachineinstances" if vmi else "virtualmachines"
    try:
        path = connection.subresource(resource, name, "objectgraph")
        graph = (await client.request("GET", path, body=options)).json()
    except StatusError as error:
        kind = "VirtualMachineInstance" if vmi else "VirtualMachine"
        text = f"error listing object graph of {kind} {name}: {error.message}"
        raise click.ClickException(text) from error
    click.echo(as_json(graph, indent=2) if output == "json" else as_yaml(graph))


@click.command(name="permitted-devices")
@connected
async def permitted_devices(client: Client, connection: Connection) -> None:
    """Show which devices of nodes guests may have."""
    from virtplane.api.kubevirt_v1.configuration import KubeVirtConfiguration
    from virtplane.api.kubevirt_v1.device_configuration import PermittedHostDevices
    from virtplane.api.resources import KUBEVIRTS

    found = get_list(await client.list(KUBEVIRTS, connection.namespace), "items")
    if not found:
        raise click.ClickException(f'no KubeVirt resource in "{connection.namespace}" namespace')
    configuration = decode(KubeVirtConfiguration, get_object(found[0], "spec", "configuration"))
    permitted = configuration.permitted_host_devices or PermittedHostDevices()
    host = ", ".join(device.resource_name for device in permitted.pci_host_devices)
    gpu = ", ".join(device.resource_name for device in permitted.mediated_devices)
    click.echo(f"Permitted Devices: \nHost Devices: \n{host} \nGPU Devices: \n{gpu}")


COMMANDS = {"expand": expand, "objectgraph": objectgraph, "permitted-devices": permitted_devices}

"""``template``: fills in VirtualMachineTemplates, and makes them of machines and of OpenShift's templates."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import yaml

from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.resources import ResourceType
from virtplane.cli.virtctl.connection import Connection, connected, key_values
from virtplane.cli.virtctl.documents import as_json, as_yaml, harmless, in_order, machine_in_full
from virtplane.cli.virtctl.params import given_flags, refuse_together
from virtplane.cli.virtctl.templates import templating
from virtplane.cli.virtctl.usage import Commands

_GROUP, _VERSION = "template.kubevirt.io", "v1beta1"
_TEMPLATES = ResourceType(_GROUP, _VERSION, "virtualmachinetemplates", "VirtualMachineTemplate")
_REQUESTS = ResourceType(_GROUP, _VERSION, "virtualmachinetemplaterequests", "VirtualMachineTemplateRequest")
_OPENSHIFT_TEMPLATES = ResourceType("template.openshift.io", "v1", "templates", "Template")
_PARAMETER = dict.fromkeys(
    ("name", "displayName", "description", "value", "generate", "from", "required"), None
)
_OBJECT = dict.fromkeys(("kind", "apiVersion", "metadata", "spec", "status"), None)
_TEMPLATE = {**_OBJECT, "spec": {"virtualMachine": None, "parameters": _PARAMETER, "message": None}}
_KEPT = ("name", "namespace", "labels", "annotations")
"""The metadata of a converted template."""


@click.group(cls=Commands, invoke_without_command=True)
@click.pass_context
def template(context: click.Context) -> None:
    """VirtualMachineTemplates: fill them in, make and convert them."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@click.command()
@click.argument("names", nargs=-1, metavar="[name]")
@click.option("--create", is_flag=True, help="Have the server make the VM of its template.")
@click.option("-f", "--file", "path", default="", help="A file with the template; - is standard input.")
@click.option("--local", is_flag=True, help="Fill in the server's template here.")
@click.option("--name", default="", help="The template on the server.")
@click.option("-o", "--output", default="yaml", help="yaml or json.")
@click.option("-p", "--param", multiple=True, help="NAME=VALUE of a parameter; repeatable.")
@click.option("--params-file", default="", help="A YAML or JSON file with values of parameters.")
@click.option("--print-params", is_flag=True, help="Show the template's parameters instead.")
@connected
async def process(client: Client, connection: Connection, names: tuple[str, ...], **given: Any) -> None:
    """Make a VirtualMachine of a template and print it."""
    name = _source(names, given)
    flags = given_flags()
    for group in (
        ("create", "file"),
        ("create", "local"),
        ("create", "print-params"),
        ("file", "local"),
        ("param", "params-file"),
    ):
        refuse_together(group, flags)
    values = key_values(given["param"], "-p, --param")
    if given["params_file"]:
        values = _file_values(given["params_file"])
    if given["print_params"]:
        try:
            found = await _template(client, connection, name, given["path"])
        except click.ClickException as error:
            raise click.ClickException(f"error printing template parameters: {error.message}") from error
        parameters = in_order(get_list(found, "spec", "parameters"), _PARAMETER)
        _print(parameters or None, given["output"])
    elif name and not given["local"]:
        await _processed_by_server(client, connection, name, values, given)
    else:
        _process_here(await _template(client, connection, name, given["path"]), values, given["output"])


@click.command()
@click.argument("names", nargs=-1, metavar="[name]")
@click.option("-f", "--file", "path", default="", help="A file with the template; - is standard input.")
@click.option("--name", default="", help="The template on the server.")
@click.option("-o", "--output", default="yaml", help="yaml or json.")
@connected
async def convert(client: Client, connection: Connection, names: tuple[str, ...], **given: Any) -> None:
    """Print OpenShift's template of one VM as a VirtualMachineTemplate."""
    name = _source(names, given)
    if name:
        found = await _get(client, connection, _OPENSHIFT_TEMPLATES, name)
    else:
        found = _read(given["path"])
    _print(in_order(converted(found), _TEMPLATE), given["output"])


@click.command()
@click.option("--name", default="", help="The template's name; a random one by default.")
@click.option("--vm-name", required=True, help="The VM that becomes a template.")
@click.option("--vm-namespace", default="", help="The VM's namespace, if it is another one.")
@connected
async def create(client: Client, connection: Connection, name: str, vm_name: str, vm_namespace: str) -> None:
    """Request a VirtualMachineTemplate of a VM."""
    machine = {"namespace": vm_namespace or connection.namespace, "name": vm_name}
    wish: JsonObject = {
        "kind": _REQUESTS.kind,
        "apiVersion": _REQUESTS.api_version,
        "metadata": {"generateName": f"{vm_name}-", "namespace": connection.namespace},
        "spec": {"virtualMachineRef": machine, **({"templateName": name} if name else {})},
    }
    try:
        made = await client.create(_REQUESTS, wish)
    except StatusError as error:
        text = f"error creating VirtualMachineTemplateRequest: {error.message}"
        raise click.ClickException(text) from error
    own = f"{_REQUESTS.kind.lower()}.{_GROUP}"
    click.echo(f"{own}/{get_str(made, 'metadata', 'name')} created")


def converted(found: JsonObject) -> JsonObject:
    """The VirtualMachineTemplate for OpenShift's template. Raises click.ClickException."""
    objects = get_list(found, "objects")
    if len(objects) != 1:
        text = f"template must contain exactly one object, found {len(objects)}"
        raise click.ClickException(text)
    spec: JsonObject = {"virtualMachine": _sorted(objects[0])}
    if get_list(found, "parameters"):
        spec["parameters"] = get_list(found, "parameters")
    if get_str(found, "message"):
        spec["message"] = get_str(found, "message")
    present = get_object(found, "metadata")
    metadata = {key: _sorted(present[key]) for key in _KEPT if present.get(key)}
    head = {"kind": _TEMPLATES.kind, "apiVersion": _TEMPLATES.api_version}
    return {**head, "metadata": metadata, "spec": spec}


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _source(names: tuple[str, ...], given: dict[str, Any]) -> str:
    """The template's name; empty where a file is meant. Raises click.ClickException."""
    if len(names) > 1:
        raise click.ClickException(f"accepts between 0 and 1 arg(s), received {len(names)}")
    if names and given["name"]:
        raise click.ClickException("provide name either from positional argument or from flag")
    name = str(given["name"] or "".join(names))
    if name and given["path"]:
        raise click.ClickException("only one of name or file can be provided")
    if not name and not given["path"]:
        raise click.ClickException("name or file must be provided")
    if given["output"] not in ("json", "yaml"):
        raise click.ClickException(f"not supported output format: {given['output']}")
    return name


def _process_here(found: JsonObject, values: dict[str, str], output: str) -> None:
    failure = "error merging template parameters"
    try:
        filled = templating.with_values(found, values)
        failure = "error validating template parameters"
        for line in templating.check_references(filled):
            click.echo(f"Warning: {harmless(line)}", err=True)
        failure = "error processing VirtualMachineTemplate locally"
        machine, message = templating.process(filled)
    except templating.TemplateError as error:
        *warnings, last = str(error).split("\n")
        for line in warnings:
            click.echo(harmless(line), err=True)
        raise click.ClickException(f"{failure}: {last}") from error
    _show(machine, message, output)


async def _processed_by_server(
    client: Client, connection: Connection, name: str, values: dict[str, str], given: dict[str, Any]
) -> None:
    own = f"{connection.namespace}/{name}"
    action, failure = ("process", "error processing remote VirtualMachineTemplate")
    if given["create"]:
        action, failure = ("create", "error creating VirtualMachine from remote VirtualMachineTemplate")
    base = f"/apis/subresources.{_GROUP}/{_VERSION}/namespaces/{connection.namespace}"
    path = f"{base}/{_TEMPLATES.plural}/{name}/{action}"
    try:
        answer = (await client.request("POST", path, body={"parameters": values} if values else {})).json()
    except StatusError as error:
        raise click.ClickException(f"{failure} {own}: {error.message}") from error
    machine = get_object(answer, "virtualMachine") if isinstance(answer, dict) else {}
    if not machine:
        raise click.ClickException(f"{failure} {own}: the server's answer holds no VirtualMachine")
    if given["create"]:
        click.echo(f"virtualmachine.kubevirt.io/{get_str(machine, 'metadata', 'name')} created")
        return
    _show(machine, get_str(answer, "message"), given["output"])


def _show(machine: JsonObject, message: str, output: str) -> None:
    """Print the machine and tell the user the message."""
    _print(machine_in_full(machine), output)
    if message:
        click.echo(harmless(message), err=True, nl=False)


def _print(document: Any, output: str) -> None:
    click.echo(as_json(document, indent=1) if output == "json" else as_yaml(document), nl=False)


async def _template(client: Client, connection: Connection, name: str, path: str) -> JsonObject:
    return await _get(client, connection, _TEMPLATES, name) if name else _read(path)


async def _get(client: Client, connection: Connection, kind: ResourceType, name: str) -> JsonObject:
    try:
        return await client.get(kind, name, connection.namespace)
    except StatusError as error:
        own = f"{connection.namespace}/{name}"
        raise click.ClickException(f"error fetching remote {kind.kind} {own}: {error.message}") from error


def _read(path: str) -> JsonObject:
    """The object in a file. Raises click.ClickException."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or "").lower() if isinstance(error, OSError) else str(error)
        raise click.ClickException(f"error opening file {path}: open {path}: {reason}") from error
    return _mapping(text, f"error decoding file {path}")


def _file_values(path: str) -> dict[str, str]:
    """The values in a file of parameters. Raises click.ClickException."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or "").lower() if isinstance(error, OSError) else str(error)
        raise click.ClickException(f"error reading params file: open {path}: {reason}") from error
    found = _mapping(text, "error reading params file")
    return {str(key): value if isinstance(value, str) else as_json(value, 0) for key, value in found.items()}


def _mapping(text: str, failure: str) -> JsonObject:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise click.ClickException(f"{failure}: {error}") from error
    if found is not None and not isinstance(found, dict):
        raise click.ClickException(f"{failure}: it holds no object")
    return found or {}


for _command in (convert, create, process):
    template.add_command(_command)

COMMANDS = {"template": template}

"""``create instancetype`` and ``create preference``: manifests to apply; nothing is sent anywhere.

The other kinds have modules of their own.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from kubecore.json import JsonObject
from virtplane.cli.virtctl.documents import as_yaml
from virtplane.cli.virtctl.globalflags import global_flags
from virtplane.cli.virtctl.params import FlagError, parameters, quantity, random_ending
from virtplane.cli.virtctl.usage import Commands, Integer

_INSTANCETYPE_API = "instancetype.kubevirt.io/v1beta1"
_COMMANDS = {
    "clone": ("clone", "A VirtualMachineClone."),
    "instancetype": (
        "create",
        "An instance type of the cluster or of a namespace.",
    ),
    "preference": (
        "create",
        "A preference of the cluster or of a namespace.",
    ),
    "vm": ("machine", "A VirtualMachine with its disks and users."),
}
_MAX_UINT32 = 2**32 - 1
_TOPOLOGIES = ("sockets", "cores", "threads", "spread", "any")
_OLD_TOPOLOGIES = tuple(f"prefer{name.capitalize()}" for name in _TOPOLOGIES)


class _Kinds(Commands):
    """The kinds of the manifests; each module is loaded at its first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"virtplane.cli.virtctl.creating.{_COMMANDS[cmd_name][0]}")
        command: click.Command = module.MANIFESTS[cmd_name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Available Commands"):
            formatter.write_dl([(name, entry[1]) for name, entry in sorted(_COMMANDS.items())])


@click.group(cls=_Kinds, invoke_without_command=True)
@click.pass_context
def create(context: click.Context) -> None:
    """Write manifests to standard output."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@click.command()
@click.option("--cpu", type=Integer(0, _MAX_UINT32), required=True, help="Processors of the guest.")
@click.option("--memory", required=True, help="Memory of the guest.")
@click.option("--name", default="", help="The name.")
@click.option("--namespaced", is_flag=True, help="For one namespace only.")
@click.option("--gpu", multiple=True, help="A GPU: name:string,devicename:string; may be repeated.")
@click.option("--hostdevice", multiple=True, help="A device: name:string,devicename:string; may be repeated.")
@click.option("--iothreadspolicy", default="", help="auto or shared.")
@global_flags
def instancetype(
    cpu: int,
    memory: str,
    name: str,
    namespaced: bool,
    gpu: tuple[str, ...],
    hostdevice: tuple[str, ...],
    iothreadspolicy: str,
    **given: Any,
) -> None:
    """An instance type of the cluster or of a namespace."""
    spec: JsonObject = {"cpu": {"guest": cpu}}
    for flag, field, values in (("gpu", "gpus", gpu), ("hostdevice", "hostDevices", hostdevice)):
        if values:
            spec[field] = [_device(flag, text) for text in values]
    if iothreadspolicy:
        if iothreadspolicy not in ("auto", "shared"):
            raise FlagError("iothreadspolicy", "IOThread must be of value auto or shared")
        spec["ioThreadsPolicy"] = iothreadspolicy
    if cpu == 0:
        raise click.ClickException("cpu value must be greater than zero")
    try:
        spec["memory"] = {"guest": quantity(memory)}
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    _print("Instancetype", name, spec, namespaced=namespaced, namespace=given["namespace"])


def _device(flag: str, text: str) -> JsonObject:
    found = parameters(flag, text, ("name", "devicename"))
    for parameter, field in (("name", "name"), ("devicename", "deviceName")):
        if not found.get(parameter):
            raise FlagError(flag, f"{field} must be specified")
    return {"name": found["name"], "deviceName": found["devicename"]}


@click.command()
@click.option(
    "--cpu-topology", default="", help="How processors are shown: sockets, cores, threads, spread, any."
)
@click.option("--machine-type", default="", help="Machine type that VMs get unless they say otherwise.")
@click.option("--name", default="", help="The name.")
@click.option("--namespaced", is_flag=True, help="For one namespace only.")
@click.option("--volume-storage-class", default="", help="The preferred storage class of volumes.")
@global_flags
def preference(
    cpu_topology: str,
    machine_type: str,
    name: str,
    namespaced: bool,
    volume_storage_class: str,
    **given: Any,
) -> None:
    """A preference of the cluster or of a namespace."""
    spec: JsonObject = {}
    if volume_storage_class:
        spec["volumes"] = {"preferredStorageClassName": volume_storage_class}
    if machine_type:
        spec["machine"] = {"preferredMachineType": machine_type}
    if cpu_topology:
        if cpu_topology not in _TOPOLOGIES + _OLD_TOPOLOGIES:
            reason = "CPU topology must have a value of sockets, cores, threads or spread"
            raise FlagError("cpu-topology", reason)
        spec["cpu"] = {"preferredCPUTopology": cpu_topology}
    _print("Preference", name, spec, namespaced=namespaced, namespace=given["namespace"])


def _print(kind: str, name: str, spec: JsonObject, *, namespaced: bool, namespace: str | None) -> None:
    """Print the manifest. With --namespace, the kind is the namespaced one."""
    scope = "" if namespaced or namespace else "Cluster"
    metadata: JsonObject = {"name": name or f"{scope}{kind}-".lower() + random_ending()}
    if namespace:
        metadata["namespace"] = namespace
    manifest = {"apiVersion": _INSTANCETYPE_API, "kind": f"VirtualMachine{scope}{kind}"}
    click.echo(as_yaml({**manifest, "metadata": metadata, "spec": spec}), nl=False)


COMMANDS = {"create": create}
MANIFESTS = {"instancetype": instancetype, "preference": preference}

"""``create clone``: the manifest of a VirtualMachineClone from flags; nothing is sent anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from kubecore.json import JsonObject
from virtplane.api.resources import (
    VIRTUAL_MACHINE_CLONES,
    VIRTUAL_MACHINE_SNAPSHOTS,
    VIRTUAL_MACHINES,
)
from virtplane.cli.virtctl.documents import as_yaml
from virtplane.cli.virtctl.globalflags import global_flags
from virtplane.cli.virtctl.params import random_ending

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SOURCES = "vm, vmsnapshot"
_TARGETS = "vm"
_MACHINE_NAMES = ("vm", "VM", "VirtualMachine", "virtualmachine")
_SNAPSHOT_NAMES = ("snapshot", "vmsnapshot", "VMSnapshot", "VirtualMachineSnapshot")
_FILTERS = {
    "label-filter": "label filters",
    "annotation-filter": "annotation filters",
    "template-label-filter": "template label filters",
    "template-annotation-filter": "template annotation filters",
}


def _filter_options(command: _Command) -> _Command:
    for flag, what in reversed(_FILTERS.items()):
        text = f"Specify clone's {what}. Can be provided multiple times."
        command = click.option(f"--{flag}", multiple=True, help=text)(command)
    return command


@click.command()
@click.option("--name", default="", help="Specify the name of the clone. It is random if not specified.")
@click.option("--source-name", required=True, help="Specify the clone's source name.")
@click.option("--target-name", default="", help="Specify the clone's target name.")
@click.option(
    "--source-type",
    default="",
    help=f"Specify the clone's source type. Default type is VM. Supported types: {_SOURCES}",
)
@click.option(
    "--target-type",
    default="",
    help=f"Specify the clone's target type. Default type is VM. Supported types: {_TARGETS}",
)
@_filter_options
@click.option(
    "--new-mac-address",
    "addresses",
    multiple=True,
    help="Specify clone's new mac addresses. For example: 'interfaceName0:newAddress0'",
)
@click.option("--new-smbios-serial", "serial", default="", help="Specify the clone's new smbios serial")
@global_flags
def clone(**given: Any) -> None:
    """Create a clone object manifest"""
    if not given["source_name"]:
        raise click.ClickException("source name must not be empty")
    click.echo(as_yaml(manifest(given)), nl=False)


def manifest(given: dict[str, Any]) -> JsonObject:
    """The VirtualMachineClone for the flags. Raises click.ClickException."""
    template = _filters(given["template_annotation_filter"], given["template_label_filter"])
    spec: JsonObject = {
        "source": _reference(given["source_type"], given["source_name"], "source"),
        "target": _reference(given["target_type"], given["target_name"], "target"),
        "template": template,
        **_filters(given["annotation_filter"], given["label_filter"]),
    }
    addresses = _addresses(given["addresses"])
    if addresses:
        spec["newMacAddresses"] = addresses
    if given["serial"]:
        spec["newSMBiosSerial"] = given["serial"]
    metadata: JsonObject = {"name": given["name"] or f"clone-{random_ending()}"}
    if given["namespace"]:
        metadata["namespace"] = given["namespace"]
    kind = VIRTUAL_MACHINE_CLONES
    head: JsonObject = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    return {**head, "spec": spec, "status": {}}


def _filters(annotations: Sequence[str], labels: Sequence[str]) -> JsonObject:
    """Filters that are given; an empty list would copy nothing."""
    found = {"annotationFilters": list(annotations), "labelFilters": list(labels)}
    return {name: values for name, values in found.items() if values}


def _reference(kind: str, name: str, end: str) -> JsonObject:
    """What is cloned, or what it becomes (`end`). Raises click.ClickException."""
    if not kind or kind in _MACHINE_NAMES:
        found = VIRTUAL_MACHINES
    elif end == "source" and kind in _SNAPSHOT_NAMES:
        found = VIRTUAL_MACHINE_SNAPSHOTS
    else:
        supported = _SOURCES if end == "source" else _TARGETS
        raise click.ClickException(f"{end} type {kind} is not supported. Supported types: {supported}")
    return {"apiGroup": found.group, "kind": found.kind, "name": name}


def _addresses(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        if text.count(":") != 1:
            reason = "exactly one ':' is expected. For example: 'interface0:address0'"
            raise click.ClickException(f"newMacAddress parameter {text} is invalid: {reason}")
        interface, _, address = text.partition(":")
        if not interface:
            raise click.ClickException(f"newMacAddress parameter {text} has empty interface name")
        if not address:
            raise click.ClickException(f"newMacAddress parameter {text} has empty address name")
        found[interface] = address
    return found


MANIFESTS = {"clone": clone}

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
    "label-filter": "labels",
    "annotation-filter": "annotations",
    "template-label-filter": "labels of its template",
    "template-annotation-filter": "annotations of its template",
}


def _filter_options(command: _Command) -> _Command:
    for flag, what in reversed(_FILTERS.items()):
        text = f"Which {what} the copy keeps; repeatable."
        command = click.option(f"--{flag}", multiple=True, help=text)(command)
    return command


@click.command()
@click.option("--name", default="", help="The VirtualMachineClone's name; a random one by default.")
@click.option("--source-name", required=True, help="What is copied.")
@click.option("--target-name", default="", help="The copy's name; the server chooses one by default.")
@click.option(
    "--source-type",
    default="",
    help=f"What kind the source is: {_SOURCES} (default: vm).",
)
@click.option(
    "--target-type",
    default="",
    help=f"What kind the copy is: {_TARGETS}.",
)
@_filter_options
@click.option(
    "--new-mac-address",
    "addresses",
    multiple=True,
    help="INTERFACE:ADDRESS of the copy; repeatable.",
)
@click.option("--new-smbios-serial", "serial", default="", help="The serial number of the copy's firmware.")
@global_flags
def clone(**given: Any) -> None:
    """A VirtualMachineClone."""
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

"""Snapshots, restores, clones, exports and backups."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping

import orjson

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import go_quote
from virtplane.api import resources
from virtplane.api.durations import parse_duration
from virtplane.compute.apiserver.admission.request import Request, replace
from virtplane.compute.apiserver.admission.response import (
    NOT_FOUND,
    REQUIRED,
    Cause,
    Response,
)
from virtplane.compute.apiserver.admission.rules.networks import mac_address_problem

_IMMUTABLE = "spec in immutable after creation"
_RESTORE_POLICIES = ("InPlace", "RandomizeNames", "PrefixTargetName")
_OWNERSHIP_POLICIES = ("Vm", "None")
_PATCHABLE = ("/metadata/labels/", "/metadata/annotations/", "/spec/")


def _bad_duration(spec: JsonObject, field: str) -> str:
    text = get_str(spec, field)
    try:
        if text:
            parse_duration(text)
    except ValueError as error:
        return str(error)
    return ""


def _unchanged(request: Request) -> Response:
    if get_object(request.new, "spec") != get_object(request.old, "spec"):
        return Response.refuse([Cause(_IMMUTABLE, "spec")])
    return Response.allow()


def _machine_reference(path: str, reference: JsonObject) -> Iterator[Cause]:
    group = reference.get("apiGroup")
    if group is None:
        yield Cause("missing apiGroup", f"{path}.apiGroup", NOT_FOUND)
    elif group != "kubevirt.io":
        yield Cause("invalid apiGroup", f"{path}.apiGroup")
    elif get_str(reference, "kind") != "VirtualMachine":
        yield Cause("invalid kind", f"{path}.kind")


async def validate_snapshot(request: Request) -> Response:
    """The source of a snapshot is a VM; the spec is immutable."""
    request.expect("virtualmachinesnapshots")
    spec = get_object(request.new, "spec")
    problem = _bad_duration(spec, "failureDeadline")
    if problem:
        return Response.plain(problem)
    if not request.is_creation:
        return _unchanged(request)
    if not request.config.gate("Snapshot"):
        return Response.plain("snapshot feature gate not enabled")
    found = list(_machine_reference("spec.source", get_object(spec, "source")))
    return Response.refuse(found) if found else Response.allow()


async def validate_restore(request: Request) -> Response:
    """The target of a restore is a VM with no other restore in progress."""
    request.expect("virtualmachinerestores")
    if not request.is_creation:
        return _unchanged(request)
    if not request.config.gate("Snapshot"):
        return Response.plain("Snapshot/Restore feature gate not enabled")
    spec = get_object(request.new, "spec")
    found = list(_machine_reference("spec.target", get_object(spec, "target")))
    if not found:
        snapshot = get_str(spec, "virtualMachineSnapshotName")
        problem = _unusable_name(snapshot)
        if problem:
            return Response.plain(problem)
        kind = resources.VIRTUAL_MACHINE_SNAPSHOTS
        if await request.lookups.get(kind, snapshot, request.namespace) is not None:
            found += _clone_patch_causes(spec) if request.is_from_component else _patch_causes(spec)
        found += _restore_causes(spec)
    for other in await request.lookups.list(resources.VIRTUAL_MACHINE_RESTORES, request.namespace):
        same = get_object(other, "spec").get("target") == spec.get("target")
        if same and not get_object(other, "status").get("complete"):
            name = get_str(other, "metadata", "name")
            found.append(Cause(f'VirtualMachineRestore "{name}" in progress', "spec.target"))
    return Response.refuse(found) if found else Response.allow()


def _unusable_name(name: str) -> str:
    """Why the name is not a valid path segment, in the words of client-go; empty if it is."""
    if not name:
        return "resource name may not be empty"
    if name in (".", ".."):
        return f"invalid resource name {go_quote(name)}: [may not be '{name}']"
    wrong = " ".join(f"may not contain '{mark}'" for mark in "/%" if mark in name)
    return f"invalid resource name {go_quote(name)}: [{wrong}]" if wrong else ""


def _patch_causes(spec: JsonObject) -> Iterator[Cause]:
    """A patch is a flat object, and changes labels, annotations and the spec only."""
    for patch in get_list(spec, "patches"):
        for pair in patch.strip("{}").split(","):
            parts = [part.strip() for part in pair.split(":")]
            if len(parts) != 2:
                wanted = 'patch format is not valid - one ":" expected in a single key-value json patch'
                yield Cause(f"{wanted}: {pair}", "spec.patches")
            elif parts[0] == '"path"' and not parts[1].removeprefix('"').startswith(_PATCHABLE):
                yield Cause(f"patching is valid only for elements under /spec/ only: {pair}", "spec.patches")


def _clone_patch_causes(spec: JsonObject) -> Iterator[Cause]:
    """The errors of a clone's patches, which are decoded, since their values may be maps (labels)."""
    for patch in get_list(spec, "patches"):
        operation = orjson.loads(patch)
        path = operation.get("path") if isinstance(operation, dict) else None
        if not f"{path}/".startswith(_PATCHABLE):
            yield Cause(f"patching is valid only for elements under /spec/ only: {patch}", "spec.patches")


def _restore_causes(spec: JsonObject) -> Iterator[Cause]:
    for index, override in enumerate(get_list(spec, "volumeRestoreOverrides")):
        path = f"spec.volumeRestoreOverrides[{index}]"
        if not get_str(override, "volumeName"):
            yield Cause("must provide a volume name", f"{path}.volumeName", REQUIRED)
        is_empty = override.get("labels") is None and override.get("annotations") is None
        if is_empty and not get_str(override, "restoreName"):
            yield Cause("must provide at least one overriden field", path, REQUIRED)
    policy = spec.get("volumeRestorePolicy")
    if policy is not None and policy not in _RESTORE_POLICIES:
        yield Cause(f'volume restore policy "{policy}" doesn\'t exist', "spec.volumeRestorePolicy")
    ownership = spec.get("volumeOwnershipPolicy")
    if ownership is not None and ownership not in _OWNERSHIP_POLICIES:
        yield Cause(f'volume ownership policy "{ownership}" doesn\'t exist', "spec.volumeOwnershipPolicy")


_EXPORTABLE: Mapping[str, tuple[str, str, str]] = {
    "PersistentVolumeClaim": ("", "PVC", "PVC API group must be missing or blank"),
    "VirtualMachineSnapshot": (
        "snapshot.kubevirt.io",
        "VMSnapshot",
        "VMSnapshot API group must be snapshot.kubevirt.io",
    ),
    "VirtualMachine": ("kubevirt.io", "Virtual Machine", "VM API group must be kubevirt.io"),
    "VirtualMachineBackup": (
        "backup.kubevirt.io",
        "VirtualMachineBackup",
        "VirtualMachineBackup API group must be backup.kubevirt.io",
    ),
    "VirtualMachineTemplate": (
        "template.kubevirt.io",
        "VirtualMachineTemplate",
        "VirtualMachineTemplate API group must be template.kubevirt.io",
    ),
}
"""Kinds that can be exported: their group, their name in messages, and the message of a wrong group."""


async def validate_export(request: Request) -> Response:
    """The source of an export must be exportable; the spec is immutable."""
    request.expect("virtualmachineexports")
    problem = _bad_duration(get_object(request.new, "spec"), "ttlDuration")
    if problem:
        return Response.plain(problem)
    if not request.is_creation:
        return _unchanged(request)
    found = list(_export_causes(request))
    return Response.refuse(found) if found else Response.allow()


def _export_causes(request: Request) -> Iterator[Cause]:
    source = get_object(request.new, "spec", "source")
    kind = get_str(source, "kind")
    entry = _EXPORTABLE.get(kind)
    if entry is None:
        yield Cause("invalid kind", "spec.source.kind")
        return
    group, what, wrong_group = entry
    if kind == "VirtualMachineTemplate" and not request.config.gate("OCIExport"):
        yield Cause(
            "VirtualMachineTemplate source requires the OCIExport feature gate"
            " and virt-template deployment to be enabled",
            "spec.source.kind",
        )
        return
    if not get_str(source, "name"):
        yield Cause(f"{what} name must not be empty", "spec.source.name")
    if (source.get("apiGroup") or "") != group:
        yield Cause(wrong_group, "spec.source.APIGroup")


async def validate_backup(request: Request) -> Response:
    """One backup of a source at a time."""
    request.expect("virtualmachinebackups")
    if not request.is_creation:
        return Response.allow()
    if not request.config.gate("IncrementalBackup"):
        return Response.plain("IncrementalBackup feature gate not enabled")
    source = get_object(request.new, "spec").get("source")
    for other in await request.lookups.list(resources.VIRTUAL_MACHINE_BACKUPS, request.namespace):
        name = get_str(other, "metadata", "name")
        if name == request.name:
            return Response.refuse([Cause(f'VirtualMachineBackup "{name}" already exists', "metadata.name")])
        if get_object(other, "spec").get("source") == source and not _is_done(other):
            return Response.refuse(
                [Cause(f'VirtualMachineBackup "{name}" in progress for source', "spec.source")]
            )
    return Response.allow()


def _is_done(backup: JsonObject) -> bool:
    return any(
        condition.get("type") in ("Done", "Failed") and condition.get("status") == "True"
        for condition in get_list(backup, "status", "conditions")
    )


async def validate_backup_tracker(request: Request) -> Response:
    """Trackers need the gate."""
    request.expect("virtualmachinebackuptrackers")
    if request.is_creation and not request.config.gate("IncrementalBackup"):
        return Response.plain("IncrementalBackup feature gate not enabled")
    return Response.allow()


_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names, as Kubernetes chooses them."""


async def mutate_clone(request: Request) -> Response:
    """A clone without a target gets one."""
    request.expect("virtualmachineclones")
    if "spec" not in request.new:
        return Response.refuse([Cause("spec in body is required", type="")])
    request.check("VirtualMachineClone")
    spec = get_object(request.new, "spec")
    target = spec.get("target")
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(5))
    name = f"clone-{get_str(spec, 'source', 'name')}-{suffix}"
    if target is None:
        spec["target"] = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name}
    elif not target.get("name"):
        target["name"] = name
    else:
        return Response.allow()
    for reference in (spec.get("source"), spec["target"]):
        if isinstance(reference, dict):
            reference.setdefault("apiGroup", None)
    return Response.allow(patches=[replace("/spec", spec)])


async def validate_clone(request: Request) -> Response:
    """Validate kinds of source and target, filters and patches."""
    request.expect("virtualmachineclones")
    if request.is_creation and not request.config.gate("Snapshot"):
        return Response.plain("snapshot feature gate is not enabled")
    found = list(_clone_causes(get_object(request.new, "spec")))
    return Response.refuse(found) if found else Response.allow()


def _clone_causes(spec: JsonObject) -> Iterator[Cause]:
    for field, entries in (
        ("spec.annotations", get_list(spec, "annotationFilters")),
        ("spec.labels", get_list(spec, "labelFilters")),
        ("spec.template.annotations", get_list(spec, "template", "annotationFilters")),
        ("spec.template.labels", get_list(spec, "template", "labelFilters")),
    ):
        for entry in entries:
            yield from _filter(field, entry)
    yield from _clone_ends(spec)
    for interface, address in get_object(spec, "newMacAddresses").items():
        if address and mac_address_problem(address):
            yield Cause(
                f"interface {interface} has malformed MAC address ({address}).",
                f"spec.newMacAddresses.{interface}",
            )
    for index, patch in enumerate(get_list(spec, "patches")):
        try:
            orjson.loads(patch)
        except orjson.JSONDecodeError:
            yield Cause(f"patch is not valid JSON ({patch})", f"spec.patches[{index}]")


def _filter(field: str, entry: str) -> Iterator[Cause]:
    if entry == "!":
        yield Cause("a negation character is not a valid filter", field)
        return
    if "!" in entry[1:]:
        yield Cause(
            f"{field} filter {entry} is invalid: cannot contain a negation character (!);"
            " FilterRules: NegationChar can be only used at the beginning of the filter",
            field,
        )
    if "*" in entry[:-1]:
        yield Cause(
            f"{field} filter {entry} is invalid: cannot contain a wildcard character (*);"
            " FilterRules: WildcardChar can be only at the end of the filter",
            field,
        )


def _clone_ends(spec: JsonObject) -> Iterator[Cause]:
    source, target = spec.get("source"), get_object(spec, "target")
    if not isinstance(source, dict):
        yield Cause("Source cannot be nil", "spec.Source")
        return
    kind = get_str(source, "kind")
    if kind not in ("VirtualMachine", "VirtualMachineSnapshot"):
        yield Cause("Source kind is not supported", "spec.Source.Kind")
    if target and get_str(target, "kind") != "VirtualMachine":
        yield Cause("Target kind is not supported", "spec.Target.Kind")
    for key, what, field in (
        ("apiGroup", "APIGroup", "spec.Source.APIGroup"),
        ("kind", "Kind", "spec.Source"),
        ("name", "name", "spec.Source.Name"),
    ):
        if not source.get(key):
            yield Cause(f"Source's {what} cannot be empty", field)
    same = get_str(source, "name") == get_str(target, "name")
    if kind == get_str(target, "kind") == "VirtualMachine" and same:
        yield Cause(
            "Target name cannot be equal to source name when both are VirtualMachines", "spec.target.name"
        )

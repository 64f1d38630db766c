"""Snapshots, restores, clones, exports and backups."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence

import orjson

from kubecore.json import get_object, get_str
from kubecore.objects.fields import go_quote
from kubecore.objects.structs import decode, readable
from virtplane.api import resources
from virtplane.api.backup_v1alpha1.backup import VirtualMachineBackup
from virtplane.api.clone_v1beta1.clone import VirtualMachineClone, VirtualMachineCloneSpec
from virtplane.api.conditions import is_true
from virtplane.api.config import ClusterConfig
from virtplane.api.core_v1 import TypedLocalObjectReference
from virtplane.api.durations import parse_duration
from virtplane.api.export_v1.export import VirtualMachineExport
from virtplane.api.snapshot_v1beta1.restore import VirtualMachineRestore, VirtualMachineRestoreSpec
from virtplane.api.snapshot_v1beta1.snapshot import VirtualMachineSnapshot
from virtplane.compute.apiserver.admission.request import Request, replace
from virtplane.compute.apiserver.admission.rules.networks import mac_address_problem
from virtplane.serving.responses import NOT_FOUND, REQUIRED, Cause, Response

_IMMUTABLE = "spec in immutable after creation"
_RESTORE_POLICIES = ("InPlace", "RandomizeNames", "PrefixTargetName")
_OWNERSHIP_POLICIES = ("Vm", "None")
_MOST_FILTERS = 256
"""Each is compared with each label, while all other clones wait. KubeVirt has no limit."""

_PATCHABLE = ("/metadata/labels/", "/metadata/annotations/", "/spec/")


def _bad_duration(text: str | None) -> str:
    try:
        if text:
            parse_duration(text)
    except ValueError as error:
        return str(error)
    return ""


def _unchanged(request: Request) -> Response:
    if request.changes_spec:
        return Response.refuse([Cause(_IMMUTABLE, "spec")])
    return Response.allow()


def _machine_reference(path: str, reference: TypedLocalObjectReference) -> Iterator[Cause]:
    if reference.api_group is None:
        yield Cause("missing apiGroup", f"{path}.apiGroup", NOT_FOUND)
    elif reference.api_group != "kubevirt.io":
        yield Cause("invalid apiGroup", f"{path}.apiGroup")
    elif reference.kind != "VirtualMachine":
        yield Cause("invalid kind", f"{path}.kind")


async def validate_snapshot(request: Request) -> Response:
    """The source of a snapshot is a VM; the spec is immutable."""
    request.expect("virtualmachinesnapshots")
    spec = request.read(VirtualMachineSnapshot).spec
    problem = _bad_duration(spec.failure_deadline)
    if problem:
        return Response.plain(problem)
    if not request.is_creation:
        return _unchanged(request)
    if not request.config.gate("Snapshot"):
        return Response.plain("snapshot feature gate not enabled")
    found = list(_machine_reference("spec.source", spec.source))
    return Response.refuse(found) if found else Response.allow()


async def validate_restore(request: Request) -> Response:
    """The target of a restore is a VM with no other restore in progress."""
    request.expect("virtualmachinerestores")
    if not request.is_creation:
        return _unchanged(request)
    if not request.config.gate("Snapshot"):
        return Response.plain("Snapshot/Restore feature gate not enabled")
    spec = request.read(VirtualMachineRestore).spec
    found = list(_machine_reference("spec.target", spec.target))
    if not found:
        snapshot = spec.virtual_machine_snapshot_name
        problem = _unusable_name(snapshot)
        if problem:
            return Response.plain(problem)
        kind = resources.VIRTUAL_MACHINE_SNAPSHOTS
        if await request.lookups.get(kind, snapshot, request.namespace) is not None:
            found += [] if request.is_from_component else _patch_causes(spec.patches)
            found = found or list(_decoded_patch_causes(spec.patches))
        found += _restore_causes(spec)
    listed = await request.lookups.list(resources.VIRTUAL_MACHINE_RESTORES, request.namespace)
    for other in readable(VirtualMachineRestore, listed):
        if other.spec.target == spec.target and not other.status.complete:
            text = f'VirtualMachineRestore "{other.metadata.name}" in progress'
            found.append(Cause(text, "spec.target"))
    return Response.refuse(found) if found else Response.allow()


def _unusable_name(name: str) -> str:
    """Why the name is not a valid path segment, in the words of client-go; empty if it is."""
    if not name:
        return "resource name may not be empty"
    if name in (".", ".."):
        return f"invalid resource name {go_quote(name)}: [may not be '{name}']"
    wrong = " ".join(f"may not contain '{mark}'" for mark in "/%" if mark in name)
    return f"invalid resource name {go_quote(name)}: [{wrong}]" if wrong else ""


def _patch_causes(patches: Sequence[str]) -> Iterator[Cause]:
    """A patch is a flat object, and changes labels, annotations and the spec only.

    This reads text, as KubeVirt does, for the same answers; what the text means is judged when it is decoded.
    """
    for patch in patches:
        for pair in patch.strip("{}").split(","):
            parts = [part.strip() for part in pair.split(":")]
            if len(parts) != 2:
                wanted = 'patch format is not valid - one ":" expected in a single key-value json patch'
                yield Cause(f"{wanted}: {pair}", "spec.patches")
            elif parts[0] == '"path"' and not parts[1].removeprefix('"').startswith(_PATCHABLE):
                yield Cause(f"patching is valid only for elements under /spec/ only: {pair}", "spec.patches")


def _decoded_patch_causes(patches: Sequence[str]) -> Iterator[Cause]:
    """The same of what the patches mean. Those of a clone are judged by that alone: values may be maps."""
    for patch in patches:
        try:
            operation = orjson.loads(patch)
        except orjson.JSONDecodeError:
            operation = None
        path = operation.get("path") if isinstance(operation, dict) else None
        if not f"{path}/".startswith(_PATCHABLE):
            yield Cause(f"patching is valid only for elements under /spec/ only: {patch}", "spec.patches")


def _restore_causes(spec: VirtualMachineRestoreSpec) -> Iterator[Cause]:
    for index, override in enumerate(spec.volume_restore_overrides):
        path = f"spec.volumeRestoreOverrides[{index}]"
        if not override.volume_name:
            yield Cause("must provide a volume name", f"{path}.volumeName", REQUIRED)
        is_empty = override.labels is None and override.annotations is None
        if is_empty and not override.restore_name:
            yield Cause("must provide at least one overriden field", path, REQUIRED)
    policy, ownership = spec.volume_restore_policy, spec.volume_ownership_policy
    if policy is not None and policy not in _RESTORE_POLICIES:
        yield Cause(f'volume restore policy "{policy}" doesn\'t exist', "spec.volumeRestorePolicy")
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
    spec = request.read(VirtualMachineExport).spec
    problem = _bad_duration(spec.ttl_duration)
    if problem:
        return Response.plain(problem)
    if not request.is_creation:
        return _unchanged(request)
    found = list(_export_causes(spec.source, request.config))
    return Response.refuse(found) if found else Response.allow()


def _export_causes(source: TypedLocalObjectReference, config: ClusterConfig) -> Iterator[Cause]:
    entry = _EXPORTABLE.get(source.kind)
    if entry is None:
        yield Cause("invalid kind", "spec.source.kind")
        return
    group, what, wrong_group = entry
    if source.kind == "VirtualMachineTemplate" and not config.gate("OCIExport"):
        yield Cause(
            "VirtualMachineTemplate source requires the OCIExport feature gate"
            " and virt-template deployment to be enabled",
            "spec.source.kind",
        )
        return
    if not source.name:
        yield Cause(f"{what} name must not be empty", "spec.source.name")
    if (source.api_group or "") != group:
        yield Cause(wrong_group, "spec.source.APIGroup")


async def validate_backup(request: Request) -> Response:
    """One backup of a source at a time."""
    request.expect("virtualmachinebackups")
    if not request.is_creation:
        return Response.allow()
    if not request.config.gate("IncrementalBackup"):
        return Response.plain("IncrementalBackup feature gate not enabled")
    source = request.read(VirtualMachineBackup).spec.source
    listed = await request.lookups.list(resources.VIRTUAL_MACHINE_BACKUPS, request.namespace)
    for other in readable(VirtualMachineBackup, listed):
        name = other.metadata.name
        if name == request.name:
            return Response.refuse([Cause(f'VirtualMachineBackup "{name}" already exists', "metadata.name")])
        if other.spec.source == source and not _is_done(other):
            return Response.refuse(
                [Cause(f'VirtualMachineBackup "{name}" in progress for source', "spec.source")]
            )
    return Response.allow()


def _is_done(backup: VirtualMachineBackup) -> bool:
    conditions = backup.status.conditions if backup.status is not None else ()
    return is_true(conditions, "Done") or is_true(conditions, "Failed")


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
    found = list(_clone_causes(decode(VirtualMachineClone, request.new).spec))
    return Response.refuse(found) if found else Response.allow()


def _clone_causes(spec: VirtualMachineCloneSpec) -> Iterator[Cause]:
    for field, entries in (
        ("spec.annotations", spec.annotation_filters),
        ("spec.labels", spec.label_filters),
        ("spec.template.annotations", spec.template.annotation_filters),
        ("spec.template.labels", spec.template.label_filters),
    ):
        if entries and len(entries) > _MOST_FILTERS:
            yield Cause(f"{field} has more than {_MOST_FILTERS} filters", field)
            return
        for entry in entries or ():
            yield from _filter(field, entry)
    yield from _clone_ends(spec)
    for interface, address in spec.new_mac_addresses.items():
        if address and mac_address_problem(address):
            yield Cause(
                f"interface {interface} has malformed MAC address ({address}).",
                f"spec.newMacAddresses.{interface}",
            )
    for index, patch in enumerate(spec.patches):
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


def _clone_ends(spec: VirtualMachineCloneSpec) -> Iterator[Cause]:
    source, target = spec.source, spec.target
    if source.kind not in ("VirtualMachine", "VirtualMachineSnapshot"):
        yield Cause("Source kind is not supported", "spec.Source.Kind")
    if target is not None and target.kind != "VirtualMachine":
        yield Cause("Target kind is not supported", "spec.Target.Kind")
    for value, what, field in (
        (source.api_group, "APIGroup", "spec.Source.APIGroup"),
        (source.kind, "Kind", "spec.Source"),
        (source.name, "name", "spec.Source.Name"),
    ):
        if not value:
            yield Cause(f"Source's {what} cannot be empty", field)
    is_same = target is not None and source.kind == target.kind and source.name == target.name
    if is_same and source.kind == "VirtualMachine":
        yield Cause(
            "Target name cannot be equal to source name when both are VirtualMachines", "spec.target.name"
        )

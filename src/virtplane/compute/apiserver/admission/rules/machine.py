"""Rules on the spec of a machine, apart from its template's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kubecore.objects.structs import decode, encode
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.subresources import AddVolumeOptions
from virtplane.api.kubevirt_v1.vm import DataVolumeTemplateSpec, VirtualMachine, VirtualMachineSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virtplane.api.kubevirt_v1.volumes import Volume
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.compute.apiserver.admission.rules.compute import memory_hotplug_problem
from virtplane.compute.apiserver.admission.rules.hotplug import VM_PREFIX, new_disk
from virtplane.compute.apiserver.admission.rules.metadata import metadata
from virtplane.compute.apiserver.admission.rules.spec import spec_causes
from virtplane.serving.responses import INVALID, NOT_SUPPORTED, REQUIRED, Cause

RUN_STRATEGIES = ("Halted", "Manual", "Always", "RerunOnFailure", "Once")
_STATUS_FIELD = "Status.volumeRequests"


def machine_causes(path: str, spec: VirtualMachineSpec, config: ClusterConfig, user: str) -> Iterator[Cause]:
    """Everything wrong with a machine's spec that lies under `path`."""
    inner, labelled = spec.instance, decode(ObjectMeta, spec.template.metadata or {})
    yield from metadata(f"{path}.template.metadata", labelled, config, user)
    yield from spec_causes(f"{path}.template.spec", inner, config)
    yield from data_volume_templates(path, spec)
    yield from run_strategy(path, spec, config)
    if config.live_update:
        yield from live_update(f"{path}.template.spec", inner)


def run_strategy(path: str, spec: VirtualMachineSpec, config: ClusterConfig) -> Iterator[Cause]:
    """One way of saying when the machine runs."""
    running, strategy = spec.running, spec.run_strategy
    if running is not None and strategy is not None:
        yield Cause(
            "Running and RunStrategy are mutually exclusive."
            " Note that Running is deprecated, please use RunStrategy instead",
            f"{path}.running",
        )
    if running is None and strategy is None:
        yield Cause("RunStrategy must be specified", f"{path}.running")
    if strategy is None or strategy in RUN_STRATEGIES:
        return
    field = f"{path}.runStrategy"
    if strategy != "WaitAsReceiver":
        yield Cause(f"Invalid RunStrategy ({strategy})", field)
    elif not config.gate("DecentralizedLiveMigration"):
        yield Cause(
            f"Invalid RunStrategy ({strategy}),"
            " DecentralizedLiveMigration feature gate is not enabled in kubevirt resource",
            field,
        )


def live_update(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Sockets must not exceed their maximum, and memory with a maximum must be hotpluggable."""
    cpu = spec.domain.cpu
    if cpu.max_sockets and (cpu.sockets or 0) > cpu.max_sockets:
        yield Cause(
            "Number of sockets in CPU topology is greater than the maximum sockets allowed",
            f"{path}.domain.cpu.sockets",
        )
    if spec.domain.memory.max_guest is not None:
        problem = memory_hotplug_problem(spec)
        if problem:
            yield Cause(problem, f"{path}.domain.memory.guest")


def data_volume_templates(path: str, spec: VirtualMachineSpec) -> Iterator[Cause]:
    """Each DataVolume template must have a name, a source and storage, and be used by a volume."""
    used = set()
    for volume in spec.instance.volumes:
        if volume.data_volume is not None:
            used.add(volume.data_volume.name)
        if volume.persistent_volume_claim is not None:
            used.add(volume.persistent_volume_claim.claim_name)
    for index, template in enumerate(spec.data_volume_templates):
        field, name = f"{path}.dataVolumeTemplate[{index}]", _metadata_of(template).name
        problems = list(_data_volume(field, template))
        yield from problems
        if not problems and name not in used:
            yield Cause(
                f"DataVolumeTemplate entry {field} must be referenced in the VMI template's 'volumes' list",
                field,
                REQUIRED,
            )


def _metadata_of(template: DataVolumeTemplateSpec | None) -> ObjectMeta:
    return decode(ObjectMeta, (template.metadata if template is not None else None) or {})


def _data_volume(field: str, template: DataVolumeTemplateSpec | None) -> Iterator[Cause]:
    if template is None or not _metadata_of(template).name:
        yield Cause(
            f"'name' field must not be empty for DataVolumeTemplate entry {field}.name.",
            f"{field}.name",
            REQUIRED,
        )
        return
    spec, claim, storage = template.spec, template.spec.pvc, template.spec.storage
    if claim is None and storage is None:
        yield Cause("Missing Data volume PVC or Storage", f"{field}.PVC.Storage", INVALID)
        return
    if claim is not None and storage is not None:
        yield Cause(
            "Duplicate storage definition, both target storage and target pvc defined", f"{field}.PVC.Storage"
        )
        return
    target, source, reference = claim or storage, spec.source, spec.source_ref
    is_populated = target is not None and (
        target.data_source is not None or target.data_source_ref is not None
    )
    if is_populated and (source is not None or reference is not None):
        yield Cause("External population is incompatible with Source and SourceRef", f"{field}.source")
        return
    if not is_populated and source is None and reference is None:
        yield Cause(
            "Data volume should have either Source, SourceRef, or be externally populated",
            f"{field}.source.sourceRef",
        )
        return
    if source is not None:
        given = len(encode(source))
        if not given:
            yield Cause("Missing dataVolume valid source", f"{field}.source")
        elif given > 1:
            yield Cause("Multiple dataVolume sources", f"{field}.source")


def template_namespaces(spec: VirtualMachineSpec, namespace: str) -> Iterator[Cause]:
    """DataVolumes are made in the machine's namespace."""
    for index, template in enumerate(spec.data_volume_templates):
        other = _metadata_of(template).namespace
        if other and namespace and other != namespace:
            yield Cause(
                f"Embedded DataVolume namespace {other} differs from VM namespace {namespace}",
                f"spec.dataVolumeTemplates[{index}]",
            )


def locks(machine: VirtualMachine, old: VirtualMachine) -> Iterator[Cause]:
    """While a snapshot or restore is in progress, parts of the VM are immutable."""
    spec, old_spec = machine.spec, old.spec
    snapshot, restore = old.observed.snapshot_in_progress, old.observed.restore_in_progress
    strategies = [(one.running, one.run_strategy) for one in (spec, old_spec)]
    if snapshot:
        if spec.instance.volumes != old_spec.instance.volumes:
            yield Cause(
                f'Cannot update vm disks or volumes until snapshot "{snapshot}" completes',
                "spec",
                NOT_SUPPORTED,
            )
        if strategies[0] != strategies[1]:
            yield Cause(
                f'Cannot update vm running state until snapshot "{snapshot}" completes', "spec", NOT_SUPPORTED
            )
    if restore and strategies[0] != strategies[1]:
        yield Cause(
            f'Cannot update VM runStrategy until restore "{restore}" completes', "spec", NOT_SUPPORTED
        )


def volume_requests(machine: VirtualMachine, instance: VirtualMachineInstance | None) -> Iterator[Cause]:
    """Volume requests from subresources: each volume once, and none that exists already."""
    volumes = {volume.name for volume in machine.spec.instance.volumes}
    running = {volume.name: volume for volume in instance.spec.volumes} if instance is not None else {}
    seen: set[tuple[str, str]] = set()
    for request in machine.observed.volume_requests:
        add, remove = request.add_volume_options, request.remove_volume_options
        if add is not None and remove is not None:
            yield Cause(
                "VolumeRequests require either addVolumeOptions or removeVolumeOptions to be set, not both",
                _STATUS_FIELD,
            )
            continue
        options = add or remove
        if options is None:
            yield Cause(
                "VolumeRequests require one of either addVolumeOptions or removeVolumeOptions to be set",
                _STATUS_FIELD,
            )
            continue
        kind = "AddVolume" if add is not None else "RemoveVolume"
        if (kind, options.name) in seen:
            yield Cause(f"{kind} request for [{options.name}] aleady exists", _STATUS_FIELD)
        seen.add((kind, options.name))
        if add is not None:
            yield from _add_request(add, volumes, running)


def _add_request(
    options: AddVolumeOptions, volumes: set[str], running: Mapping[str, Volume]
) -> Iterator[Cause]:
    name, source, live = options.name, options.volume_source, running.get(options.name)
    if name in volumes:
        yield Cause(
            f"{VM_PREFIX} for [{name}] conflicts with an existing volume of the same name"
            " on the vmi template.",
            _STATUS_FIELD,
        )
    if live is not None and (
        (source.data_volume not in (None, live.data_volume))
        or (source.persistent_volume_claim not in (None, live.persistent_volume_claim))
    ):
        yield Cause(
            f"{VM_PREFIX} for [{name}] conflicts with an existing volume of the same name"
            " on currently running vmi",
            _STATUS_FIELD,
        )
    yield from new_disk(options.disk, name, VM_PREFIX, _STATUS_FIELD)

"""Rules on the spec of a machine, apart from its template's."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.admission.response import (
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    Cause,
)
from virtplane.compute.apiserver.admission.rules.compute import memory_hotplug_problem
from virtplane.compute.apiserver.admission.rules.hotplug import VM_PREFIX, new_disk
from virtplane.compute.apiserver.admission.rules.metadata import metadata
from virtplane.compute.apiserver.admission.rules.spec import spec_causes

RUN_STRATEGIES = ("Halted", "Manual", "Always", "RerunOnFailure", "Once")
_STATUS_FIELD = "Status.volumeRequests"


def machine_causes(path: str, spec: JsonObject, config: ClusterConfig, user: str) -> Iterator[Cause]:
    """Everything wrong with a machine's spec that lies under `path`."""
    template = spec.get("template")
    if not isinstance(template, dict):
        yield Cause("missing virtual machine template.", f"{path}.template", REQUIRED)
        return
    inner = get_object(template, "spec")
    yield from metadata(f"{path}.template.metadata", get_object(template, "metadata"), config, user)
    yield from spec_causes(f"{path}.template.spec", inner, config)
    yield from data_volume_templates(path, spec)
    yield from run_strategy(path, spec, config)
    if config.live_update:
        yield from live_update(f"{path}.template.spec", inner)


def run_strategy(path: str, spec: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    """One way of saying when the machine runs."""
    running, strategy = spec.get("running"), spec.get("runStrategy")
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


def live_update(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Where the machine says how far it can grow, it must be able to."""
    cpu = get_object(spec, "domain", "cpu")
    most = get_int(cpu, "maxSockets")
    if most and get_int(cpu, "sockets") > most:
        yield Cause(
            "Number of sockets in CPU topology is greater than the maximum sockets allowed",
            f"{path}.domain.cpu.sockets",
        )
    if get_object(spec, "domain", "memory").get("maxGuest") is not None:
        problem = memory_hotplug_problem(spec)
        if problem:
            yield Cause(problem, f"{path}.domain.memory.guest")


def data_volume_templates(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Each DataVolume template is used, named, and says what it holds and where."""
    used = set()
    for volume in get_list(spec, "template", "spec", "volumes"):
        used.add(get_str(volume, "dataVolume", "name"))
        used.add(get_str(volume, "persistentVolumeClaim", "claimName"))
    for index, template in enumerate(get_list(spec, "dataVolumeTemplates")):
        field, name = f"{path}.dataVolumeTemplate[{index}]", get_str(template, "metadata", "name")
        problems = list(_data_volume(field, template))
        yield from problems
        if not problems and name not in used:
            yield Cause(
                f"DataVolumeTemplate entry {field} must be referenced in the VMI template's 'volumes' list",
                field,
                REQUIRED,
            )


def _data_volume(field: str, template: JsonObject) -> Iterator[Cause]:
    if not get_str(template, "metadata", "name"):
        yield Cause(
            f"'name' field must not be empty for DataVolumeTemplate entry {field}.name.",
            f"{field}.name",
            REQUIRED,
        )
        return
    spec = get_object(template, "spec")
    claim, storage = spec.get("pvc"), spec.get("storage")
    if claim is None and storage is None:
        yield Cause("Missing Data volume PVC or Storage", f"{field}.PVC.Storage", INVALID)
        return
    if claim is not None and storage is not None:
        yield Cause(
            "Duplicate storage definition, both target storage and target pvc defined",
            f"{field}.PVC.Storage",
        )
        return
    target = get_object(spec, "pvc") or get_object(spec, "storage")
    is_populated = target.get("dataSource") is not None or target.get("dataSourceRef") is not None
    source, reference = spec.get("source"), spec.get("sourceRef")
    if is_populated and (source is not None or reference is not None):
        yield Cause("External population is incompatible with Source and SourceRef", f"{field}.source")
        return
    if not is_populated and source is None and reference is None:
        yield Cause(
            "Data volume should have either Source, SourceRef, or be externally populated",
            f"{field}.source.sourceRef",
        )
        return
    if isinstance(source, dict):
        given = sum(1 for value in source.values() if value is not None)
        if given == 0:
            yield Cause("Missing dataVolume valid source", f"{field}.source")
        elif given > 1:
            yield Cause("Multiple dataVolume sources", f"{field}.source")


def template_namespaces(spec: JsonObject, namespace: str) -> Iterator[Cause]:
    """DataVolumes are made in the machine's namespace."""
    for index, template in enumerate(get_list(spec, "dataVolumeTemplates")):
        other = get_str(template, "metadata", "namespace")
        if other and namespace and other != namespace:
            yield Cause(
                f"Embedded DataVolume namespace {other} differs from VM namespace {namespace}",
                f"spec.dataVolumeTemplates[{index}]",
            )


def locks(machine: JsonObject, old: JsonObject) -> Iterator[Cause]:
    """While a snapshot or a restore is under way, some things stay as they are."""
    spec, old_spec = get_object(machine, "spec"), get_object(old, "spec")
    snapshot = get_str(old, "status", "snapshotInProgress")
    strategies = [(one.get("running"), one.get("runStrategy")) for one in (spec, old_spec)]
    if snapshot:
        volumes = [get_list(one, "template", "spec", "volumes") for one in (spec, old_spec)]
        if volumes[0] != volumes[1]:
            yield Cause(
                f'Cannot update vm disks or volumes until snapshot "{snapshot}" completes',
                "spec",
                NOT_SUPPORTED,
            )
        if strategies[0] != strategies[1]:
            yield Cause(
                f'Cannot update vm running state until snapshot "{snapshot}" completes', "spec", NOT_SUPPORTED
            )
    restore = get_str(old, "status", "restoreInProgress")
    if restore and strategies[0] != strategies[1]:
        yield Cause(
            f'Cannot update VM runStrategy until restore "{restore}" completes', "spec", NOT_SUPPORTED
        )


def volume_requests(machine: JsonObject, instance: JsonObject | None) -> Iterator[Cause]:
    """Volumes asked for through subresources: each once, and none that is there already."""
    requests = get_list(machine, "status", "volumeRequests")
    volumes = {get_str(v, "name") for v in get_list(machine, "spec", "template", "spec", "volumes")}
    running = {get_str(v, "name"): v for v in get_list(instance, "spec", "volumes")}
    seen: dict[str, set[str]] = {"AddVolume": set(), "RemoveVolume": set()}
    for request in requests:
        add, remove = request.get("addVolumeOptions"), request.get("removeVolumeOptions")
        if add is not None and remove is not None:
            yield Cause(
                "VolumeRequests require either addVolumeOptions or removeVolumeOptions to be set, not both",
                _STATUS_FIELD,
            )
            continue
        if add is None and remove is None:
            yield Cause(
                "VolumeRequests require one of either addVolumeOptions or removeVolumeOptions to be set",
                _STATUS_FIELD,
            )
            continue
        kind = "AddVolume" if add is not None else "RemoveVolume"
        options = add if add is not None else remove
        name = get_str(options, "name")
        if name in seen[kind]:
            yield Cause(f"{kind} request for [{name}] aleady exists", _STATUS_FIELD)
        seen[kind].add(name)
        if kind == "AddVolume":
            yield from _add_request(name, options, volumes, running)


def _add_request(
    name: str, options: JsonObject, volumes: set[str], running: dict[str, JsonObject]
) -> Iterator[Cause]:
    if name in volumes:
        yield Cause(
            f"{VM_PREFIX} for [{name}] conflicts with an existing volume of the same name"
            " on the vmi template.",
            _STATUS_FIELD,
        )
    source = get_object(options, "volumeSource")
    live = running.get(name)
    if live is not None and {key: live.get(key) for key in source} != source:
        yield Cause(
            f"{VM_PREFIX} for [{name}] conflicts with an existing volume of the same name"
            " on currently running vmi",
            _STATUS_FIELD,
        )
    disk = options.get("disk")
    if not isinstance(disk, dict):
        yield Cause(f"{VM_PREFIX} for [{name}] requires the disk field to be set.", _STATUS_FIELD)
        return
    yield from new_disk(disk, name, VM_PREFIX, _STATUS_FIELD)

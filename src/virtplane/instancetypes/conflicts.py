"""What a machine may not set itself once it has an instance type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kubecore.json import JsonObject, get_int, get_object

PREFIX = "spec.template.spec"
_CPU_FIELDS: tuple[tuple[str, str], ...] = (
    ("model", "model"),
    ("dedicatedCpuPlacement", "dedicatedCPUPlacement"),
    ("isolateEmulatorThread", "isolateEmulatorThread"),
    ("numa", "numa"),
    ("realtime", "realtime"),
)
"""Fields of the instance, each with the field of the instance type that rules it out."""


def conflicts(spec: JsonObject, annotations: Mapping[str, str], instancetype: JsonObject) -> list[str]:
    """Paths of what the instance type rules out; `spec` is that of the template."""
    domain = get_object(spec, "domain")
    found = [f"{PREFIX}.{path}" for path in _paths(spec, domain, instancetype)]
    for key, value in get_object(instancetype, "annotations").items():
        if key in annotations and annotations[key] != value:
            found.append(f"annotations.{key}")
    return found


def _paths(spec: JsonObject, domain: JsonObject, instancetype: JsonObject) -> Iterator[str]:
    for field in ("nodeSelector", "schedulerName"):
        if instancetype.get(field) and spec.get(field):
            yield field
    yield from _cpu(domain, get_object(instancetype, "cpu"))
    yield from _memory(domain, get_object(instancetype, "memory"))
    for field in ("ioThreadsPolicy", "launchSecurity"):
        if instancetype.get(field) is not None and domain.get(field) is not None:
            yield f"domain.{field}"
    if (
        get_object(instancetype, "ioThreads").get("supplementalPoolThreadCount") is not None
        and get_object(domain, "ioThreads").get("supplementalPoolThreadCount") is not None
    ):
        yield "domain.ioThreads.supplementalPoolThreadCount"
    for field in ("gpus", "hostDevices"):
        if instancetype.get(field) and get_object(domain, "devices").get(field):
            yield f"domain.devices.{field}"


def _cpu(domain: JsonObject, wanted: JsonObject) -> Iterator[str]:
    for kind in ("requests", "limits"):
        if get_object(domain, "resources", kind).get("cpu") is not None:
            yield f"domain.resources.{kind}.cpu"
    cpu = get_object(domain, "cpu")
    for part in ("sockets", "cores", "threads"):
        if get_int(cpu, part):
            yield f"domain.cpu.{part}"
    for field, ruled_by in _CPU_FIELDS:
        if wanted.get(ruled_by) is not None and cpu.get(field):
            yield f"domain.cpu.{field}"


def _memory(domain: JsonObject, wanted: JsonObject) -> Iterator[str]:
    """The first conflict only."""
    for kind in ("requests", "limits"):
        if get_object(domain, "resources", kind).get("memory") is not None:
            yield f"domain.resources.{kind}.memory"
            return
    memory = get_object(domain, "memory")
    if memory.get("guest") is not None:
        yield "domain.memory.guest"
        return
    for field in ("hugepages", "maxGuest"):
        if memory.get(field) is not None and wanted.get(field) is not None:
            yield f"domain.memory.{field}"
            return

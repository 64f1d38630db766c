"""VirtualMachineInstanceMigration and MigrationPolicy."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from virtplane.api import labels, resources
from virtplane.compute.apiserver.admission.request import Request, replace
from virtplane.compute.apiserver.admission.request_schema import schema_causes
from virtplane.compute.apiserver.admission.response import (
    FORBIDDEN,
    NOT_SUPPORTED,
    REQUIRED,
    Cause,
    Response,
)

KIND = "VirtualMachineInstanceMigration"
_FINAL = ("Succeeded", "Failed")
_GATE_MISSING = "DecentralizedLiveMigration feature gate is not enabled in kubevirt resource"


def is_final(document: JsonObject) -> bool:
    """Whether an instance or a migration has come to its end."""
    return get_str(document, "status", "phase") in _FINAL


async def mutate_create(request: Request) -> Response:
    """Label and finalizer."""
    request.expect("virtualmachineinstancemigrations")
    causes = schema_causes(KIND, get_object(request.raw, "object"))
    if causes:
        return Response.refuse(causes)
    metadata = request.new.setdefault("metadata", {})
    name = get_str(request.new, "spec", "vmiName")
    metadata["labels"] = {**get_object(metadata, "labels"), labels.MIGRATION_SELECTOR: name}
    meta.add_finalizer(request.new, labels.FINALIZER_MIGRATION)
    return Response.allow(patches=[replace("/metadata", metadata)])


async def validate_create(request: Request) -> Response:
    """The instance exists, can migrate, and is not migrating yet."""
    request.expect("virtualmachineinstancemigrations")
    causes = schema_causes(KIND, request.new)
    if causes:
        return Response.refuse(causes)
    spec = get_object(request.new, "spec")
    found = list(_spec_causes(request, spec))
    if found:
        return Response.refuse(found)
    name, namespace = get_str(spec, "vmiName"), request.namespace
    instance = await request.lookups.get(resources.VIRTUAL_MACHINE_INSTANCES, name, namespace)
    if instance is None:
        return Response.plain(f'the VMI "{namespace}/{name}" does not exist')
    if is_final(instance):
        return Response.plain("Cannot migrate VMI in finalized state.")
    problem = _not_migratable(instance, spec)
    if problem:
        return Response.plain(problem)
    for other in await request.lookups.list(resources.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS, namespace):
        if meta.labels(other).get(labels.MIGRATION_SELECTOR) == name and not is_final(other):
            return Response.plain(
                f"in-flight migration detected. Active migration job ({meta.uid(other)})"
                f" is currently already in progress for VMI {name}."
            )
    return Response.allow()


def _spec_causes(request: Request, spec: JsonObject) -> Iterator[Cause]:
    if not get_str(spec, "vmiName"):
        yield Cause("vmiName is missing", "spec.vmiName", REQUIRED)
        return
    controller = f"system:serviceaccount:{request.config.namespace}:kubevirt-controller"
    if spec.get("priority") is not None and request.user != controller:
        yield Cause(
            "Migration priority queue, only virt-controller is allowed to set priority field",
            "spec.migrationPriority",
            FORBIDDEN,
        )
    send, receive = spec.get("sendTo"), spec.get("receive")
    is_enabled = request.config.gate("DecentralizedLiveMigration")
    for field, value in (("sendTo", send), ("receive", receive)):
        if value is not None and not is_enabled:
            yield Cause(_GATE_MISSING, f"spec.{field}", NOT_SUPPORTED)
    ids = get_str(spec, "sendTo", "migrationID"), get_str(spec, "receive", "migrationID")
    if send is not None and receive is not None and ids[0] != ids[1]:
        yield Cause(
            f"sendTo migrationID {ids[0]} does not match receive migrationID {ids[1]}",
            "spec.sendTo.migrationID",
        )


def _not_migratable(instance: JsonObject, spec: JsonObject) -> str:
    condition = meta.get_condition(instance, "LiveMigratable")
    if condition is None or condition.get("status") != "False":
        return ""
    reason = get_str(condition, "reason")
    is_decentralized = spec.get("sendTo") is not None or spec.get("receive") is not None
    if is_decentralized and reason == "DisksNotLiveMigratable":
        return ""
    return f"Cannot migrate VMI, Reason: {reason}, Message: {get_str(condition, 'message')}"


async def validate_update(request: Request) -> Response:
    """The spec is immutable, and so is the label while the migration runs."""
    request.expect("virtualmachineinstancemigrations")
    causes = schema_causes(KIND, request.new)
    if causes:
        return Response.refuse(causes)
    if get_object(request.new, "spec") != get_object(request.old, "spec"):
        return Response.refuse([Cause("update of Migration object's spec is restricted", type=NOT_SUPPORTED)])
    before = meta.labels(request.old).get(labels.MIGRATION_SELECTOR)
    after = meta.labels(request.new).get(labels.MIGRATION_SELECTOR)
    if is_final(request.old) or before is None or after == before:
        return Response.allow()
    what = "removed" if after is None else "modified"
    where = "from" if after is None else "on"
    message = f"selector label can't be {what} {where} an in-flight migration"
    return Response.refuse([Cause(message, type=NOT_SUPPORTED)])


_SCALARS: tuple[tuple[str, Fraction, bool, Fraction | None], ...] = (
    ("ewmaAlpha", Fraction(0), True, Fraction(1)),
    ("patienceWindowDecayFactor", Fraction(0), False, Fraction(1)),
    ("precopyPossibleFactor", Fraction(1), False, None),
    ("completionTimeoutFactor", Fraction(1), False, None),
)
"""Fields, their smallest value, whether they must be greater than that, and their greatest value."""
_DECIMALS = 3


async def validate_policy(request: Request) -> Response:
    """Limits are not negative, and experiments need their gates."""
    request.expect("migrationpolicies")
    found = list(_policy_causes(request))
    return Response.refuse(found) if found else Response.allow()


def _policy_causes(request: Request) -> Iterator[Cause]:
    spec, old = get_object(request.new, "spec"), get_object(request.old, "spec")
    timeout = spec.get("completionTimeoutPerGiB")
    if isinstance(timeout, int) and timeout < 0:
        yield Cause("must not be negative", "spec.completionTimeoutPerGiB")
    bandwidth = spec.get("bandwidthPerMigration")
    if bandwidth is not None and Quantity.parse(bandwidth).fraction < 0:
        yield Cause("must not be negative", "spec.bandwidthPerMigration")
    stall, tuning = (
        request.config.gate("MigrationStallDetection"),
        request.config.gate("MigrationDowntimeTuning"),
    )
    if _changed(spec, old, "maxDowntimeMs") and not (stall or tuning):
        yield Cause(
            "maxDowntimeMs cannot be modified without enabling"
            " the MigrationStallDetection or MigrationDowntimeTuning feature gate",
            "spec.maxDowntimeMs",
        )
    ours, theirs = get_object(spec, "experimental"), get_object(old, "experimental")
    for field, is_on, gate in (
        ("downtimeTuning", tuning, "MigrationDowntimeTuning"),
        ("stallDetector", stall, "MigrationStallDetection"),
    ):
        if _changed(ours, theirs, field) and not is_on:
            yield Cause(
                f"experimental.{field} cannot be modified without enabling the {gate} feature gate",
                f"spec.experimental.{field}",
            )
    if ours.get("stallDetector") is not None and ours.get("downtimeTuning") is not None:
        yield Cause(
            "experimental.stallDetector and experimental.downtimeTuning are mutually exclusive;"
            " the stall detection path manages its own downtime schedule",
            "spec.experimental",
        )
    yield from _scalars(get_object(ours, "stallDetector"))


def _changed(spec: JsonObject, old: JsonObject, field: str) -> bool:
    return spec.get(field) is not None and spec.get(field) != old.get(field)


def _scalars(detector: JsonObject) -> Iterator[Cause]:
    for name, least, is_exclusive, most in _SCALARS:
        if detector.get(name) is None:
            continue
        text, field = str(detector[name]), f"spec.experimental.stallDetector.{name}"
        value = Quantity.parse(detector[name]).fraction
        if value < 0:
            yield Cause(f'invalid scalar "{text}": must not be negative', field)
        elif (value * 10**_DECIMALS).denominator != 1:
            yield Cause(f'invalid scalar "{text}": must have at most {_DECIMALS} decimal places', field)
        elif is_exclusive and value <= least:
            yield Cause(f"must be greater than {least}", field)
        elif value < least:
            yield Cause(f"must be greater than or equal to {least}", field)
        elif most is not None and value > most:
            yield Cause(f"must be less than or equal to {most}", field)

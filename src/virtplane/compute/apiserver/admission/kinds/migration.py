"""VirtualMachineInstanceMigration and MigrationPolicy."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import get_object, get_str
from kubecore.objects import meta
from kubecore.objects.quantity import FORMAT_MESSAGE
from kubecore.objects.structs import decode, readable
from virtplane.api import labels, resources
from virtplane.api.kubevirt_v1.migration import (
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationSpec,
)
from virtplane.api.kubevirt_v1.migration_configuration import (
    ExperimentalMigrationOptions,
    StallDetectorOptions,
)
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.migrations_v1alpha1.policy import MigrationPolicy, MigrationPolicySpec, Selectors
from virtplane.compute.apiserver.admission.request import Request, replace
from virtplane.compute.apiserver.admission.request_schema import schema_causes
from virtplane.compute.apiserver.admission.rules.compute import quantity
from virtplane.serving.responses import FORBIDDEN, NOT_SUPPORTED, REQUIRED, Cause, Response

KIND = "VirtualMachineInstanceMigration"
_FINAL = ("Succeeded", "Failed")
_GATE_MISSING = "DecentralizedLiveMigration feature gate is not enabled in kubevirt resource"


def is_final(found: VirtualMachineInstance | VirtualMachineInstanceMigration) -> bool:
    """Whether an instance or a migration has come to its end."""
    return found.status.phase in _FINAL


async def mutate_create(request: Request) -> Response:
    """Label and finalizer."""
    request.expect("virtualmachineinstancemigrations")
    causes = schema_causes(KIND, get_object(request.raw, "object"))
    if causes:
        return Response.refuse(causes)
    metadata = request.new["metadata"] = get_object(request.new, "metadata")
    name = get_str(request.new, "spec", "vmiName")
    metadata["labels"] = {**get_object(metadata, "labels"), labels.MIGRATION_SELECTOR: name}
    meta.add_finalizer(request.new, labels.FINALIZER_MIGRATION)
    return Response.allow(patches=[replace("/metadata", metadata)])


async def validate_create(request: Request) -> Response:
    """The instance exists, can migrate, and is not migrating yet."""
    request.expect("virtualmachineinstancemigrations")
    spec = request.read(VirtualMachineInstanceMigration).spec
    found = list(_spec_causes(request, spec))
    if found:
        return Response.refuse(found)
    name, namespace = spec.vmi_name or "", request.namespace
    running = await request.lookups.get(resources.VIRTUAL_MACHINE_INSTANCES, name, namespace)
    if running is None:
        return Response.plain(f'the VMI "{namespace}/{name}" does not exist')
    instance = decode(VirtualMachineInstance, running)
    if is_final(instance):
        return Response.plain("Cannot migrate VMI in finalized state.")
    problem = _not_migratable(instance, spec)
    if problem:
        return Response.plain(problem)
    listed = await request.lookups.list(resources.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS, namespace)
    for other in readable(VirtualMachineInstanceMigration, listed):
        if other.metadata.labels.get(labels.MIGRATION_SELECTOR) == name and not is_final(other):
            return Response.plain(
                f"in-flight migration detected. Active migration job ({other.metadata.uid})"
                f" is currently already in progress for VMI {name}."
            )
    return Response.allow()


def _spec_causes(request: Request, spec: VirtualMachineInstanceMigrationSpec) -> Iterator[Cause]:
    if not spec.vmi_name:
        yield Cause("vmiName is missing", "spec.vmiName", REQUIRED)
        return
    controller = f"system:serviceaccount:{request.config.namespace}:kubevirt-controller"
    if spec.priority is not None and request.user != controller:
        yield Cause(
            "Migration priority queue, only virt-controller is allowed to set priority field",
            "spec.migrationPriority",
            FORBIDDEN,
        )
    send, receive = spec.send_to, spec.receive
    is_enabled = request.config.gate("DecentralizedLiveMigration")
    for field, value in (("sendTo", send), ("receive", receive)):
        if value is not None and not is_enabled:
            yield Cause(_GATE_MISSING, f"spec.{field}", NOT_SUPPORTED)
    if send is not None and receive is not None and send.migration_id != receive.migration_id:
        text = f"sendTo migrationID {send.migration_id} does not match"
        text += f" receive migrationID {receive.migration_id}"
        yield Cause(text, "spec.sendTo.migrationID")


def _not_migratable(instance: VirtualMachineInstance, spec: VirtualMachineInstanceMigrationSpec) -> str:
    found = (each for each in instance.status.conditions if each.type == "LiveMigratable")
    condition = next(found, None)
    if condition is None or condition.status != "False":
        return ""
    is_decentralized = spec.send_to is not None or spec.receive is not None
    if is_decentralized and condition.reason == "DisksNotLiveMigratable":
        return ""
    return f"Cannot migrate VMI, Reason: {condition.reason or ''}, Message: {condition.message or ''}"


async def validate_update(request: Request) -> Response:
    """The spec is immutable, and so is the label while the migration runs."""
    request.expect("virtualmachineinstancemigrations")
    causes = schema_causes(KIND, request.new)
    if causes:
        return Response.refuse(causes)
    if request.changes_spec:
        return Response.refuse([Cause("update of Migration object's spec is restricted", type=NOT_SUPPORTED)])
    before = meta.labels(request.old).get(labels.MIGRATION_SELECTOR)
    after = meta.labels(request.new).get(labels.MIGRATION_SELECTOR)
    if is_final(decode(VirtualMachineInstanceMigration, request.old)) or before is None or after == before:
        return Response.allow()
    what = "removed" if after is None else "modified"
    where = "from" if after is None else "on"
    message = f"selector label can't be {what} {where} an in-flight migration"
    return Response.refuse([Cause(message, type=NOT_SUPPORTED)])


_DECIMALS = 3


async def validate_policy(request: Request) -> Response:
    """Limits are not negative, and experiments need their gates."""
    request.expect("migrationpolicies")
    spec = request.read(MigrationPolicy).spec
    old = request.before(MigrationPolicy)
    before = old.spec if old is not None else MigrationPolicySpec(selectors=Selectors())
    found = list(_policy_causes(request, spec, before))
    return Response.refuse(found) if found else Response.allow()


def _policy_causes(request: Request, spec: MigrationPolicySpec, old: MigrationPolicySpec) -> Iterator[Cause]:
    if (spec.completion_timeout_per_gi_b or 0) < 0:
        yield Cause("must not be negative", "spec.completionTimeoutPerGiB")
    bandwidth = quantity(spec.bandwidth_per_migration)
    if bandwidth is not None and bandwidth.fraction < 0:
        yield Cause("must not be negative", "spec.bandwidthPerMigration")
    if bandwidth is None and spec.bandwidth_per_migration is not None:
        yield Cause(FORMAT_MESSAGE, "spec.bandwidthPerMigration")
    stall, tuning = (
        request.config.gate("MigrationStallDetection"),
        request.config.gate("MigrationDowntimeTuning"),
    )
    if spec.max_downtime_ms not in (None, old.max_downtime_ms) and not (stall or tuning):
        yield Cause(
            "maxDowntimeMs cannot be modified without enabling"
            " the MigrationStallDetection or MigrationDowntimeTuning feature gate",
            "spec.maxDowntimeMs",
        )
    ours = spec.experimental or ExperimentalMigrationOptions()
    theirs = old.experimental or ExperimentalMigrationOptions()
    tunes = ours.downtime_tuning not in (None, theirs.downtime_tuning)
    detects = ours.stall_detector not in (None, theirs.stall_detector)
    for field, changed, is_on, gate in (
        ("downtimeTuning", tunes, tuning, "MigrationDowntimeTuning"),
        ("stallDetector", detects, stall, "MigrationStallDetection"),
    ):
        if changed and not is_on:
            yield Cause(
                f"experimental.{field} cannot be modified without enabling the {gate} feature gate",
                f"spec.experimental.{field}",
            )
    if ours.stall_detector is not None and ours.downtime_tuning is not None:
        yield Cause(
            "experimental.stallDetector and experimental.downtimeTuning are mutually exclusive;"
            " the stall detection path manages its own downtime schedule",
            "spec.experimental",
        )
    if ours.stall_detector is not None:
        yield from _scalars(ours.stall_detector)


def _scalars(detector: StallDetectorOptions) -> Iterator[Cause]:
    for name, amount, least, is_exclusive, most in (
        ("ewmaAlpha", detector.ewma_alpha, 0, True, 1),
        ("patienceWindowDecayFactor", detector.patience_window_decay_factor, 0, False, 1),
        ("precopyPossibleFactor", detector.precopy_possible_factor, 1, False, None),
        ("completionTimeoutFactor", detector.completion_timeout_factor, 1, False, None),
    ):
        if amount is None:
            continue
        text, field = str(amount), f"spec.experimental.stallDetector.{name}"
        parsed = quantity(amount)
        if parsed is None:
            yield Cause(FORMAT_MESSAGE, field)
            continue
        value = parsed.fraction
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

"""What the finalizers of machines, instances, migrations, snapshots and restores wait for."""

from __future__ import annotations

from kubecore import resources
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.structs import UnfitDocument, decode
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.api.snapshot_v1beta1.snapshot import VirtualMachineSnapshot
from virtplane.deletions.pods import of_pod
from virtplane.deletions.reading import Situation
from virtplane.deletions.waits import Wait, later

GUEST_RUNS = "its guest runs, and would write to its disks beside another one"
_FINAL = ("Succeeded", "Failed")


async def of_instance(situation: Situation) -> Wait | None:
    """An instance waits until none of its pods is left. Raises StatusError."""
    selector = f"{labels.CREATED_BY}={meta.uid(situation.document)}"
    pods = await situation.listed(resources.PODS, situation.namespace, selector)
    found = [wait for pod in pods if (wait := await of_pod(situation, pod)) is not None]
    refusal = _said(situation.document, "Synchronized", "False")
    if pods and not found and refusal:
        return Wait(
            f"virt-controller cannot end its pod {meta.name(pods[0])}: {refusal}",
            f"kubectl delete pod {meta.name(pods[0])}{situation.within}",
            unsafe=GUEST_RUNS,
        )
    # What is wrong says more than what goes on as it should.
    return min(found, key=lambda wait: wait.is_expected, default=None)


def _said(document: JsonObject, condition: str, status: str) -> str:
    """The message of a condition with that status; empty where it has another."""
    found = meta.get_condition(document, condition) or {}
    return get_str(found, "message").rstrip(".") if found.get("status") == status else ""


async def of_machine(situation: Situation) -> Wait | None:
    """A machine waits for its instance; an instance has the same finalizer until its machine has its last
    state. Raises StatusError.
    """
    if situation.kind == kinds.VIRTUAL_MACHINE_INSTANCES:
        return None
    vmi = await situation.found(kinds.VIRTUAL_MACHINE_INSTANCES, situation.name, situation.namespace)
    if vmi is None or not meta.is_controlled_by(vmi, situation.document):
        return None
    if not meta.is_being_deleted(vmi):
        refusal = _said(situation.document, "Failure", "True")
        if not refusal:
            return None
        return Wait(
            f"virt-controller cannot delete its instance: {refusal}",
            f"kubectl delete vmi {situation.name}{situation.within}",
            unsafe=GUEST_RUNS,
        )
    return await of_instance(situation.of(kinds.VIRTUAL_MACHINE_INSTANCES, vmi))


async def of_snapshot_source(situation: Situation) -> Wait | None:
    """A machine waits for the snapshot that is being taken of it. Raises StatusError."""
    name = get_str(situation.document, "status", "snapshotInProgress")
    document = await situation.found(kinds.VIRTUAL_MACHINE_SNAPSHOTS, name, situation.namespace)
    if document is None:
        return None
    created = meta.creation_timestamp(document)
    try:
        seconds = decode(VirtualMachineSnapshot, document).spec.deadline_seconds
    except UnfitDocument:
        seconds = 0.0
    return Wait(
        f"snapshot {name} of it is being taken (phase {get_str(document, 'status', 'phase') or 'unknown'})",
        f"to do without the snapshot: kubectl delete vmsnapshot {name}{situation.within}",
        until=later(created, seconds) if seconds else "",
        unsafe="" if seconds else "the snapshot was asked for with failureDeadline 0, so that it never fails",
        is_expected=True,
    )


async def of_vm_snapshot(situation: Situation) -> Wait | None:
    """A snapshot that has unlocked its machine waits until its content is deleted. Raises StatusError."""
    source = get_str(situation.document, "spec", "source", "name")
    machine = await situation.found(kinds.VIRTUAL_MACHINES, source, situation.namespace)
    if get_str(machine, "status", "snapshotInProgress") == situation.name:
        return None
    name = get_str(situation.document, "status", "virtualMachineSnapshotContentName")
    content = await situation.found(kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS, name, situation.namespace)
    is_kept = get_str(situation.document, "spec", "deletionPolicy") == "Retain"
    if content is None or is_kept or not situation.failure:
        return None
    return Wait(
        f"virt-controller cannot delete its content: {situation.failure.rstrip('.')}",
        f"kubectl delete vmsnapshotcontent {name}{situation.within}",
        unsafe="its disks would be left over, and no object would name them",
    )


async def of_content(situation: Situation) -> Wait | None:
    """A snapshot's content waits for its snapshot. Raises StatusError."""
    name = get_str(situation.document, "spec", "virtualMachineSnapshotName")
    snapshot = await situation.found(kinds.VIRTUAL_MACHINE_SNAPSHOTS, name, situation.namespace)
    if snapshot is None or meta.is_being_deleted(snapshot):
        return None
    return Wait(
        f"snapshot {name} needs it",
        f"delete the snapshot, if it is not needed: kubectl delete vmsnapshot {name}{situation.within}",
        unsafe="the snapshot would lose its disks, and nobody asked for that",
    )


async def of_migration(situation: Situation) -> Wait | None:
    """A failed migration waits for its target pod; one that runs waits to be aborted. Raises StatusError."""
    selector = f"{labels.MIGRATION_JOB_UID}={meta.uid(situation.document)}"
    for pod in await situation.listed(resources.PODS, situation.namespace, selector):
        wait = await of_pod(situation, pod)
        if wait is not None:
            return wait
    vmi_name = get_str(situation.document, "spec", "vmiName")
    vmi = await situation.found(kinds.VIRTUAL_MACHINE_INSTANCES, vmi_name, situation.namespace)
    state = get_object(vmi, "status", "migrationState")
    is_its_own = state.get("migrationUid") == meta.uid(situation.document)
    if get_str(situation.document, "status", "phase") in _FINAL or not is_its_own or state.get("completed"):
        return None
    node = state.get("sourceNode") or ""
    return Wait(
        f"the move of guest {vmi_name} is being aborted by virt-handler on node {node}",
        "see whether that works: kubectl get pods -A -l kubevirt.io=virt-handler -o wide",
        unsafe="its guest could run on both nodes",
    )

"""What is said of deleted objects that are still there: the rule of each finalizer, read from a cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.roles import RestrictedApi

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.resources import ResourceType
from kubecore.testing import MemoryApi
from virtplane.api import cdi_labels, labels, storage_labels
from virtplane.api import resources as kinds
from virtplane.deletions.explaining import wait_of
from virtplane.deletions.reading import Situation
from virtplane.deletions.waits import WAITING, Wait

_KINDS = [value for value in vars(kinds).values() if isinstance(value, ResourceType)]
_SINCE = "2026-11-27T12:00:00Z"
_NOW = datetime(2026, 11, 27, 12, 5, tzinfo=UTC)
_TAINT = "kubectl taint node n node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"

pytestmark = pytest.mark.feature("NEW-15")


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi(_KINDS)


def _deleted(name: str, *finalizers: str, namespace: str = "ns", uid: str = "", **rest: Any) -> JsonObject:
    metadata: JsonObject = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}"}
    metadata |= {"deletionTimestamp": _SINCE, "finalizers": list(finalizers)}
    return {"metadata": metadata, **rest}


async def _said(
    api: MemoryApi | RestrictedApi,
    kind: ResourceType,
    document: JsonObject,
    failure: str = "",
) -> Wait:
    async with api.client() as client:
        return await wait_of(Situation(client, kind, document, _NOW, failure))


def _pod(name: str = "virt-launcher-vm", **rest: Any) -> JsonObject:
    marks = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "uid-vm"}
    owner = {"kind": "VirtualMachineInstance", "name": "vm", "uid": "uid-vm", "controller": True}
    metadata = {"name": name, "namespace": "ns", "labels": marks, "ownerReferences": [owner]}
    return {"metadata": {**metadata, **rest.pop("metadata", {})}, "spec": {"nodeName": "n"}, **rest}


def _ending(moment: str = _SINCE, **metadata: Any) -> JsonObject:
    return _pod(metadata={"deletionTimestamp": moment, "deletionGracePeriodSeconds": 240, **metadata})


def _node(status: str) -> JsonObject:
    ready = {"type": "Ready", "status": status, "lastHeartbeatTime": "2026-11-27T11:58:00Z"}
    return {"metadata": {"name": "n"}, "status": {"conditions": [ready]}}


_GUEST = _deleted("vm", labels.FINALIZER_INSTANCE)


async def test_a_guest_that_shuts_down_has_until_its_grace_period_ends(api: MemoryApi) -> None:
    api.put(resources.NODES, _node("True"))
    api.put(resources.PODS, _ending("2026-11-27T12:06:00Z"))
    wait = await _said(api, kinds.VIRTUAL_MACHINE_INSTANCES, _GUEST)
    assert wait.why == "its pod virt-launcher-vm has 240 s to end (its guest shuts down)"
    assert (wait.until, wait.is_expected) == ("2026-11-27T12:07:00Z", True)
    assert "kubectl delete pod virt-launcher-vm -n ns --grace-period=1" in wait.advice


async def test_a_guest_on_a_silent_node_may_run_still_so_nothing_ends_the_wait(api: MemoryApi) -> None:
    api.put(resources.NODES, _node("Unknown"))
    api.put(resources.PODS, _ending("2026-11-27T12:06:00Z"))
    wait = await _said(api, kinds.VIRTUAL_MACHINE_INSTANCES, _GUEST)
    expected = "its pod virt-launcher-vm is on node n, which has not reported since 2026-11-27T11:58:00Z"
    assert (wait.why, wait.until, wait.is_expected) == (expected, "", False)
    assert "a disk must not be written by two" in wait.unsafe
    assert wait.advice.endswith(_TAINT)
    assert wait.message() == (
        f"Deleted at {_SINCE}, it waits without a deadline: {wait.unsafe}: {expected}."
        f" Bring the node back; or, once it is certainly off: {_TAINT}."
    )


async def test_what_is_wrong_comes_before_what_a_component_said_of_it(api: MemoryApi) -> None:
    """An instance has its machine's finalizer first, which waits for nothing of its own."""
    api.put(resources.NODES, _node("Unknown"))
    api.put(resources.PODS, _ending())
    about = {"kind": "VirtualMachineInstance", "name": "vm", "namespace": "ns", "uid": "uid-vm"}
    event = {"metadata": {"name": "e", "namespace": "ns"}, "involvedObject": about, "reason": WAITING}
    api.put(resources.EVENTS, {**event, "message": "Deleted at x.", "lastTimestamp": _SINCE})
    guest = _deleted("vm", labels.FINALIZER_MACHINE, labels.FINALIZER_INSTANCE)
    wait = await _said(api, kinds.VIRTUAL_MACHINE_INSTANCES, guest)
    assert (wait.finalizer, wait.advice.endswith(_TAINT)) == (labels.FINALIZER_INSTANCE, True)


async def test_a_pod_whose_time_is_over_is_told_with_its_nodes_warning(api: MemoryApi) -> None:
    api.put(resources.NODES, _node("True"))
    pod = api.put(resources.PODS, _ending())
    about = {"kind": "Pod", "name": "virt-launcher-vm", "namespace": "ns", "uid": pod["metadata"]["uid"]}
    event = {"metadata": {"name": "e", "namespace": "ns"}, "involvedObject": about, "type": "Warning"}
    api.put(resources.EVENTS, {**event, "message": "error killing pod: timed out", "lastTimestamp": _SINCE})
    wait = await _said(api, kinds.VIRTUAL_MACHINE_INSTANCES, _GUEST)
    assert f"whose time was over at {_SINCE} (error killing pod: timed out)" in wait.why
    assert (wait.until, wait.is_expected) == ("", False)
    assert wait.advice.endswith(_TAINT)


async def test_what_a_controller_may_not_delete_is_told_with_its_words(api: MemoryApi) -> None:
    api.put(resources.PODS, _pod())
    refused = {"type": "Synchronized", "status": "False", "message": "quota webhook denied the request."}
    guest = {**_GUEST, "status": {"conditions": [refused]}}
    wait = await _said(api, kinds.VIRTUAL_MACHINE_INSTANCES, guest)
    expected = "virt-controller cannot end its pod virt-launcher-vm: quota webhook denied the request"
    assert (wait.why, wait.until) == (expected, "")
    source = {"source": {"kind": "VirtualMachine", "name": "vm"}}
    named = {"virtualMachineSnapshotContentName": "content"}
    api.put(kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS, {"metadata": {"name": "content", "namespace": "ns"}})
    snapshot = _deleted("s", labels.FINALIZER_SNAPSHOT, spec=source, status=named)
    wait = await _said(api, kinds.VIRTUAL_MACHINE_SNAPSHOTS, snapshot, "no right to delete it")
    assert (wait.why, wait.until) == (
        "virt-controller cannot delete its content: no right to delete it",
        "",
    )
    locked = {"metadata": {"name": "vm", "namespace": "ns"}, "status": {"snapshotInProgress": "s"}}
    api.put(kinds.VIRTUAL_MACHINES, locked)
    wait = await _said(api, kinds.VIRTUAL_MACHINE_SNAPSHOTS, snapshot, "no right to change it")
    assert wait.until == "2026-11-27T12:10:00Z"


async def test_finalizers_of_others_on_a_pod_are_named(api: MemoryApi) -> None:
    api.put(resources.NODES, _node("True"))
    api.put(resources.PODS, _ending(finalizers=["example.com/audit"]))
    wait = await _said(api, kinds.VIRTUAL_MACHINE_INSTANCES, _GUEST)
    assert wait.why == "its pod virt-launcher-vm is kept by finalizers of others: example.com/audit"


async def test_a_machine_waits_for_what_its_instance_waits_for(api: MemoryApi) -> None:
    owner = {"kind": "VirtualMachine", "name": "vm", "uid": "uid-machine", "controller": True}
    guest = _deleted("vm", labels.FINALIZER_INSTANCE)
    guest["metadata"]["ownerReferences"] = [owner]
    machine = _deleted("vm", labels.FINALIZER_MACHINE, uid="uid-machine")
    api.put(resources.NODES, _node("Unknown"))
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, guest)
    api.put(resources.PODS, _ending())
    wait = await _said(api, kinds.VIRTUAL_MACHINES, machine)
    assert "which has not reported since" in wait.why
    assert wait.finalizer == labels.FINALIZER_MACHINE
    del guest["metadata"]["deletionTimestamp"]
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, guest)
    assert "virt-controller is about to" in (await _said(api, kinds.VIRTUAL_MACHINES, machine)).why
    refused = {"type": "Failure", "status": "True", "message": "no right to delete it"}
    machine["status"] = {"conditions": [refused]}
    wait = await _said(api, kinds.VIRTUAL_MACHINES, machine)
    assert wait.why == "virt-controller cannot delete its instance: no right to delete it"
    assert wait.advice == "kubectl delete vmi vm -n ns"


@pytest.mark.parametrize(
    ("deadline", "until"),
    [(None, "2026-11-27T12:03:00Z"), ("10m", "2026-11-27T12:08:00Z"), ("0s", "")],
)
async def test_a_machine_waits_for_its_snapshot_as_long_as_that_may_take(
    api: MemoryApi, deadline: str | None, until: str
) -> None:
    spec: JsonObject = {"source": {"kind": "VirtualMachine", "name": "vm"}}
    spec |= {"failureDeadline": deadline} if deadline else {}
    created = {"name": "snap", "namespace": "ns", "creationTimestamp": "2026-11-27T11:58:00Z"}
    api.put(kinds.VIRTUAL_MACHINE_SNAPSHOTS, {"metadata": created, "spec": spec})
    machine = _deleted("vm", labels.FINALIZER_SNAPSHOT_SOURCE, status={"snapshotInProgress": "snap"})
    wait = await _said(api, kinds.VIRTUAL_MACHINES, machine)
    assert wait.until == until
    assert ("failureDeadline 0" in wait.unsafe) is (not until)
    assert wait.advice == "to do without the snapshot: kubectl delete vmsnapshot snap -n ns"


async def test_a_snapshots_content_waits_for_the_snapshot_that_needs_it(api: MemoryApi) -> None:
    api.put(kinds.VIRTUAL_MACHINE_SNAPSHOTS, {"metadata": {"name": "snap", "namespace": "ns"}})
    spec = {"virtualMachineSnapshotName": "snap"}
    content = _deleted("c", labels.FINALIZER_SNAPSHOT_CONTENT, spec=spec)
    wait = await _said(api, kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS, content)
    assert (wait.why, wait.until) == ("snapshot snap needs it", "")
    assert wait.advice.endswith("kubectl delete vmsnapshot snap -n ns")


async def test_a_migration_waits_for_virt_handler_to_abort_it(api: MemoryApi) -> None:
    state = {"migrationUid": "uid-m", "sourceNode": "n"}
    guest = {"metadata": {"name": "vm", "namespace": "ns"}, "status": {"migrationState": state}}
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, guest)
    migration = _deleted("m", labels.FINALIZER_MIGRATION, spec={"vmiName": "vm"}, status={"phase": "Running"})
    wait = await _said(api, kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS, migration)
    assert "is being aborted by virt-handler on node n" in wait.why
    assert wait.unsafe == "its guest could run on both nodes"


async def test_a_claim_names_the_guest_that_uses_it(api: MemoryApi) -> None:
    volumes = [{"name": "disk", "persistentVolumeClaim": {"claimName": "data"}}]
    api.put(resources.PODS, {**_pod(), "spec": {"nodeName": "n", "volumes": volumes}})
    claim = _deleted("data", "kubernetes.io/pvc-protection")
    wait = await _said(api, resources.PERSISTENT_VOLUME_CLAIMS, claim)
    assert wait.why == "guest vm uses it (pod virt-launcher-vm)"
    assert (wait.advice, wait.unsafe) == ("virtctl stop vm -n ns", "the guest writes to it")
    plugged = _pod("hp-volume", metadata={"labels": {"kubevirt.io": "hotplug-disk"}})
    plugged["metadata"]["annotations"] = {labels.OWNER_VMI_NAME: "vm"}
    plugged["metadata"]["ownerReferences"] = []
    api.remove(resources.PODS, "virt-launcher-vm", "ns")
    api.put(resources.PODS, {**plugged, "spec": {"nodeName": "n", "volumes": volumes}})
    wait = await _said(api, resources.PERSISTENT_VOLUME_CLAIMS, claim)
    assert wait.advice.startswith("virtctl removevolume vm --volume-name=VOLUME -n ns")


async def test_claims_and_snapshots_wait_for_their_copies(api: MemoryApi) -> None:
    def copy(kind: str, name: str) -> JsonObject:
        source = {"kind": kind, "name": name}
        return {"metadata": {"name": "copy", "namespace": "ns"}, "spec": {"dataSource": source}}

    api.put(resources.PERSISTENT_VOLUME_CLAIMS, copy("PersistentVolumeClaim", "data"))
    claim = _deleted("data", storage_labels.CLONING_PROTECTION)
    wait = await _said(api, resources.PERSISTENT_VOLUME_CLAIMS, claim)
    assert (wait.why, wait.unsafe) == ("claim ns/copy is being made of it", "the copy would be incomplete")
    api.put(resources.PERSISTENT_VOLUME_CLAIMS, copy("VolumeSnapshot", "snap"))
    for finalizer in (storage_labels.RESTORING_PROTECTION, storage_labels.SNAPSHOT_SOURCE_FINALIZER):
        wait = await _said(api, kinds.VOLUME_SNAPSHOTS, _deleted("snap", finalizer))
        assert wait.advice == "to do without the copy: kubectl delete pvc copy -n ns"
    taken = {"metadata": {"name": "s", "namespace": "ns"}}
    api.put(
        kinds.VOLUME_SNAPSHOTS,
        {
            **taken,
            "spec": {"source": {"persistentVolumeClaimName": "data"}},
            "status": {"error": {"message": "quota"}},
        },
    )
    claim = _deleted("data", storage_labels.CLAIM_SOURCE_FINALIZER)
    wait = await _said(api, resources.PERSISTENT_VOLUME_CLAIMS, claim)
    assert wait.why == "snapshot s of it is being taken (quota)"


async def test_storage_waits_for_its_driver_and_for_the_node_that_has_it(api: MemoryApi) -> None:
    spec = {"driver": "csi.example", "deletionPolicy": "Delete"}
    failed = {"error": {"message": "DeleteSnapshot: deadline exceeded"}}
    content = _deleted("c", storage_labels.CONTENT_FINALIZER, namespace="", spec=spec, status=failed)
    wait = await _said(api, kinds.VOLUME_SNAPSHOT_CONTENTS, content)
    assert wait.why == "driver csi.example has not deleted it (DeleteSnapshot: deadline exceeded)"
    bound = {"boundVolumeSnapshotContentName": "c"}
    api.put(kinds.VOLUME_SNAPSHOT_CONTENTS, content)
    snapshot = _deleted("s", storage_labels.SNAPSHOT_BOUND_FINALIZER, status=bound)
    assert (await _said(api, kinds.VOLUME_SNAPSHOTS, snapshot)).why == wait.why
    attachment = {
        "metadata": {"name": "a"},
        "spec": {"nodeName": "n", "source": {"persistentVolumeName": "pv"}},
        "status": {"detachError": {"message": "node is away"}},
    }
    api.put(resources.VOLUME_ATTACHMENTS, attachment)
    attacher = storage_labels.ATTACHER_FINALIZER_PREFIX + "csi-example"
    for finalizer in (attacher, storage_labels.VOLUME_FINALIZER):
        wait = await _said(api, resources.PERSISTENT_VOLUMES, _deleted("pv", finalizer, namespace=""))
        assert wait.why == "it is attached to node n (node is away)"
        assert wait.advice.endswith(_TAINT)
    reference = {"claimRef": {"name": "data", "namespace": "ns"}}
    volume = _deleted("pv", "kubernetes.io/pv-protection", namespace="", spec=reference)
    wait = await _said(api, resources.PERSISTENT_VOLUMES, {**volume, "status": {"phase": "Bound"}})
    assert wait.advice.endswith("kubectl delete pvc data -n ns")


async def test_an_installation_names_the_objects_that_are_left(api: MemoryApi) -> None:
    for name in ("a", "b", "c", "d"):
        api.put(kinds.VIRTUAL_MACHINES, {"metadata": {"name": name, "namespace": "ns"}})
    wait = await _said(api, kinds.KUBEVIRTS, _deleted("kubevirt", labels.FINALIZER_KUBEVIRT))
    assert wait.why == "4 virtualmachines are there (ns/a, ns/b, ns/c and 1 more)"
    assert wait.advice.endswith("virtctl explain-status virtualmachines/a -n ns")


async def test_foreground_deletions_tell_what_their_dependents_wait_for(api: MemoryApi) -> None:
    owner = {"kind": "VirtualMachine", "name": "vm", "uid": "uid-vm", "blockOwnerDeletion": True}
    disk = _deleted("disk", "example.com/keep")
    disk["metadata"]["ownerReferences"] = [owner]
    api.put(kinds.DATA_VOLUMES, disk)
    wait = await _said(api, kinds.VIRTUAL_MACHINES, _deleted("vm", "foregroundDeletion"))
    assert wait.why.startswith(
        "DataVolume disk, which belongs to it, waits: finalizer example.com/keep is on it"
    )
    assert "kubectl patch datavolumes.cdi.kubevirt.io disk -n ns --type=json" in wait.advice


async def test_whose_finalizer_nobody_knows_is_told_the_exact_command(api: MemoryApi) -> None:
    machine = api.put(kinds.VIRTUAL_MACHINES, _deleted("vm", "example.com/a", "example.com/b"))
    wait = await _said(api, kinds.VIRTUAL_MACHINES, machine)
    command = wait.advice.partition("kubectl patch ")[2]
    target, _, operations = command.partition(" --type=json -p ")
    assert target == "virtualmachines.kubevirt.io vm -n ns"
    async with api.client() as client:
        patch = json.loads(operations.strip("'"))
        await client.patch(kinds.VIRTUAL_MACHINES, "vm", patch, "ns", type="json")
    left = api.get(kinds.VIRTUAL_MACHINES, "vm", "ns")
    assert left is not None
    assert left["metadata"]["finalizers"] == ["example.com/b"]


async def test_a_refused_clean_up_is_told_with_its_deadline(api: MemoryApi) -> None:
    refusal = 'admission webhook "no.example.com" denied the request: frozen'
    restore = _deleted("r", labels.FINALIZER_RESTORE)
    wait = await _said(api, kinds.VIRTUAL_MACHINE_RESTORES, restore, refusal)
    assert wait.why == f"virt-controller tries again and again: {refusal}"
    assert wait.until == "2026-11-27T12:10:00Z"
    assert "kubectl get validatingwebhookconfigurations" in wait.advice
    wait = await _said(api, kinds.VIRTUAL_MACHINE_INSTANCES, _GUEST, refusal)
    assert (wait.until, "two places" in wait.unsafe) == ("", True)


async def test_a_deadline_that_has_passed_is_not_promised_again(api: MemoryApi) -> None:
    restore = _deleted("r", labels.FINALIZER_RESTORE)
    restore["metadata"]["deletionTimestamp"] = "2026-11-27T11:50:00Z"
    wait = await _said(api, kinds.VIRTUAL_MACHINE_RESTORES, restore, "no right to change it")
    assert (wait.until, wait.why.endswith("no right to change it")) == ("", True)
    assert wait.unsafe.startswith("its deadline was 2026-11-27T12:00:00Z, and taking the finalizer off")


async def test_a_component_that_does_not_work_is_told_since_when(api: MemoryApi) -> None:
    lease = {"metadata": {"name": "virt-controller", "namespace": "kubevirt"}}
    lease["spec"] = {"renewTime": "2026-11-27T11:00:00.000000Z"}
    api.put(resources.LEASES, lease)
    wait = await _said(api, kinds.VIRTUAL_MACHINE_INSTANCES, _GUEST)
    assert "virt-controller, which takes kubevirt.io/foregroundDeleteVirtualMachine off, has not" in wait.why
    assert "kubectl get deployments,pods -A -l kubevirt.io=virt-controller" in wait.advice
    # No deadline is promised that nobody is there to keep.
    restore = _deleted("r", labels.FINALIZER_RESTORE)
    wait = await _said(api, kinds.VIRTUAL_MACHINE_RESTORES, restore)
    assert (wait.until, wait.unsafe) == ("", "nobody is there to end it")
    api.put(resources.LEASES, {**lease, "spec": {"renewTime": "2026-11-27T12:04:50.000000Z"}})
    assert (await _said(api, kinds.VIRTUAL_MACHINE_INSTANCES, _GUEST)).is_expected


async def test_who_may_read_little_is_told_what_the_controller_said(api: MemoryApi) -> None:
    volume = _deleted("dv", cdi_labels.DATA_VOLUME_FINALIZER)
    about = {"kind": "DataVolume", "name": "dv", "namespace": "ns", "uid": "uid-dv"}
    event = {"metadata": {"name": "e", "namespace": "ns"}, "involvedObject": about, "reason": WAITING}
    api.put(resources.EVENTS, {**event, "message": "Deleted at x, it waits: y.", "lastTimestamp": _SINCE})
    wait = await _said(api, kinds.DATA_VOLUMES, volume)
    assert wait.why.endswith("it said last: Deleted at x, it waits: y")
    # Nothing at all may be read: the answer is that of the table.
    wait = await _said(RestrictedApi(api, "nobody"), kinds.DATA_VOLUMES, volume)
    assert wait.why == f"cdi-deployment is about to take {cdi_labels.DATA_VOLUME_FINALIZER} off"
    assert wait.until == "2026-11-27T12:10:00Z"

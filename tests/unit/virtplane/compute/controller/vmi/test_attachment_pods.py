"""Attachment pods: one that has all volumes, and the old one until nothing depends on it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.structs import decode
from kubecore.runtime import EventRecorder, Manager
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import VolumeStatus
from virtplane.api.kubevirt_v1.volumes import Volume
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.vmi import hotplug
from virtplane.compute.controller.vmi.hotplug import AttachmentPods, Storage
from virtplane.compute.launcherpod.inputs import Images

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]


def _pod(name: str, phase: str, *volumes: str) -> JsonObject:
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "volumes": [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in volumes]
        },
        "status": {"phase": phase},
    }


def _entry(name: str, phase: str) -> VolumeStatus:
    info = {"claimName": name}
    entry = {
        "name": name,
        "target": "",
        "phase": phase,
        "hotplugVolume": {},
        "persistentVolumeClaimInfo": info,
    }
    return decode(VolumeStatus, entry)


@pytest.mark.parametrize(
    ("new", "entries", "obsolete"),
    [
        pytest.param(("Pending", "a", "b"), [("a", "Ready")], False, id="the new pod does not run yet"),
        pytest.param(("Running", "a", "b"), [("a", "Ready")], True, id="the new pod has it"),
        pytest.param(("Running", "b"), [("a", "Detaching"), ("b", "Ready")], False, id="still in the guest"),
        pytest.param(("Running", "b"), [("a", "UnMountedFromPod")], True, id="gone from the guest"),
        pytest.param(None, [("a", "Ready")], False, id="nothing else has it"),
        pytest.param(None, [("a", "UnMountedFromPod")], True, id="nothing is plugged any more"),
        pytest.param(None, [], True, id="nobody knows of it"),
    ],
)
def test_an_attachment_pod_goes_when_no_guest_depends_on_it(
    new: tuple[str, ...] | None, entries: list[tuple[str, str]], obsolete: bool
) -> None:
    old = _pod("old", "Running", "a")
    current = _pod("new", new[0], *new[1:]) if new else None
    pods = [old, *([current] if current else [])]
    found = hotplug.obsolete_pods(current, pods, [_entry(*each) for each in entries])
    assert found == ([old] if obsolete else [])


def test_of_two_pods_with_the_same_volumes_the_running_one_stays() -> None:
    volumes = [decode(Volume, {"name": "a", "persistentVolumeClaim": {"claimName": "a"}})]
    pods = [_pod("first", "Pending", "a"), _pod("second", "Running", "a"), _pod("third", "Running", "a", "b")]
    assert hotplug.current_pod(pods, volumes) is pods[1]


@pytest.mark.parametrize(
    ("claim_phase", "data_volume", "class_name", "ready", "waits"),
    [
        ("Bound", None, "", True, False),
        ("Bound", "Succeeded", "", True, False),
        ("Bound", "ImportInProgress", "", False, False),
        ("Pending", None, "late", False, True),
        ("Pending", None, "", False, False),
        ("Pending", "WaitForFirstConsumer", "", False, True),
        ("Pending", "ImportScheduled", "late", False, False),
        (None, None, "late", False, False),
    ],
)
def test_a_claim_is_waited_for_until_it_is_bound_and_filled(
    claim_phase: str | None, data_volume: str | None, class_name: str, ready: bool, waits: bool
) -> None:
    volume = decode(Volume, {"name": "a", "dataVolume": {"name": "c"}})
    claim = {"spec": {"storageClassName": class_name}, "status": {"phase": claim_phase}}
    storage = Storage(
        {"c": claim} if claim_phase else {},
        {"c": {"status": {"phase": data_volume}}} if data_volume else {},
        frozenset({"late"}),
    )
    assert (storage.is_ready(volume), storage.waits_for_consumer(volume)) == (ready, waits)


async def test_claims_that_wait_for_a_consumer_get_a_pod_of_their_own() -> None:
    api = MemoryApi(_KINDS)
    said: list[tuple[Any, ...]] = []
    client = api.client()
    recorder: Any = EventRecorder(client, "test")
    recorder.event = lambda *event, **_: said.append(event)
    cluster = Cluster(client, Manager(client), recorder, Images("launcher:1", "sidecar:1"))
    volume: JsonObject = {"name": "a", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": True}}
    entry = {"name": "a", "target": "", "hotplugVolume": {}}
    document: JsonObject = {
        "metadata": {"name": "vm", "namespace": "ns", "uid": "u"},
        "spec": {"domain": {"devices": {"disks": [{"name": "a", "disk": {}}]}}, "volumes": [volume]},
        "status": {"phase": "Running", "volumeStatus": [entry]},
    }
    labels = {"kubevirt.io/created-by": "u"}
    launcher: JsonObject = {
        "metadata": {"name": "virt-launcher-vm", "namespace": "ns", "uid": "p", "labels": labels},
        "spec": {"nodeName": "node1", "containers": []},
    }
    vmi = decode(VirtualMachineInstance, document)
    made = AttachmentPods(cluster, vmi, launcher, contextlib.nullcontext)
    late = Storage({"c": {"spec": {"storageClassName": "late"}}}, {}, frozenset({"late"}))
    assert await made._trigger(late, []) is None
    (pod,) = api.list(resources.PODS, "ns")
    assert meta.name(pod).startswith("hp-volume-")
    assert meta.annotations(pod)["kubevirt.io/ephemeral-provisioning"] == "true"
    (near,) = pod["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert near["labelSelector"] == {"matchLabels": labels}
    assert [event[3] for event in said] == ["Created hotplug trigger pod for volume a"]
    await made._trigger(late, [pod])
    assert len(api.list(resources.PODS, "ns")) == 1
    await made._trigger(Storage({"c": {"status": {"phase": "Bound"}}}, {}), [pod])
    assert api.list(resources.PODS, "ns") == []

"""A volume that is added to a running guest is accepted; an event says that the guest does not get it yet."""

from __future__ import annotations

from typing import Any

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.runtime import EventRecorder, Manager
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import Volume
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.vmi import hotplug
from virtplane.compute.launcherpod.inputs import Images

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]
_DISK: JsonObject = {"name": "more", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": True}}


async def test_whoever_adds_a_volume_finds_an_event_that_no_guest_gets_it() -> None:
    api = MemoryApi(_KINDS)
    said: list[tuple[Any, ...]] = []
    client = api.client()
    recorder: Any = EventRecorder(client, "test")
    recorder.event = lambda *event, **_: said.append(event)
    cluster = Cluster(client, Manager(client), recorder, Images("launcher:1", "sidecar:1"))
    document: JsonObject = {
        "metadata": {"name": "vm", "namespace": "ns", "uid": "u"},
        "spec": {"domain": {"devices": {}}, "volumes": [_DISK]},
        "status": {"phase": "Running"},
    }
    launcher: JsonObject = {
        "metadata": {"name": "virt-launcher-vm", "namespace": "ns", "uid": "p"},
        "spec": {"nodeName": "node1", "containers": []},
    }
    vmi = decode(VirtualMachineInstance, document)
    assert await hotplug._create(cluster, vmi, launcher, [decode(Volume, _DISK)]) is None
    assert len(api.list(resources.PODS, "ns")) == 1
    warnings = [event for event in said if event[1] == "Warning"]
    assert [(event[2], event[3]) for event in warnings] == [
        (hotplug.NOT_PLUGGED, "more: no volume reaches a running guest yet")
    ]

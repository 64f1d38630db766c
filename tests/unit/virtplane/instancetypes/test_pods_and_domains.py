"""What an instance type gives reaches the pod and the domain of the guest."""

from __future__ import annotations

import pytest
from lxml import etree
from tests.unit.virtplane.compute.launcherpod.rendered_pods import compute
from tests.unit.virtplane.compute.launcherpod.rendered_pods import rendered as rendered_pod

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.instancetype_v1beta1.instancetype import VirtualMachineInstancetypeSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import document
from virtplane.compute.domain.context import DiskSource, DomainContext, InterfaceLink
from virtplane.instancetypes.apply import apply

_INSTANCETYPE: JsonObject = {
    "cpu": {"guest": 2},
    "memory": {"guest": "1Gi"},
    "annotations": {"example.io/cost": "high"},
    "gpus": [{"name": "picture", "deviceName": "nvidia.com/GRID_T4"}],
    "hostDevices": [{"name": "card", "deviceName": "intel.com/qat"}],
    "ioThreadsPolicy": "shared",
    "launchSecurity": {"sev": {}},
    "nodeSelector": {"example.io/gpus": "yes"},
    "schedulerName": "gpu-scheduler",
}
_GIVEN = {
    "MDEV_PCI_RESOURCE_NVIDIA_COM_GRID_T4": "5d307ca9-b3ef-428c-8861-06e72d69f223",
    "PCI_RESOURCE_INTEL_COM_QAT": "0000:81:00.0",
}


@pytest.fixture
def instance() -> JsonObject:
    """An instance that says nothing of what its instance type says."""
    devices = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
    devices["interfaces"] = [{"name": "default", "bridge": {}}]
    metadata: JsonObject = {"name": "vm", "namespace": "ns", "uid": "u1"}
    spec: JsonObject = {"architecture": "amd64", "domain": {"devices": devices}}
    spec["networks"] = [{"name": "default", "pod": {}}]
    spec["volumes"] = [{"name": "root", "containerDisk": {"image": "image"}}]
    apply(spec, metadata, decode(VirtualMachineInstancetypeSpec, _INSTANCETYPE), None)
    return {"metadata": metadata, "spec": spec}


@pytest.mark.feature("VMC-24")
def test_what_an_instance_type_may_say_besides_the_size_places_the_pod(instance: JsonObject) -> None:
    pod = rendered_pod(instance)
    assert pod["metadata"]["annotations"]["example.io/cost"] == "high"
    assert pod["spec"]["schedulerName"] == "gpu-scheduler"
    selected = pod["spec"]["nodeSelector"]
    assert (selected["example.io/gpus"], selected["kubevirt.io/sev"]) == ("yes", "true")
    limits = compute(pod)["resources"]["limits"]
    assert (limits["nvidia.com/GRID_T4"], limits["intel.com/qat"]) == ("1", "1")


@pytest.mark.feature("VMC-24")
def test_what_an_instance_type_may_say_besides_the_size_is_in_the_domain(instance: JsonObject) -> None:
    context = DomainContext(
        emulation=False,
        disks={"root": DiskSource("/root.img")},
        interfaces={"default": InterfaceLink("tap0", "02:00:00:00:00:01")},
        given=_GIVEN,
    )
    root = etree.fromstring(document.render(decode(VirtualMachineInstance, instance), context))
    devices = {str(each.get("type")) for each in root.iterfind("devices/hostdev")}
    assert devices == {"mdev", "pci"}
    assert root.find("devices/disk/driver[@iothread='1']") is not None
    assert root.find("launchSecurity[@type='sev']") is not None

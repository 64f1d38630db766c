"""Volumes that a machine brings along."""

from __future__ import annotations

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.cdi_v1beta1.data_source import DataSource
from virtplane.api.cdi_v1beta1.data_volume import DataVolume, DataVolumeStatus
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.compute.controller.vm import datavolumes
from virtplane.compute.controller.vm.datavolumes import CloneSource

_TEMPLATE: JsonObject = {
    "metadata": {"name": "root"},
    "spec": {"source": {"pvc": {"namespace": "images", "name": "golden"}}, "storage": {}},
}


def _vm(template: JsonObject) -> VirtualMachine:
    metadata = {"name": "vm", "namespace": "ns", "uid": "u"}
    spec = {"template": {}, "dataVolumeTemplates": [template]}
    return decode(VirtualMachine, {"metadata": metadata, "spec": spec})


_VM = _vm(_TEMPLATE)


@pytest.mark.feature("VMC-73", "VMC-88")
def test_a_template_becomes_a_volume_that_goes_with_its_machine() -> None:
    made = datavolumes.data_volume(_VM, *datavolumes.templates(_VM))
    assert (made["kind"], made["metadata"]["name"], made["metadata"]["namespace"]) == (
        "DataVolume",
        "root",
        "ns",
    )
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("VirtualMachine", "vm", "u")
    assert owner["controller"] is True
    assert made["spec"] == _TEMPLATE["spec"]


@pytest.mark.feature("VMC-73")
def test_a_template_is_filled_once() -> None:
    assert datavolumes.missing_templates(_VM, {}, {}) == datavolumes.templates(_VM)
    assert datavolumes.missing_templates(_VM, {"root": DataVolume()}, {}) == []
    metadata = ObjectMeta(annotations={"cdi.kubevirt.io/storage.populatedFor": "root"})
    populated = PersistentVolumeClaim(metadata=metadata)
    assert datavolumes.missing_templates(_VM, {}, {"root": populated}) == []


@pytest.mark.feature("VMC-37", "VMC-89")
@pytest.mark.parametrize(
    ("phase", "ready"),
    [
        ("Pending", False),
        ("CloneInProgress", False),
        ("ImportInProgress", False),
        ("Failed", False),
        ("Succeeded", True),
        ("WaitForFirstConsumer", True),
    ],
)
def test_a_machine_waits_for_its_volumes(phase: str, ready: bool) -> None:
    assert datavolumes.are_ready(_VM, {"root": DataVolume(status=DataVolumeStatus(phase=phase))}, {}) is ready
    assert not datavolumes.are_ready(_VM, {}, {})


@pytest.mark.feature("VMC-07")
def test_a_reference_leads_to_the_golden_image() -> None:
    reference = {"kind": "DataSource", "name": "rhel9", "namespace": "openshift-virtualization-os-images"}
    template = {"metadata": {"name": "root"}, "spec": {"sourceRef": reference, "storage": {}}}
    vm = _vm(template)
    (wanted,) = datavolumes.templates(vm)
    assert datavolumes.source_reference(wanted, "ns") == ("openshift-virtualization-os-images", "rhel9")
    source = {"pvc": {"namespace": "images", "name": "rhel9-1"}}
    referred = decode(DataSource, {"spec": {"source": source}})
    assert datavolumes.clone_source(wanted, referred, "ns") == CloneSource("pvc", "images", "rhel9-1")
    assert datavolumes.data_volume(vm, wanted)["spec"]["sourceRef"] == reference

"""Volumes that a machine brings along."""

from __future__ import annotations

import pytest

from kubecore.json import JsonObject
from virtplane.compute.controller.vm import datavolumes

_TEMPLATE: JsonObject = {
    "metadata": {"name": "root"},
    "spec": {"source": {"pvc": {"namespace": "images", "name": "golden"}}, "storage": {}},
}
_VM: JsonObject = {
    "metadata": {"name": "vm", "namespace": "ns", "uid": "u"},
    "spec": {"dataVolumeTemplates": [_TEMPLATE]},
}


@pytest.mark.feature("VMC-73", "VMC-88")
def test_a_template_becomes_a_volume_that_goes_with_its_machine() -> None:
    made = datavolumes.data_volume(_VM, _TEMPLATE)
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
    assert datavolumes.missing_templates(_VM, {}, {}) == [_TEMPLATE]
    assert datavolumes.missing_templates(_VM, {"root": {}}, {}) == []
    populated = {"metadata": {"annotations": {"cdi.kubevirt.io/storage.populatedFor": "root"}}}
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
    assert datavolumes.are_ready(_VM, {"root": {"status": {"phase": phase}}}, {}) is ready
    assert not datavolumes.are_ready(_VM, {}, {})


@pytest.mark.feature("VMC-07")
def test_a_reference_leads_to_the_golden_image() -> None:
    reference = {"kind": "DataSource", "name": "rhel9", "namespace": "openshift-virtualization-os-images"}
    template = {"metadata": {"name": "root"}, "spec": {"sourceRef": reference, "storage": {}}}
    source = {"spec": {"source": {"pvc": {"namespace": "images", "name": "rhel9-1"}}}}
    sources = {("openshift-virtualization-os-images", "rhel9"): source}
    assert datavolumes.clone_source(template, sources, "ns") == {
        "kind": "pvc",
        "namespace": "images",
        "name": "rhel9-1",
    }
    vm = {**_VM, "spec": {"dataVolumeTemplates": [template]}}
    assert datavolumes.data_volume(vm, template)["spec"]["sourceRef"] == reference

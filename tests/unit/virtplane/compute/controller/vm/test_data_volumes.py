"""Volumes that a machine brings along."""

from __future__ import annotations

import pytest
from tests.support.controllers import running_controllers
from tests.support.waiting import until

from kubecore import resources
from kubecore.client import Request, Response
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.resources import ResourceType
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api.cdi_v1beta1.data_source import DataSource
from virtplane.api.cdi_v1beta1.data_volume import DataVolume, DataVolumeStatus
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.compute.controller.vm import datavolumes
from virtplane.compute.controller.vm.datavolumes import CloneSource
from virtplane.compute.launcherpod.inputs import Images

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
    (template,) = datavolumes.templates(_VM)
    made = datavolumes.data_volume(_VM, template)
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
    source = datavolumes.referred_source(_referred({"pvc": {"namespace": "images", "name": "rhel9-1"}}))
    assert source == CloneSource("pvc", "images", "rhel9-1")
    assert datavolumes.data_volume(vm, wanted, source)["spec"] == {
        "source": {"pvc": {"namespace": "images", "name": "rhel9-1"}},
        "storage": {},
    }


@pytest.mark.feature("VMC-07")
def test_a_data_source_leads_to_what_is_beside_it_or_where_another_leads() -> None:
    snapshot = {"snapshot": {"namespace": "", "name": "s"}}
    assert datavolumes.referred_source(_referred(snapshot)) == CloneSource("snapshot", "golden", "s")
    chained = {"dataSource": {"namespace": "golden", "name": "other"}}
    leads_to = {"pvc": {"namespace": "theirs", "name": "disk"}}
    assert datavolumes.referred_source(_referred(chained)) is None
    assert datavolumes.referred_source(_referred(chained, leads_to)) == CloneSource("pvc", "theirs", "disk")


def _referred(source: JsonObject, leads_to: JsonObject | None = None) -> DataSource:
    metadata = {"name": "rhel9", "namespace": "golden"}
    status = {"source": leads_to or {}}
    return decode(DataSource, {"metadata": metadata, "spec": {"source": source}, "status": status})


_DISK = {"pvc": {"namespace": "theirs", "name": "disk"}}


@pytest.mark.looptime
@pytest.mark.feature("VMC-07", "STO-28")
@pytest.mark.parametrize(
    ("source", "leads_to", "reason"),
    [
        (_DISK, {}, "UnauthorizedDataVolumeCreate"),
        ({"dataSource": {"namespace": "ns", "name": "other"}}, _DISK, "UnauthorizedDataVolumeCreate"),
        ({}, {}, "FailedDataVolumeCreate"),
        (None, {}, "FailedDataVolumeCreate"),
    ],
)
async def test_no_data_source_lends_a_machine_the_rights_of_its_controller(
    source: JsonObject | None, leads_to: JsonObject, reason: str
) -> None:
    api = MemoryApi([value for value in vars(kinds).values() if isinstance(value, ResourceType)])
    api.reactions.append(_refuse_reviews)
    if source is not None:
        metadata = {"name": "ds", "namespace": "ns"}
        document = {"metadata": metadata, "spec": {"source": source}, "status": {"source": leads_to}}
        api.put(kinds.DATA_SOURCES, document)
    template = {"metadata": {"name": "root"}, "spec": {"sourceRef": {"kind": "DataSource", "name": "ds"}}}
    spec = {"runStrategy": "Always", "template": {"spec": {"domain": {}}}, "dataVolumeTemplates": [template]}
    vm = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "spec": spec}
    api.put(kinds.VIRTUAL_MACHINES, {**vm, "metadata": {"name": "vm", "namespace": "ns"}})
    served = frozenset({kinds.DATA_SOURCES, kinds.DATA_VOLUMES})
    async with running_controllers(api, Images("launcher:1", "sidecar:1"), served):
        await until(lambda: reason in str(api.list(resources.EVENTS, "ns")))
        assert not api.list(kinds.DATA_VOLUMES, "ns")


def _refuse_reviews(request: Request) -> Response | None:
    if not request.path.endswith("/subjectaccessreviews"):
        return None
    return Response(201, {}, b'{"status": {"allowed": false, "reason": "no"}}')

"""Requests as KubeVirt's own virtctl sends them, and the answers that it understands."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore import resources
from kubecore.json import JsonObject
from virtplane.api import resources as kinds

from .conftest import VirtApi

VM = "/namespaces/ns/virtualmachines/vm"
VMI = "/namespaces/ns/virtualmachineinstances/vm"


def _vm(**spec: Any) -> JsonObject:
    template = {"spec": {"domain": {"devices": {}, "memory": {"guest": "128Mi"}}}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm", "namespace": "ns"},
        "spec": {"runStrategy": "Manual", "template": template, **spec},
    }


def _put_running(virt_api: VirtApi) -> None:
    virt_api.cluster.put(kinds.VIRTUAL_MACHINES, {**_vm(), "status": {"created": True}})
    vmi = {"metadata": {"name": "vm", "namespace": "ns"}, "spec": {"domain": {"devices": {}}}}
    virt_api.cluster.put(kinds.VIRTUAL_MACHINE_INSTANCES, {**vmi, "status": {"phase": "Running"}})


@pytest.mark.feature("CTL-05")
async def test_the_version_is_that_of_the_kubevirt_whose_api_this_is(virt_api: VirtApi) -> None:
    told = (await virt_api.ask("GET", "/version")).body
    # virtctl compares major and minor version as semantic versions, without the "v".
    assert told["gitVersion"].startswith("v1.9.0+virtplane.")


async def test_a_machine_whose_instance_type_is_missing_cannot_be_shown_expanded(virt_api: VirtApi) -> None:
    virt_api.cluster.put(kinds.VIRTUAL_MACHINES, _vm(instancetype={"name": "none"}))
    answer = await virt_api.ask("GET", f"{VM}/expand-spec")
    assert (answer.status, answer.body["reason"]) == (500, "InternalError")
    expected = 'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "none" not found'
    assert answer.body["message"] == f"Internal error occurred: {expected}"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"template": None}, 'spec.template in body must be of type object: "null"'),
        ({"runStrategy": "Halted"}, "spec.template in body is required"),
        (
            {"template": {"spec": {"domain": {"devices": {}}}}, "surprise": 1},
            "spec.surprise in body is a forbidden property",
        ),
    ],
)
async def test_what_is_no_machine_is_not_expanded(virt_api: VirtApi, spec: JsonObject, said: str) -> None:
    # virtctl sends what it read from a file, with nothing where the file had nothing.
    given = {"metadata": {}, "spec": spec, "status": {}}
    answer = await virt_api.ask("PUT", "/namespaces/ns/expand-vm-spec", given)
    assert (answer.status, answer.body["message"]) == (400, "Object is not a valid VirtualMachine")
    assert {"message": said} in answer.body["details"]["causes"]


async def test_nothing_instead_of_objects_expands_like_empty_ones(virt_api: VirtApi) -> None:
    given = _vm()
    given["status"] = given["spec"]["template"]["metadata"] = None
    answer = await virt_api.ask("PUT", "/namespaces/ns/expand-vm-spec", given)
    assert answer.status == 200
    assert answer.body["spec"]["template"]["metadata"] == answer.body["status"] == {}


@pytest.mark.feature("CTL-56")
async def test_a_request_for_a_memory_dump_is_noted_in_the_status(virt_api: VirtApi) -> None:
    _put_running(virt_api)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "claim", "namespace": "ns"}, "spec": spec}
    virt_api.cluster.put(resources.PERSISTENT_VOLUME_CLAIMS, claim)
    answer = await virt_api.ask("PUT", f"{VM}/memorydump", {"claimName": "claim", "phase": ""})
    assert answer.status == 202
    assert "Warning" not in answer.headers
    stored = virt_api.cluster.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
    assert stored["status"]["memoryDumpRequest"] == {"claimName": "claim", "phase": "Associating"}


@pytest.mark.parametrize("path", [VM, VMI])
async def test_volumes_are_added_and_removed_as_kubevirt_does(virt_api: VirtApi, path: str) -> None:
    _put_running(virt_api)
    source = {"persistentVolumeClaim": {"claimName": "c"}}
    options = {"name": "more", "disk": {"disk": {"bus": "scsi"}}, "volumeSource": source}
    answer = await virt_api.ask("PUT", f"{path}/addvolume", options)
    assert answer.status == 202, answer.body
    assert "Warning" not in answer.headers
    removed = await virt_api.ask("PUT", f"{path}/removevolume", {"name": "more"})
    assert removed.status == 202, removed.body
    assert "Warning" not in removed.headers


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (f"{VM}/start", {"paused": "yes"}, "string into Go struct field StartOptions.paused of type bool"),
        (f"{VM}/start", {"dryRun": "All"}, "string into Go struct field StartOptions.dryRun of type slice"),
        (
            f"{VM}/stop",
            {"gracePeriod": "5"},
            "string into Go struct field StopOptions.gracePeriod of type int64",
        ),
        (
            f"{VM}/stop",
            {"gracePeriod": 1.5},
            "number 1.5 into Go struct field StopOptions.gracePeriod of type int64",
        ),
        (f"{VM}/stop", {"gracePeriod": 2**63}, f"number {2**63} into Go struct field"),
        (f"{VM}/restart", {"gracePeriodSeconds": "0"}, "string into Go struct field RestartOptions"),
        (f"{VM}/migrate", {"addedNodeSelector": 3}, "number into Go struct field MigrateOptions"),
        (f"{VM}/addvolume", {"name": "a", "disk": {"bootOrder": "1"}}, "AddVolumeOptions.disk.bootOrder"),
        (f"{VMI}/pause", {"dryRun": True}, "bool into Go struct field PauseOptions.dryRun of type slice"),
        (f"{VMI}/pause", [], "array into Go value"),
        ("/namespaces/ns/expand-vm-spec", {**_vm(), "metadata": 3}, "VirtualMachine.metadata"),
    ],
)
async def test_bodies_of_other_types_are_refused_before_anything_happens(
    virt_api: VirtApi, path: str, body: object, said: str
) -> None:
    _put_running(virt_api)
    answer = await virt_api.ask("PUT", path, body)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    start = "Can not unmarshal Request body to struct, error: json: cannot unmarshal "
    assert answer.body["message"].startswith(start)
    assert said in answer.body["message"]


async def test_a_number_does_for_a_text(virt_api: VirtApi) -> None:
    _put_running(virt_api)
    answer = await virt_api.ask("PUT", f"{VM}/removevolume", {"name": 5})
    assert answer.status == 409
    assert "Unable to remove volume [5] because it does not exist" in answer.body["message"]

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
    vmi = {"metadata": {"name": "vm", "namespace": "ns"}, "spec": {"domain": {}}}
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


async def test_whoever_asks_for_a_memory_dump_is_warned_that_none_is_made(virt_api: VirtApi) -> None:
    _put_running(virt_api)
    claim = {"metadata": {"name": "claim", "namespace": "ns"}, "spec": {}}
    claim["spec"] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    virt_api.cluster.put(resources.PERSISTENT_VOLUME_CLAIMS, claim)
    answer = await virt_api.ask("PUT", f"{VM}/memorydump", {"claimName": "claim", "phase": ""})
    assert answer.status == 202
    assert "no effect in this version" in answer.headers["Warning"]

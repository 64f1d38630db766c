"""The controllers on an API server in memory: from a VM to its launcher pod, and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.support.controllers import running_controllers, until

from kubecore import resources
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.structs import decode
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.compute.domain import document
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.launcherpod.inputs import Images
from virtplane.instancetypes import references

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]


@pytest.fixture
async def api() -> AsyncIterator[MemoryApi]:
    server = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    async with running_controllers(server, Images("launcher:1", "sidecar:1")):
        yield server


def _vm(**spec: Any) -> JsonObject:
    template = {"spec": {"domain": {"devices": {}, "memory": {"guest": "128Mi"}}}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm", "namespace": "ns", "generation": 1},
        "spec": {"template": template, **spec},
    }


def _status(api: MemoryApi) -> str:
    return get_str(api.get(kinds.VIRTUAL_MACHINES, "vm", "ns"), "status", "printableStatus")


def _instance(api: MemoryApi) -> JsonObject | None:
    return api.get(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns")


def _set_pod(api: MemoryApi, status: JsonObject) -> None:
    pod = deep_copy(api.list(resources.PODS, "ns")[0])
    pod["spec"]["nodeName"] = "node"
    pod["status"] = {**pod.get("status", {}), **status}
    api.put(resources.PODS, pod)


@pytest.mark.feature("INS-42")
async def test_a_running_vm_gets_an_instance_and_a_pod_and_is_scheduled(api: MemoryApi) -> None:
    api.put(kinds.VIRTUAL_MACHINES, _vm(runStrategy="Always"))
    await until(lambda: api.list(resources.PODS, "ns"))
    await until(lambda: _status(api) == "Starting")
    running = {"name": "compute", "ready": False, "state": {"running": {}}}
    _set_pod(api, {"phase": "Running", "containerStatuses": [running]})
    scheduled = await until(
        lambda: get_str(_instance(api), "status", "phase") == "Scheduled" and _instance(api)
    )
    assert meta.labels(scheduled)["kubevirt.io/nodeName"] == "node"
    revisions = api.list(resources.CONTROLLER_REVISIONS, "ns")
    assert [meta.name(item) for item in revisions] == [scheduled["status"]["virtualMachineRevisionName"]]


async def test_a_halted_vm_is_stopped_and_a_deleted_one_disappears(api: MemoryApi) -> None:
    api.put(kinds.VIRTUAL_MACHINES, _vm(runStrategy="Halted"))
    await until(lambda: _status(api) == "Stopped")
    await api.client().delete(kinds.VIRTUAL_MACHINES, "vm", "ns")
    await until(lambda: api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") is None)


async def test_a_launcher_lost_before_the_guest_ran_leads_to_back_off(api: MemoryApi) -> None:
    api.put(kinds.VIRTUAL_MACHINES, _vm(runStrategy="Always"))
    pods = await until(lambda: api.list(resources.PODS, "ns"))
    await until(lambda: get_str(_instance(api), "status", "phase") == "Scheduling")
    api.remove(resources.PODS, meta.name(pods[0]), "ns")
    await until(lambda: _status(api) == "CrashLoopBackOff")
    vm = api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
    assert vm["status"]["startFailure"]["consecutiveFailCount"] == 1


def _running(api: MemoryApi) -> JsonObject:
    """Play the node agent: the guest runs."""
    vmi = deep_copy(_instance(api) or {})
    before = vmi["status"].get("phaseTransitionTimestamps", [])
    ran = {"phase": "Running", "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"}
    vmi["status"] |= {"phase": "Running", "phaseTransitionTimestamps": [*before, ran]}
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, vmi)
    return vmi


async def _up(api: MemoryApi, **spec: Any) -> None:
    api.put(kinds.VIRTUAL_MACHINES, _vm(runStrategy="Always", **spec))
    await until(lambda: api.list(resources.PODS, "ns"))
    running = {"name": "compute", "ready": True, "state": {"running": {}}}
    await until(lambda: get_str(_instance(api), "status", "phase") == "Scheduling")
    _set_pod(api, {"phase": "Running", "containerStatuses": [running]})
    await until(lambda: get_str(_instance(api), "status", "phase") == "Scheduled")
    _running(api)
    await until(lambda: _status(api) == "Running")


@pytest.mark.feature("INS-16")
async def test_a_machine_has_one_launcher_pod_in_which_its_kvm_guest_runs(api: MemoryApi) -> None:
    await _up(api)
    (pod,) = api.list(resources.PODS, "ns")
    (container,) = [item for item in pod["spec"]["containers"] if item["name"] == "compute"]
    assert container["command"] == ["virt-launcher"]
    assert container["resources"]["limits"]["devices.kubevirt.io/kvm"] == "1"
    root = ElementTree.fromstring(
        document.render(decode(VirtualMachineInstance, _instance(api) or {}), DomainContext(emulation=False))
    )
    assert root.get("type") == "kvm"


@pytest.mark.feature("VML-28")
async def test_labels_of_a_template_reach_instance_and_pod(api: MemoryApi) -> None:
    vm = _vm(runStrategy="Always")
    vm["spec"]["template"]["metadata"] = {"labels": {"special": "key"}}
    api.put(kinds.VIRTUAL_MACHINES, vm)
    (pod,) = await until(lambda: api.list(resources.PODS, "ns"))
    assert meta.labels(_instance(api) or {})["special"] == meta.labels(pod)["special"] == "key"


@pytest.mark.feature("VML-20", "VML-79")
async def test_a_deleted_machine_takes_its_instance_along(api: MemoryApi) -> None:
    await _up(api)
    owner = (_instance(api) or {})["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("VirtualMachine", "vm", True)
    await api.client().delete(kinds.VIRTUAL_MACHINES, "vm", "ns")
    await until(lambda: api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") is None)
    deleted = [request.path.rsplit("/", 2)[1:] for request in api.requests if request.method == "DELETE"]
    assert ["virtualmachineinstances", "vm"] in deleted
    assert _instance(api) is None


@pytest.mark.feature("VML-75")
async def test_an_instance_without_machine_gets_its_pod_and_no_machine(api: MemoryApi) -> None:
    spec = {"domain": {"devices": {}, "memory": {"guest": "128Mi"}}}
    vmi = {"metadata": {"name": "vm", "namespace": "ns"}, "spec": spec, "status": {"phase": "Pending"}}
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, vmi)
    await until(lambda: api.list(resources.PODS, "ns"))
    await until(lambda: get_str(_instance(api), "status", "phase") == "Scheduling")
    assert api.list(kinds.VIRTUAL_MACHINES, "ns") == []


@pytest.mark.feature("VML-02")
async def test_an_always_running_machine_is_started_again_after_the_guest_shut_down(api: MemoryApi) -> None:
    await _up(api)
    first = _instance(api) or {}
    ended = deep_copy(first)
    ended["status"]["phase"] = "Succeeded"
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, ended)
    for pod in api.list(resources.PODS, "ns"):
        api.remove(resources.PODS, meta.name(pod), "ns")
    again = await until(lambda: _instance(api) and meta.uid(_instance(api) or {}) != meta.uid(first))
    assert again


def _restart_required(api: MemoryApi) -> bool:
    return meta.is_condition_true(api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}, "RestartRequired")


@pytest.mark.feature("VML-21")
async def test_a_change_that_needs_a_restart_is_told_until_the_next_boot(api: MemoryApi) -> None:
    await _up(api)
    assert not _restart_required(api)
    vm = deep_copy(api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {})
    vm["spec"]["template"]["spec"]["domain"]["cpu"] = {"cores": 4}
    vm["metadata"]["generation"] = 2
    api.put(kinds.VIRTUAL_MACHINES, vm)
    await until(lambda: _restart_required(api))
    assert "cpu" not in (_instance(api) or {})["spec"]["domain"]
    first = meta.uid(_instance(api) or {})
    ended = deep_copy(_instance(api) or {})
    ended["status"]["phase"] = "Succeeded"
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, ended)
    for pod in api.list(resources.PODS, "ns"):
        api.remove(resources.PODS, meta.name(pod), "ns")
    await until(lambda: _instance(api) and meta.uid(_instance(api) or {}) != first)
    await until(lambda: not _restart_required(api))
    assert (_instance(api) or {})["spec"]["domain"]["cpu"]["cores"] == 4


async def test_a_restart_that_stays_required_keeps_the_time_since_when(api: MemoryApi) -> None:
    """Otherwise everything that wakes the controller for the machine has its status written again."""
    vm = _vm(runStrategy="Always")
    vm["spec"]["template"]["spec"]["domain"]["cpu"] = {"sockets": 2}
    await _up(api, template=vm["spec"]["template"])

    def changed(sockets: int, generation: int, since: str = "") -> None:
        new = deep_copy(api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {})
        new["spec"]["template"]["spec"]["domain"]["cpu"]["sockets"] = sockets
        new["metadata"]["generation"] = generation
        for condition in new["status"]["conditions"]:
            if condition["type"] == "RestartRequired":
                condition["lastTransitionTime"] = since
        api.put(kinds.VIRTUAL_MACHINES, new)

    def status() -> JsonObject:
        return get_object(api.get(kinds.VIRTUAL_MACHINES, "vm", "ns"), "status")

    changed(sockets=1, generation=2)
    await until(lambda: _restart_required(api))
    changed(sockets=1, generation=3, since="2026-01-01T00:00:00Z")
    await until(lambda: status().get("desiredGeneration") == 3)
    condition = meta.find_condition(status()["conditions"], "RestartRequired") or {}
    assert condition["message"] == "Reduction of CPU socket count requires a restart"
    assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"


async def test_a_template_changed_while_the_machine_is_stopped_is_observed(api: MemoryApi) -> None:
    """``kubectl wait`` waits for the observed generation before it looks at a condition."""
    await _up(api)

    def generations() -> tuple[Any, Any]:
        found = (api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {})["status"]
        return found.get("observedGeneration"), found.get("desiredGeneration")

    assert generations() == (1, 1)
    vm = deep_copy(api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {})
    vm["spec"]["runStrategy"] = "Halted"
    vm["metadata"]["generation"] = 2
    api.put(kinds.VIRTUAL_MACHINES, vm)
    await until(lambda: _instance(api) is None and _status(api) == "Stopped")
    vm = deep_copy(api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {})
    vm["spec"]["template"]["spec"]["domain"]["cpu"] = {"cores": 4}
    vm["metadata"]["generation"] = 3
    api.put(kinds.VIRTUAL_MACHINES, vm)
    await until(lambda: generations() == (3, 3))


@pytest.mark.feature("VML-17")
async def test_a_machine_that_is_asked_to_start_paused_does(api: MemoryApi) -> None:
    vm = _vm(runStrategy="Manual")
    vm["status"] = {"stateChangeRequests": [{"action": "Start", "data": {"paused": "true"}}]}
    api.put(kinds.VIRTUAL_MACHINES, vm)
    assert (await until(lambda: _instance(api)))["spec"]["startStrategy"] == "Paused"


@pytest.mark.feature("VML-10", "NOD-10")
async def test_a_guest_of_a_lost_node_fails_and_is_started_again(api: MemoryApi) -> None:
    silent = {"kubevirt.io/heartbeat": "2020-01-01T00:00:00Z"}
    labels = {"kubevirt.io/schedulable": "true"}
    await _up(api)
    first = meta.uid(_instance(api) or {})
    for pod in api.list(resources.PODS, "ns"):
        api.remove(resources.PODS, meta.name(pod), "ns")
    api.put(resources.NODES, {"metadata": {"name": "node", "annotations": silent, "labels": labels}})
    await until(lambda: _instance(api) and meta.uid(_instance(api) or {}) != first)


@pytest.mark.feature("VML-11")
async def test_a_node_without_heartbeat_takes_no_guests(api: MemoryApi) -> None:
    silent = {"kubevirt.io/heartbeat": "2020-01-01T00:00:00Z"}
    labels = {"kubevirt.io/schedulable": "true"}
    api.put(resources.NODES, {"metadata": {"name": "n2", "annotations": silent, "labels": labels}})

    def closed() -> bool:
        node = api.get(resources.NODES, "n2") or {}
        return meta.labels(node).get("kubevirt.io/schedulable") == "false"

    await until(closed)


@pytest.mark.parametrize(("stored", "is_refused"), [("256Mi", True), ("128Mi", False)])
async def test_a_revision_of_an_instance_type_is_used_only_if_it_holds_the_same(
    api: MemoryApi, stored: str, *, is_refused: bool
) -> None:
    kind = kinds.VIRTUAL_MACHINE_INSTANCETYPES
    about = {"apiVersion": kind.api_version, "kind": kind.kind}
    metadata = {"name": "small", "namespace": "ns", "uid": "t", "generation": 1}
    found = {**about, "metadata": metadata, "spec": {"cpu": {"guest": 1}, "memory": {"guest": "128Mi"}}}
    api.put(kind, found)
    revision = references.revision_of(decode(ObjectMeta, _vm()["metadata"]), found, kind)
    del revision["metadata"]["ownerReferences"]
    revision["data"]["spec"]["memory"]["guest"] = stored
    api.put(resources.CONTROLLER_REVISIONS, revision)
    vm = _vm(runStrategy="Always", instancetype={"name": "small", "kind": kind.kind})
    del vm["spec"]["template"]["spec"]["domain"]["memory"]
    api.put(kinds.VIRTUAL_MACHINES, vm)

    def outcome() -> list[str]:
        status = (api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}).get("status", {})
        failures = [each for each in status.get("conditions", ()) if each["type"] == "Failure"]
        pinned = get_str(status, "instancetypeRef", "controllerRevisionRef", "name")
        return [*(each["message"] for each in failures), *([pinned] if pinned else [])]

    told = await until(outcome)
    name = meta.name(revision)
    refusal = f"found existing ControllerRevision with unexpected data: {name}"
    assert told[0].endswith(refusal if is_refused else name)
    assert (_instance(api) is None) == is_refused


async def test_a_revision_that_an_older_version_stored_is_replaced(api: MemoryApi) -> None:
    kind = kinds.VIRTUAL_MACHINE_CLUSTER_INSTANCETYPES
    values = {"cpu": {"guest": 3}, "memory": {"guest": "128Mi"}}
    kept = {"metadata": {"name": "small", "uid": "t", "generation": 1}, "spec": values}
    older = references.revision_of(decode(ObjectMeta, _vm()["metadata"]), kept, kind)
    newer_name, older["metadata"]["name"] = meta.name(older), "vm-small-t-1"
    del (
        older["metadata"]["ownerReferences"],
        older["metadata"]["labels"]["instancetype.kubevirt.io/object-version"],
    )
    api.put(resources.CONTROLLER_REVISIONS, older)
    vm = _vm(runStrategy="Always", instancetype={"name": "small"})
    del vm["spec"]["template"]["spec"]["domain"]["memory"]
    vm["status"] = {"instancetypeRef": {"name": "small", "controllerRevisionRef": {"name": "vm-small-t-1"}}}
    api.put(kinds.VIRTUAL_MACHINES, vm)

    def types() -> list[str]:
        found = api.list(resources.CONTROLLER_REVISIONS, "ns")
        return [meta.name(each) for each in found if each["data"].get("kind") == kind.kind]

    await until(lambda: types() == [newer_name])
    status = (api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {})["status"]
    assert status["instancetypeRef"]["controllerRevisionRef"]["name"] == newer_name
    newer = api.get(resources.CONTROLLER_REVISIONS, newer_name, "ns") or {}
    assert meta.labels(newer)["instancetype.kubevirt.io/object-version"] == "v1beta1"
    assert newer["data"]["spec"] == values
    assert (await until(lambda: _instance(api)))["spec"]["domain"]["cpu"]["sockets"] == 3

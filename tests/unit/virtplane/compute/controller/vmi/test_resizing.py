"""Room in the launcher's pod for CPUs and memory that a running guest is to get."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.json import JsonObject, deep_copy
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute import plugging
from virtplane.compute.controller.vmi import phases, resizing
from virtplane.compute.controller.vmi.phases import Surroundings

_FRESH = {"requests": {"cpu": "300m", "memory": "2300Mi", "ephemeral-storage": "50M"}, "limits": {}}


def _pod(cpu: str = "100m", memory: str = "1250Mi", *, granted: bool = True) -> JsonObject:
    amounts = {"requests": {"cpu": cpu, "memory": memory, "ephemeral-storage": "50M"}}
    status: JsonObject = {"name": "compute", "resources": deep_copy(amounts) if granted else {}}
    return {
        "metadata": {"name": "p", "generation": 2},
        "spec": {"nodeName": "n", "containers": [{"name": "compute", "resources": amounts}]},
        "status": {"phase": "Running", "containerStatuses": [status], "conditions": []},
    }


def _vmi(sockets: int = 3, memory: str = "2Gi", **more: Any) -> VirtualMachineInstance:
    domain = {"cpu": {"sockets": sockets}, "memory": {"guest": memory}, "devices": {}, **more}
    status = {
        "phase": "Running",
        "nodeName": "n",
        "currentCPUTopology": {"sockets": 1, "cores": 1, "threads": 1},
        "memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestRequested": "1Gi"},
    }
    return decode(VirtualMachineInstance, {"spec": {"domain": domain}, "status": status})


def test_only_what_the_container_has_is_resized() -> None:
    wanted = resizing.wanted_resources(_pod(), _FRESH, may_shrink=True)
    assert wanted == {"requests": {"cpu": "300m", "memory": "2300Mi"}}
    assert not resizing.is_asked_for(_pod(), wanted)
    assert resizing.is_asked_for(_pod("0.3", "2300Mi"), wanted)


def test_a_pod_does_not_shrink_before_its_guest_has_given_the_memory_back() -> None:
    large = _pod("400m", "4Gi")
    assert resizing.wanted_resources(large, _FRESH, may_shrink=False) == {
        "requests": {"cpu": "400m", "memory": "4Gi"}
    }
    assert resizing.wanted_resources(large, _FRESH, may_shrink=True)["requests"]["memory"] == "2300Mi"
    assert resizing.has_shrunk(_vmi(memory="1Gi"))
    assert not resizing.has_shrunk(_vmi(memory="512Mi"))


def test_room_is_there_once_the_container_runs_with_it() -> None:
    wanted = resizing.wanted_resources(_pod(), _FRESH, may_shrink=True)
    ready = resizing.room(_vmi(), _pod("300m", "2300Mi"), wanted, "")
    assert ready["HotVCPUChange"] == (plugging.POD_RESIZED, "the pod has room for 3 CPU sockets")
    assert ready["HotMemoryChange"] == (plugging.POD_RESIZED, "the pod has room for 2Gi of guest memory")
    asked = resizing.room(_vmi(), _pod("300m", "2300Mi", granted=False), wanted, "")
    assert asked["HotVCPUChange"] == ("", "")


@pytest.mark.parametrize("reason", ["Infeasible", "Deferred"])
def test_a_node_without_room_is_named_in_the_condition(reason: str) -> None:
    pod = _pod("300m", "2300Mi", granted=False)
    pod["status"]["conditions"] = [
        {"type": "PodResizePending", "status": "True", "reason": reason, "message": "no room"}
    ]
    wanted = resizing.wanted_resources(pod, _FRESH, may_shrink=True)
    assert resizing.room(_vmi(), pod, wanted, "")["HotMemoryChange"] == (f"PodResize{reason}", "no room")


def test_cpus_and_pages_of_its_own_are_not_plugged_in_place() -> None:
    pinned = _vmi(cpu={"sockets": 3, "dedicatedCpuPlacement": True})
    found = resizing.room(pinned, _pod("300m", "2300Mi"), {}, "")
    assert found["HotVCPUChange"][0] == found["HotMemoryChange"][0] == "PodResizeInfeasible"
    paged = _vmi(memory="2Gi")
    paged = decode(
        VirtualMachineInstance,
        {"spec": {"domain": {"memory": {"guest": "2Gi", "hugepages": {"pageSize": "2Mi"}}, "devices": {}}}},
    )
    assert resizing.room(paged, _pod(), {}, "")["HotMemoryChange"][0] == "PodResizeInfeasible"
    assert resizing.room(paged, _pod(), {}, "")["HotVCPUChange"][0] == plugging.POD_RESIZED


@pytest.mark.feature("VML-25", "VML-24")
def test_pending_changes_are_conditions_and_a_failed_one_stays_failed() -> None:
    vmi = _vmi()
    document: JsonObject = {"spec": {}, "status": {"phase": "Running", "conditions": []}}
    around = Surroundings(pod=_pod(), room={"HotVCPUChange": (plugging.POD_RESIZED, "room")})
    found = phases.next_state(vmi, document, around)["status"]["conditions"]
    told = {each["type"]: (each["status"], each.get("reason")) for each in found}
    assert told["HotVCPUChange"] == ("True", plugging.POD_RESIZED)
    assert told["HotMemoryChange"] == ("True", None)
    document["status"]["conditions"] = [{"type": "HotMemoryChange", "status": "False"}]
    found = phases.next_state(vmi, document, around)["status"]["conditions"]
    assert {"type": "HotMemoryChange", "status": "False"} in found

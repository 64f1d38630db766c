"""Interfaces that come to a running guest and leave it, as its VM's template says."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.json import JsonObject, deep_copy
from kubecore.objects.structs import decode
from kubecore.patch.jsonpatch import apply_json_patch
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.controller.vm import interfaces

_META = {"name": "vm", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
_MULTUS = "domain, multus-status"


def spec(**states: str | None) -> JsonObject:
    """The pod network, and bridged interfaces on secondary networks with these states."""
    cards: list[JsonObject] = [{"name": "default", "masquerade": {}, "tag": "kept"}]
    cards += [
        {"name": name, "bridge": {}, **({"state": state} if state else {})} for name, state in states.items()
    ]
    networks: list[JsonObject] = [{"name": "default", "pod": {}}]
    networks += [{"name": name, "multus": {"networkName": name}} for name in states]
    return {"domain": {"devices": {"interfaces": cards}}, "networks": networks}


def machine(template: JsonObject) -> JsonObject:
    return {"metadata": dict(_META), "spec": {"template": {"spec": template}}}


def instance(running: JsonObject, *statuses: str, **status: Any) -> JsonObject:
    listed = [{"name": name, "infoSource": _MULTUS} for name in ("default", *statuses)]
    return {
        "metadata": dict(_META),
        "spec": running,
        "status": {"phase": "Running", "interfaces": listed, **status},
    }


def followed(vm: JsonObject, vmi: JsonObject) -> JsonObject:
    """The instance's spec after it followed the template."""
    operations = interfaces.instance_operations(
        decode(VirtualMachine, vm), decode(VirtualMachineInstance, vmi)
    )
    result: JsonObject = apply_json_patch(deep_copy(vmi), operations)["spec"]
    return result


@pytest.mark.feature("VML-22", "VML-38")
def test_a_new_bridged_interface_reaches_the_running_guest_with_its_network() -> None:
    assert followed(machine(spec(blue=None, red="down")), instance(spec())) == spec(blue=None, red="down")


def test_a_guest_without_any_network_gets_its_first() -> None:
    template = spec(blue=None)
    for part in (template["domain"]["devices"]["interfaces"], template["networks"]):
        del part[0]
    assert followed(machine(template), instance({"domain": {"devices": {}}})) == template


@pytest.mark.parametrize("state", ["down", "up", "absent", None])
def test_the_state_of_an_interface_is_followed(state: str | None) -> None:
    running = spec(blue="up" if state is None else None)
    assert followed(machine(spec(blue=state)), instance(running, "blue")) == spec(blue=state)


@pytest.mark.feature("VML-38")
def test_an_interface_leaves_the_instance_once_guest_and_pod_have_left_its_network() -> None:
    vm, running = machine(spec(blue="absent", red=None)), spec(blue="absent", red=None)
    assert followed(vm, instance(running, "blue", "red")) == running
    assert followed(vm, instance(running, "red")) == spec(red=None)


@pytest.mark.feature("VML-38")
def test_it_leaves_the_template_once_it_has_left_the_instance() -> None:
    def cleared(vm: JsonObject, vmi: JsonObject) -> JsonObject:
        operations = interfaces.template_operations(
            decode(VirtualMachine, vm), decode(VirtualMachineInstance, vmi)
        )
        result: JsonObject = apply_json_patch(deep_copy(vm), operations)["spec"]["template"]["spec"]
        return result

    vm = machine(spec(blue="absent", red=None))
    assert cleared(vm, instance(spec(blue="absent", red=None))) == spec(blue="absent", red=None)
    assert cleared(vm, instance(spec(red=None))) == spec(red=None)


def test_a_numbered_interface_of_an_older_release_does_not_leave() -> None:
    vmi = instance(spec(blue=None))
    vmi["status"]["interfaces"].append({"name": "blue", "podInterfaceName": "net1"})
    assert followed(machine(spec(blue="absent")), vmi) == spec(blue=None)


@pytest.mark.parametrize("phase", ["Scheduled", "Succeeded", "Failed"])
def test_a_guest_that_does_not_run_is_left_alone(phase: str) -> None:
    assert followed(machine(spec(blue=None)), instance(spec(), phase=phase)) == spec()


def test_a_new_guest_starts_without_interfaces_that_are_to_be_absent() -> None:
    document = spec(blue="absent", red=None)
    interfaces.drop_absent(document)
    assert document == spec(red=None)
    bare: JsonObject = {"domain": {}}
    interfaces.drop_absent(bare)
    assert bare == {"domain": {}}

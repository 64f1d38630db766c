"""What virt-controller makes of the networks of a running launcher."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.controller.vmi.networks import interface_status, set_attachments, set_network_info
from virtplane.compute.launcherpod.inputs import Images, RenderInputs

_ASKED, _TOLD = "k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/network-status"
_BLUE = "pod16477688c0e"


def instance(state: str = "", *listed: JsonObject) -> VirtualMachineInstance:
    blue: JsonObject = {"name": "blue", "bridge": {}, **({"state": state} if state else {})}
    devices = {"interfaces": [{"name": "default", "masquerade": {}}, blue]}
    networks = [{"name": "default", "pod": {}}, {"name": "blue", "multus": {"networkName": "blue"}}]
    return decode(
        VirtualMachineInstance,
        {
            "metadata": {"name": "vm", "namespace": "ns", "uid": "u"},
            "spec": {"domain": {"devices": devices}, "networks": networks},
            "status": {"phase": "Running", "interfaces": list(listed)},
        },
    )


def asked(vmi: VirtualMachineInstance, text: str | None = None) -> Any:
    """The networks that a pod with the annotation `text` asks for afterwards."""
    pod: JsonObject = {"metadata": {"annotations": {} if text is None else {_ASKED: text}}}
    set_attachments(pod, RenderInputs(vmi, ClusterConfig({}), Images("launcher", "sidecar")))
    found = pod["metadata"].get("annotations", {}).get(_ASKED)
    return json.loads(found) if found is not None else None


@pytest.mark.feature("VML-38")
def test_the_launcher_of_a_running_guest_joins_a_new_network() -> None:
    blue = {"name": "blue", "namespace": "ns", "interface": _BLUE}
    assert asked(instance()) == [blue]
    assert asked(instance(), "no JSON") == [blue]
    assert asked(instance(), json.dumps([blue])) == [blue]


def test_an_annotation_that_is_too_deep_is_not_read() -> None:
    deep = "[" * 300 + "]" * 300
    assert asked(instance(), f'[{{"name": "mine", "cni-args": {deep}}}]') == asked(instance())
    assert told(instance(), f'[{{"interface": "{_BLUE}", "dns": {deep}}}]') == told(instance(), "")


def test_networks_that_are_not_the_guests_stay() -> None:
    others = [{"name": "mine"}, {"name": "plugin", "cni-args": {"logicNetworkName": "x"}}]
    assert asked(instance("absent"), json.dumps(others)) == others
    gone = [*others, {"name": "blue", "namespace": "ns", "interface": _BLUE}]
    assert asked(instance("absent"), json.dumps(gone)) == others
    assert asked(instance(), json.dumps(others))[:2] == others


@pytest.mark.feature("VML-38")
def test_it_leaves_a_network_only_after_its_guest() -> None:
    here = {"name": "blue", "infoSource": "domain, multus-status", "podInterfaceName": _BLUE}
    assert asked(instance("absent", here), "[]") != []
    left, text = {**here, "infoSource": "multus-status"}, json.dumps([{"name": "blue", "interface": _BLUE}])
    assert asked(instance("absent", left), text) == []
    assert asked(instance("absent")) is None


def told(vmi: VirtualMachineInstance, text: str) -> dict[str, tuple[str | None, str | None]]:
    pod = {"metadata": {"annotations": {_TOLD: text}}}
    return {
        item.name or "": (item.info_source, item.pod_interface_name) for item in interface_status(vmi, pod)
    }


def test_the_status_says_where_the_pod_is_on_a_network() -> None:
    here = json.dumps([{"name": "ns/blue", "interface": _BLUE}])
    assert told(instance(), here) == {"default": (None, "eth0"), "blue": ("multus-status", _BLUE)}
    known = {"name": "blue", "infoSource": "domain, guest-agent, multus-status", "podInterfaceName": _BLUE}
    assert told(instance("", known), here)["blue"] == ("domain, guest-agent, multus-status", _BLUE)
    assert told(instance("", known), "[]")["blue"] == ("domain, guest-agent", _BLUE)
    assert "blue" not in told(instance("", {**known, "infoSource": "multus-status"}), "[]")


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "{}", "[1, [], null]", '[{"interface": 7}]', "[" * 10**6],
)
def test_whatever_else_somebody_writes_there_says_nothing(text: str) -> None:
    assert told(instance(), text) == {"default": (None, "eth0")}


def test_interfaces_that_only_the_guest_agent_knows_stay() -> None:
    bridge = {"infoSource": "guest-agent", "interfaceName": "docker0", "mac": "02:00:00:00:00:01"}
    found = interface_status(instance("", bridge), {"metadata": {}})
    assert [item.interface_name for item in found] == [None, "docker0"]


@pytest.mark.feature("NET-14")
def test_the_launcher_is_told_which_functions_its_networks_gave_it() -> None:
    document = {
        "metadata": {"name": "vm", "namespace": "ns"},
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "blue", "sriov": {}}]}},
            "networks": [{"name": "blue", "multus": {"networkName": "blue"}}],
        },
    }
    vmi = decode(VirtualMachineInstance, document)
    info = {"type": "pci", "version": "1.0.0", "pci": {"pci-address": "0000:81:00.2"}}
    reported = [
        {"name": "default", "interface": "eth0", "default": True},
        {"name": "ns/blue", "interface": _BLUE, "mac": "02:00:00:00:00:01", "device-info": info},
    ]

    def told(vmi: VirtualMachineInstance, text: str) -> Any:
        pod: JsonObject = {"metadata": {"annotations": {_TOLD: text}}}
        set_network_info(pod, RenderInputs(vmi, ClusterConfig({}), Images("launcher", "sidecar")))
        found = pod["metadata"]["annotations"].get("kubevirt.io/network-info")
        return json.loads(found) if found is not None else None

    listed = {"network": "blue", "deviceInfo": info, "mac": "02:00:00:00:00:01"}
    assert told(vmi, json.dumps(reported)) == {"interfaces": [listed]}
    assert told(vmi, json.dumps(reported[:1])) is None
    assert told(vmi, "no JSON") is None
    assert told(instance(), json.dumps(reported)) is None, "a guest behind taps needs none"

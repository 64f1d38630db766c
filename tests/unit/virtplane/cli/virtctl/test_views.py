"""Services in front of guests, expanded machines, dependencies, permitted devices, pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from virtplane.cli.virtctl.documents import as_yaml
from virtplane.cli.virtctl.expose import instance_id

from .conftest import SUB, FakeServer, Virtctl

_OBJECTS = "/apis/kubevirt.io/v1/namespaces/default"
_INTERFACES = [
    {"name": "other", "bridge": {}, "ports": [{"port": 9}]},
    {"name": "default", "masquerade": {}, "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]},
]
_GUEST = {
    "domain": {"devices": {"interfaces": _INTERFACES}},
    "networks": [{"name": "other", "multus": {"networkName": "n"}}, {"name": "default", "pod": {}}],
}


def _put(api: FakeServer, plural: str, name: str, spec: dict[str, Any]) -> None:
    api.answers["GET", f"{_OBJECTS}/{plural}/{name}"] = (
        200,
        {"metadata": {"name": name, "uid": "u"}, "spec": spec},
    )


def _service(api: FakeServer) -> dict[str, Any]:
    method, path, body = api.requests[-1]
    assert (method, path) == ("POST", "/api/v1/namespaces/default/services")
    found: dict[str, Any] = body
    return found


@pytest.mark.feature("CTL-38")
def test_a_machine_is_exposed_on_the_port_that_is_named(api: FakeServer, virtctl: Virtctl) -> None:
    _put(api, "virtualmachines", "vm", {"template": {"spec": _GUEST}})
    line = "expose vm vm --name s --port 22 --target-port ssh --type nodeport"
    assert virtctl(*line.split()).out == "Service s successfully created for vm vm\n"
    made = _service(api)
    assert made["spec"] == {
        "type": "NodePort",
        "ports": [{"protocol": "TCP", "port": 22, "targetPort": "ssh"}],
        "selector": {"vmi.kubevirt.io/id": "vm"},
    }
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "u"}
    assert made["metadata"]["ownerReferences"] == [{**owner, "controller": True, "blockOwnerDeletion": False}]


@pytest.mark.feature("CTL-38")
def test_without_a_port_those_of_the_interface_in_the_pod_network_are_taken(
    api: FakeServer, virtctl: Virtctl
) -> None:
    _put(api, "virtualmachineinstances", "vmi", _GUEST)
    assert virtctl("expose", "VMI", "vmi", "--name", "s", "--ip-family", "ipv4,ipv6").code == 0
    assert _service(api)["spec"] == {
        "type": "ClusterIP",
        "ipFamilies": ["IPv4", "IPv6"],
        "ipFamilyPolicy": "PreferDualStack",
        "ports": [
            {"name": "port-1", "port": 80},
            {"name": "port-2", "port": 53, "protocol": "UDP"},
        ],
        "selector": {"vmi.kubevirt.io/id": "vmi"},
    }


def test_a_replica_set_is_exposed_by_its_labels(api: FakeServer, virtctl: Virtctl) -> None:
    plural = "virtualmachineinstancereplicasets"
    _put(api, plural, "rs", {"selector": {"matchLabels": {"k": "v"}}, "template": {"spec": _GUEST}})
    assert virtctl("expose", "vmirs", "rs", "--name", "s", "--port", "1").code == 0
    assert _service(api)["spec"]["selector"] == {"k": "v"}
    _put(api, plural, "rs", {"selector": {"matchExpressions": [{}]}, "template": {"spec": _GUEST}})
    result = virtctl("expose", "vmirs", "rs", "--name", "s", "--port", "1")
    text = "cannot expose VirtualMachineInstanceReplicaSet without any selector labels\n"
    assert (result.code, result.err) == (1, text)


def test_long_names_are_shortened_as_in_the_instances_own_label() -> None:
    assert instance_id("v" * 63) == "v" * 63
    assert instance_id("v" * 70) == "v" * 54 + "-fc1fb688"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("vm vm --name s", "couldn't find port via --port flag or introspection"),
        ("vm vm", 'required flag(s) "name" not set'),
        ("vm", "accepts 2 arg(s), received 1"),
        ("pod x --name s", "unsupported resource type: pod"),
        ("vm vm --name s --port 1 --type ExternalName", "type: ExternalName not supported"),
        ("vm vm --name s --port 1 --type x", "unknown service type: x"),
        ("vm vm --name s --port 1 --protocol x", "unknown protocol: x"),
        ("vm vm --name s --port 1 --ip-family x", "unknown IPFamily/s: x"),
        ("vm vm --name s --port 1 --ip-family-policy x", "unknown IPFamilyPolicy/s: x"),
        ("vm none --name s --port 1", "error fetching VirtualMachine: gone"),
    ],
)
def test_what_cannot_be_exposed_is_told(api: FakeServer, virtctl: Virtctl, line: str, said: str) -> None:
    _put(api, "virtualmachines", "vm", {"template": {"spec": {"domain": {}}}})
    api.refuse("GET", f"{_OBJECTS}/virtualmachines/none", 404, "gone")
    result = virtctl("expose", *line.split())
    assert (result.code, result.out, result.err) == (1, "", f"{said}\n")


_MACHINE = {"kind": "VirtualMachine", "metadata": {"name": "vm"}, "spec": {"running": False}}


def test_a_stored_machine_is_shown_expanded(api: FakeServer, virtctl: Virtctl) -> None:
    api.answers["GET", f"{SUB}/default/virtualmachines/vm/expand-spec"] = (200, _MACHINE)
    whole = {
        "kind": "VirtualMachine",
        "apiVersion": "kubevirt.io/v1",
        "metadata": {"name": "vm"},
        "spec": {
            "running": False,
            "template": {"metadata": {}, "spec": {"domain": {"resources": {}, "devices": {}}}},
        },
        "status": {},
    }
    assert virtctl("expand", "--vm", "vm").out == as_yaml(whole)
    assert virtctl("expand", "--vm", "vm", "-o", "json").out == json.dumps(whole, indent=1)


def test_a_machine_in_a_file_is_sent_to_be_expanded(
    api: FakeServer, virtctl: Virtctl, tmp_path: Path
) -> None:
    path = f"{SUB}/default/expand-vm-spec"
    api.answers["PUT", path] = (200, _MACHINE)
    (tmp_path / "vm.yaml").write_text("metadata: {name: vm}\n")
    assert virtctl("expand", "--file", str(tmp_path / "vm.yaml")).code == 0
    sent = {"kind": "VirtualMachine", "apiVersion": "kubevirt.io/v1", "metadata": {"name": "vm"}}
    assert api.requests == [("PUT", path, sent)]
    api.refuse("PUT", path, 400, "Object is not a valid VirtualMachine")
    result = virtctl("expand", "--file", str(tmp_path / "vm.yaml"))
    text = (
        "error expanding VirtualMachine - vm in namespace - default: Object is not a valid VirtualMachine\n"
    )
    assert (result.code, result.err) == (1, text)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("expand", "error invalid arguments - VirtualMachine name or file must be provided"),
        (
            "expand --vm a --file b",
            "if any flags in the group [file vm] are set none of the others can be; [file vm] were all set",
        ),
        ("expand --vm a -o x", "error not supported output format defined: x"),
        ("expand --file /nowhere", "error reading file open /nowhere: no such file or directory"),
        ("expand --file /dev/null", "error decoding VirtualMachine EOF"),
        ("expand x", "accepts 0 arg(s), received 1"),
        ("objectgraph vm -o x", "unsupported output format: x (must be 'json' or 'yaml')"),
        ("evacuate-cancel pod x", 'unsupported resource type "pod"'),
        ("vnc screenshot vm", 'required flag(s) "file" not set'),
    ],
)
def test_what_cannot_be_shown_is_told(virtctl: Virtctl, line: str, said: str) -> None:
    result = virtctl(*line.split())
    assert (result.code, result.out, result.err) == (1, "", f"{said}\n")


def test_dependencies_are_asked_for_with_a_selection(api: FakeServer, virtctl: Virtctl) -> None:
    graph = {"objectReference": {"name": "vm"}, "labels": {}}
    path = f"{SUB}/default/virtualmachineinstances/vm/objectgraph"
    api.answers["GET", path] = (200, graph)
    line = "objectgraph vm --vmi --exclude-optional --selector a=b,c=d"
    assert virtctl(*line.split()).out == json.dumps(graph, indent=2) + "\n"
    wanted = {"includeOptionalNodes": False, "labelSelector": {"matchLabels": {"a": "b", "c": "d"}}}
    assert api.requests == [("GET", path, wanted)]
    assert virtctl("objectgraph", "vm", "--vmi", "-o", "yaml").out == (
        "labels: {}\nobjectReference:\n  name: vm\n\n"
    )


def test_permitted_devices_are_those_of_the_namespaces_installation(
    api: FakeServer, virtctl: Virtctl
) -> None:
    permitted = {
        "pciHostDevices": [{"resourceName": name, "pciVendorSelector": "1:1"} for name in ("a/b", "a/c")],
        "mediatedDevices": [{"resourceName": "g/h", "mdevNameSelector": "G"}],
    }
    item = {"metadata": {"name": "k"}, "spec": {"configuration": {"permittedHostDevices": permitted}}}
    api.answers["GET", f"{_OBJECTS}/kubevirts"] = (200, {"metadata": {}, "items": [item]})
    shown = "Permitted Devices: \nHost Devices: \na/b, a/c \nGPU Devices: \ng/h\n"
    assert virtctl("permitted-devices").out == shown
    api.answers["GET", f"{_OBJECTS}/kubevirts"] = (200, {"metadata": {}, "items": []})
    assert virtctl("permitted-devices").err == 'no KubeVirt resource in "default" namespace\n'


def test_a_picture_of_the_display_goes_to_a_file(api: FakeServer, virtctl: Virtctl, tmp_path: Path) -> None:
    path = f"{SUB}/default/virtualmachineinstances/vm/vnc/screenshot"
    api.answers["GET", path] = (200, b"\x89PNG")
    assert virtctl("vnc", "screenshot", "vm", "-m", "-f", str(tmp_path / "p.png")).code == 0
    assert (tmp_path / "p.png").read_bytes() == b"\x89PNG"
    assert api.requests[0][1] == f"{path}?moveCursor=true"
    api.answers["GET", path] = (500, "VMI is not running")
    assert virtctl("vnc", "screenshot", "vm", "-f", "-").err == (
        'Can\'t access VMI vm: an error on the server ("VMI is not running") has prevented the request from'
        " succeeding (get virtualmachineinstances.kubevirt.io vm)\n"
    )


def test_an_evacuation_is_cancelled_for_the_node_that_the_instance_is_on(
    api: FakeServer, virtctl: Virtctl
) -> None:
    api.answers["GET", f"{_OBJECTS}/virtualmachineinstances/vm"] = (200, {"status": {"nodeName": "node01"}})
    result = virtctl("evacuate-cancel", "vm", "vm", "--dry-run")
    assert result.out == "Dry Run execution\nVM default/vm was canceled evacuation\n"
    path = f"{SUB}/default/virtualmachines/vm/evacuate/cancel"
    assert api.requests[-1] == ("PUT", path, {"dryRun": ["All"], "evacuationNodeName": "node01"})
    api.answers["GET", f"{_OBJECTS}/virtualmachineinstances/vm"] = (200, {"status": {}})
    assert virtctl("evacuate-cancel", "vmi", "vm").err == "VMI default/vm doesn't report Node name\n"

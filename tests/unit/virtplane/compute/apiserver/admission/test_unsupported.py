"""Warnings about fields that nothing acts upon."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.schema import object_schema
from virtplane.compute.apiserver.admission.unsupported import NOT_ACTED_UPON, unsupported_warnings


def test_set_fields_are_named_with_their_full_paths() -> None:
    spec: JsonObject = {
        "domain": {
            "cpu": {"realtime": {}},
            "devices": {"disks": [{"name": "a"}, {"name": "b", "tag": "x"}], "blockMultiQueue": False},
        }
    }
    assert unsupported_warnings("spec", spec) == [
        "spec.domain.cpu.realtime is accepted, but has no effect in this version",
        "spec.domain.devices.disks[1].tag is accepted, but has no effect in this version",
    ]


def test_every_path_exists_in_the_api() -> None:
    root = object_schema(VirtualMachineInstance)["properties"]["spec"]
    for path in NOT_ACTED_UPON:
        schema = root
        for part in path.split("."):
            schema = schema["properties"][part.removesuffix("[]")]
            if part.endswith("[]"):
                schema = schema["items"]


def test_the_table_is_sorted_and_without_duplicates() -> None:
    assert list(NOT_ACTED_UPON) == sorted(set(NOT_ACTED_UPON))


def test_every_network_that_no_node_wires_is_named() -> None:
    spec: JsonObject = {
        "domain": {
            "devices": {
                "interfaces": [
                    {"name": "a", "bridge": {}},
                    {"name": "b", "masquerade": {}},
                    {"name": "c", "passtBinding": {}},
                    {"name": "d", "sriov": {}},
                    {"name": "e", "binding": {"name": "plugin"}},
                ]
            }
        },
        "networks": [{"name": "a", "pod": {}}, {"name": "d", "multus": {"networkName": "n"}}],
    }
    assert [text.split(" ")[0] for text in unsupported_warnings("spec", spec)] == [
        "spec.domain.devices.interfaces[4].binding",
        "spec.domain.devices.interfaces[2].passtBinding",
        "spec.domain.devices.interfaces[3].sriov",
        "spec.networks[1].multus",
    ]

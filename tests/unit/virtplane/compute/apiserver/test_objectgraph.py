"""What a machine depends on, as its `objectgraph` tells."""

from __future__ import annotations

import pytest

from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.compute.apiserver.subresources.objectgraph import of_machine

_SECRET = {"secret": {"secretName": "keys"}}
_MACHINE = decode(
    VirtualMachine,
    {
        "metadata": {"name": "vm", "namespace": "ns"},
        "spec": {
            "instancetype": {"name": "small"},
            "preference": {"name": "linux", "kind": "VirtualMachinePreference", "revisionName": "linux-1"},
            "template": {
                "spec": {
                    "accessCredentials": [{"userPassword": {"propagationMethod": {}, "source": _SECRET}}],
                    "volumes": [
                        {"name": "root", "dataVolume": {"name": "root"}},
                        {"name": "init", "cloudInitNoCloud": {"secretRef": {"name": "user-data"}}},
                        {"name": "scratch", "emptyDisk": {"capacity": "1Gi"}},
                    ],
                    "networks": [{"name": "blue", "multus": {"networkName": "other/blue"}}],
                }
            },
        },
        "status": {"instancetypeRef": {"name": "small", "controllerRevisionRef": {"name": "small-1"}}},
    },
)


def _children(options: JsonObject) -> list[tuple[str, str]]:
    tree = of_machine(_MACHINE, None, (), options)
    references = [child["objectReference"] for child in tree.get("children", ())]
    return [(reference["kind"], reference["name"]) for reference in references]


def test_a_machine_depends_on_all_that_it_names() -> None:
    assert _children({}) == [
        ("VirtualMachineClusterInstancetype", "small"),
        ("ControllerRevision", "small-1"),
        ("VirtualMachinePreference", "linux"),
        ("ControllerRevision", "linux-1"),
        ("Secret", "keys"),
        ("DataVolume", "root"),
        ("Secret", "user-data"),
        ("NetworkAttachmentDefinition", "blue"),
    ]


def test_a_tree_can_be_cut() -> None:
    required = _children({"includeOptionalNodes": False})
    assert ("NetworkAttachmentDefinition", "blue") not in required and ("DataVolume", "root") in required
    storage = {"matchLabels": {"kubevirt.io/dependency-type": "storage"}}
    assert _children({"labelSelector": storage}) == [("DataVolume", "root")]


def test_a_selector_that_is_none_is_the_users_fault() -> None:
    wrong = {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}
    with pytest.raises(StatusError, match='"Gt" is not a valid label selector operator') as refused:
        _children({"labelSelector": wrong})
    assert refused.value.code == 400

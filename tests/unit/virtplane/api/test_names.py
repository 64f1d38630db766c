"""The names by which users type the kinds."""

from __future__ import annotations

from functools import cache

import pytest

from kubecore.json import JsonObject
from virtplane.api import crds


@cache
def _definitions() -> dict[str, JsonObject]:
    return {crd["spec"]["names"]["kind"]: crd for crd in crds.custom_resource_definitions()}


@pytest.mark.parametrize(
    ("kind", "plural", "short_names", "group", "versions"),
    [
        ("VirtualMachine", "virtualmachines", ["vm", "vms"], "kubevirt.io", {"v1"}),
        pytest.param(
            "VirtualMachineInstance",
            "virtualmachineinstances",
            ["vmi", "vmis"],
            "kubevirt.io",
            {"v1"},
            marks=pytest.mark.feature("VML-76", "VML-77"),
        ),
        pytest.param(
            "VirtualMachineInstanceMigration",
            "virtualmachineinstancemigrations",
            ["vmim", "vmims"],
            "kubevirt.io",
            {"v1"},
            marks=pytest.mark.feature("MIG-27"),
        ),
        pytest.param(
            "VirtualMachineInstanceReplicaSet",
            "virtualmachineinstancereplicasets",
            ["vmirs", "vmirss"],
            "kubevirt.io",
            {"v1"},
            marks=pytest.mark.feature("VML-80"),
        ),
        pytest.param(
            "VirtualMachineSnapshot",
            "virtualmachinesnapshots",
            ["vmsnapshot", "vmsnapshots"],
            "snapshot.kubevirt.io",
            {"v1beta1"},
            marks=pytest.mark.feature("SNP-15", "SNP-16"),
        ),
        pytest.param(
            "VirtualMachineRestore",
            "virtualmachinerestores",
            ["vmrestore", "vmrestores"],
            "snapshot.kubevirt.io",
            {"v1beta1"},
            marks=pytest.mark.feature("SNP-22"),
        ),
        pytest.param(
            "MigrationPolicy",
            "migrationpolicies",
            [],
            "migrations.kubevirt.io",
            {"v1alpha1"},
            marks=pytest.mark.feature("MIG-20"),
        ),
    ],
)
def test_kinds_have_kubevirts_names(
    kind: str, plural: str, short_names: list[str], group: str, versions: set[str]
) -> None:
    spec = _definitions()[kind]["spec"]
    assert spec["names"]["plural"] == plural
    assert spec["names"].get("shortNames", []) == short_names
    assert spec["group"] == group
    assert versions <= {version["name"] for version in spec["versions"] if version["served"]}

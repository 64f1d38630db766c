"""How storage shows in lists."""

from __future__ import annotations

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Kinds

from kubecore.json import JsonObject


def _headings(kinds: Kinds, plural: str) -> list[str]:
    table = kinds.table(plural)
    return [column.name for column in table.columns if not column.priority]


@pytest.mark.feature("VMC-12")
def test_claims_show_volume_size_and_modes(kinds: Kinds) -> None:
    assert _headings(kinds, "persistentvolumeclaims")[:5] == [
        "Name",
        "Status",
        "Volume",
        "Capacity",
        "Access Modes",
    ]
    assert {"StorageClass", "Age"} <= set(_headings(kinds, "persistentvolumeclaims"))
    claim: JsonObject = {
        "spec": {"volumeName": "pv", "storageClassName": "fast", "accessModes": ["ReadWriteMany"]},
        "status": {"phase": "Bound", "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteMany"]},
    }
    row = kinds.row("persistentvolumeclaims", claim)
    assert row[1:6] == ["Bound", "pv", "10Gi", "RWX", "fast"]


@pytest.mark.feature("STO-07")
def test_the_default_class_is_marked_in_the_list(kinds: Kinds) -> None:
    assert _headings(kinds, "storageclasses") == [
        "Name",
        "Provisioner",
        "ReclaimPolicy",
        "VolumeBindingMode",
        "AllowVolumeExpansion",
        "Age",
    ]
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    document = {
        "metadata": {"name": "fast", "annotations": annotations},
        "provisioner": "csi.test",
        "allowVolumeExpansion": True,
    }
    assert kinds.row("storageclasses", document)[:5] == [
        "fast (default)",
        "csi.test",
        "Delete",
        "Immediate",
        True,
    ]
    plain = {"metadata": {"name": "slow"}, "provisioner": "csi.test"}
    assert kinds.row("storageclasses", plain)[0] == "slow"

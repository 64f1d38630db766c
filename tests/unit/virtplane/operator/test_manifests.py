"""What ``virtplane install`` and ``virtplane up`` apply."""

from __future__ import annotations

from virtplane.operator import manifests


def test_dense_installations_let_guests_request_little_of_a_processor() -> None:
    configuration = manifests.kubevirt_object("kubevirt", True, dense=True)["spec"]["configuration"]
    assert configuration == {
        "cpuRequest": "50m",
        "developerConfiguration": {"useEmulation": True, "cpuAllocationRatio": 20},
    }
    assert manifests.kubevirt_object("kubevirt")["spec"]["configuration"] == {}

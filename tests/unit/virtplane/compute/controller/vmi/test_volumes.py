"""What virt-controller finds out about the claims of a guest."""

from __future__ import annotations

import pytest

from kubecore.json import JsonObject
from virtplane.compute.controller.vmi.volumes import claim_info

_CDI = "cdi.kubevirt.io/storage."


@pytest.mark.parametrize(
    ("annotations", "preallocated"),
    [
        ({}, None),
        ({f"{_CDI}preallocation": "true"}, True),
        ({f"{_CDI}preallocation.requested": "true"}, True),
        ({f"{_CDI}preallocation": "false"}, None),
        ({"user.custom.annotation/storage.thick-provisioned": "true"}, True),
        ({"user.custom.annotation/storage.thick-provisioned": "false"}, None),
        ({"storage.thick-provisioned": "true"}, None),
    ],
)
@pytest.mark.feature("STO-49")
def test_annotations_of_a_claim_say_whether_its_blocks_stay_allocated(
    annotations: JsonObject, preallocated: bool | None
) -> None:
    claim: JsonObject = {"metadata": {"name": "c", "annotations": annotations}, "spec": {}}
    assert claim_info(claim, "0").preallocated is preallocated

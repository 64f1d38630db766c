"""Names end up in one part of a path, whatever is in them."""

from __future__ import annotations

import pytest

from kubecore.resources import CONFIG_MAPS, ResourceType


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("system:node", "system:node"),
        ("a b", "a%20b"),
        ("../secrets/all", "..%2Fsecrets%2Fall"),
        ("ä?watch", "%C3%A4%3Fwatch"),
    ],
)
def test_a_name_cannot_leave_its_part_of_the_path(name: str, part: str) -> None:
    assert CONFIG_MAPS.path("ns", name) == f"/api/v1/namespaces/ns/configmaps/{part}"
    assert ResourceType("g", "v1", "things", "Thing").path(name) == f"/apis/g/v1/namespaces/{part}/things"

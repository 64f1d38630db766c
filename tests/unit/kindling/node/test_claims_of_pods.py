"""Which claims a node takes for bound."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from kindling.node.backend import ApiBackend
from kindling.node.volumes.content import ContentProblem
from kubecore import resources
from kubecore.testing.memory import MemoryApi

_BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


async def _claim(phase: str, annotations: dict[str, str], owner: str = "u") -> tuple[Any, Any]:
    api = MemoryApi()
    claim = api.put(
        resources.PERSISTENT_VOLUME_CLAIMS,
        {
            "metadata": {"name": "disk", "namespace": "ns", "uid": "u", "annotations": annotations},
            "spec": {"volumeName": "v"},
            "status": {"phase": phase},
        },
    )
    reference = {"namespace": "ns", "name": "disk", "uid": owner}
    api.put(resources.PERSISTENT_VOLUMES, {"metadata": {"name": "v"}, "spec": {"claimRef": reference}})
    assert claim is not None
    async with api.client() as client:
        return await ApiBackend(client, Mock(), Mock(), Mock(), list, Mock(), Mock()).claim("ns", "disk")


async def test_a_claim_that_has_its_volume_is_used_before_its_status_says_so() -> None:
    """The scheduler has placed the pod already: waiting for the status cost a back-off of seconds."""
    _, volume = await _claim("Pending", _BOUND)
    assert volume["metadata"]["name"] == "v"


@pytest.mark.parametrize(
    ("phase", "annotations", "owner"),
    [
        ("Pending", {}, "u"),
        ("Lost", _BOUND, "u"),
        ("Pending", _BOUND, "another"),
        ("Bound", _BOUND, "another"),
    ],
)
async def test_a_claim_without_a_volume_of_its_own_is_not_used(
    phase: str, annotations: dict[str, str], owner: str
) -> None:
    with pytest.raises(ContentProblem):
        await _claim(phase, annotations, owner)

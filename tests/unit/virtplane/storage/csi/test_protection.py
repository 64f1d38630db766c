"""Snapshots that claims were restored from are let go, whoever else writes to them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from kubecore.client import Request
from kubecore.errors import StatusError
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api import storage_labels as names
from virtplane.storage.csi.parts import Environment
from virtplane.storage.csi.protection import let_snapshots_go


@pytest.mark.parametrize(("lost", "left"), [(2, []), (50, [names.RESTORING_PROTECTION])])
async def test_a_snapshot_that_somebody_else_writes_to_is_let_go_by_the_same_sweep(
    lost: int, left: list[str]
) -> None:
    api = MemoryApi([kinds.VOLUME_SNAPSHOTS])
    metadata = {"name": "s", "namespace": "ns", "finalizers": [names.RESTORING_PROTECTION]}
    api.put(kinds.VOLUME_SNAPSHOTS, {"metadata": metadata, "spec": {"source": {}}})
    races = [StatusError(409, "Conflict", "it has changed") for _ in range(lost)]

    def lose(request: Request) -> StatusError | None:
        return races.pop() if request.method == "PATCH" and races else None

    api.reactions.append(lose)
    async with api.client() as client:
        await let_snapshots_go(cast(Environment, SimpleNamespace(client=client)))
    snapshot = api.get(kinds.VOLUME_SNAPSHOTS, "s", "ns") or {}
    assert snapshot["metadata"].get("finalizers", []) == left

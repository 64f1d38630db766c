"""Deletions of DataVolumes that are held up: cdi-deployment says why, and gives up what is removed later."""

from __future__ import annotations

import pytest
from tests.support.cdi_controllers import PROGRAMS, NoProgress, TestIssuer
from tests.support.cdi_memory import MemoryCluster
from tests.support.cdi_rights import controllers_api
from tests.support.managers import working
from tests.support.waiting import until

from kubecore.client import Request
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects import times
from kubecore.runtime import Manager
from virtplane.api import cdi_labels
from virtplane.api import resources as kinds
from virtplane.cluster.deadlines import GIVEN_UP
from virtplane.deletions.waits import WAITING, later
from virtplane.storage.cdi.controller.assembly import add_data_volume_controllers
from virtplane.storage.cdi.controller.component import tell_of_deletions
from virtplane.storage.cdi.controller.settings import Settings

_REFUSAL = "the server is closed for the weekend"


def _refuse(request: Request) -> StatusError | None:
    if request.method == "DELETE" and "/volumeclonesources/" in request.path:
        return StatusError(500, "InternalError", _REFUSAL)
    return None


@pytest.mark.feature("NEW-15")
async def test_a_data_volume_is_not_held_for_ever_by_what_cannot_be_removed() -> None:
    cluster = MemoryCluster()
    cluster.settings()
    cluster.api.reactions.append(_refuse)
    since = later(times.now_rfc3339(), -60)
    document: JsonObject = {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {
            "name": "dv",
            "namespace": "ns",
            "uid": "uid-dv",
            "deletionTimestamp": since,
            "finalizers": [cdi_labels.DATA_VOLUME_FINALIZER],
        },
        "spec": {"source": {"pvc": {"name": "src", "namespace": "images"}}},
    }
    marks = {cdi_labels.OWNED_BY_DATA_VOLUME: "ns/dv"}
    of = {"name": "volume-clone-source-uid-dv", "namespace": "images", "annotations": marks}
    cluster.api.put(kinds.VOLUME_CLONE_SOURCES, {"metadata": of, "spec": {}})
    cluster.api.put(kinds.DATA_VOLUMES, document)
    async with controllers_api(cluster.api).client() as client:
        manager = Manager(client)
        settings = Settings(manager, PROGRAMS)
        add_data_volume_controllers(client, manager, settings, TestIssuer(), "cdi", NoProgress())
        tell_of_deletions(client, manager)
        async with working(manager):
            told = (await cluster.event(WAITING))["message"]
            assert f"cdi-deployment tries again and again: {_REFUSAL}" in told
            assert f"it waits until {later(since, 600)} at the latest" in told
            assert cluster.api.get(kinds.DATA_VOLUMES, "dv", "ns") is not None
            overdue = cluster.api.get(kinds.DATA_VOLUMES, "dv", "ns") or {}
            old = {**overdue["metadata"], "deletionTimestamp": later(since, -600)}
            cluster.api.put(kinds.DATA_VOLUMES, {**overdue, "metadata": old})
            await cluster.gone(kinds.DATA_VOLUMES, "dv")
            given_up = (await cluster.event(GIVEN_UP))["message"]
            assert given_up.startswith(
                "Deleted without removing VolumeCloneSource volume-clone-source-uid-dv"
            )
            cluster.api.reactions.clear()
            await until(lambda: not cluster.api.list(kinds.VOLUME_CLONE_SOURCES), 60)
    await cluster.client.close()

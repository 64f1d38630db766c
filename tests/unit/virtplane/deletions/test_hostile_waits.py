"""Tenants keep as many objects waiting as they like: it costs others little, and tells nothing of them."""

from __future__ import annotations

import asyncio

import pytest

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.objects import times
from kubecore.runtime import EventRecorder, Informer
from kubecore.testing import MemoryApi
from virtplane.api import storage_labels
from virtplane.deletions import reporter
from virtplane.deletions.explaining import wait_of
from virtplane.deletions.reading import Situation
from virtplane.deletions.reporter import DeletionReporter, Watched
from virtplane.deletions.waits import Wait

pytestmark = pytest.mark.feature("NEW-15")

_CLAIMS = resources.PERSISTENT_VOLUME_CLAIMS


def _source(api: MemoryApi) -> JsonObject:
    metadata: JsonObject = {"name": "data", "namespace": "ns", "uid": "uid-data"}
    metadata |= {
        "deletionTimestamp": "2026-11-27T12:00:00Z",
        "finalizers": [storage_labels.CLONING_PROTECTION],
    }
    return api.put(_CLAIMS, {"metadata": metadata})


def _copy(api: MemoryApi, namespace: str) -> None:
    source = {"kind": "PersistentVolumeClaim", "name": "data", "namespace": "ns"}
    api.put(
        _CLAIMS, {"metadata": {"name": "secret", "namespace": namespace}, "spec": {"dataSourceRef": source}}
    )


@pytest.mark.looptime
async def test_looking_at_many_objects_leaves_four_fifths_of_the_time_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def slow(_: Situation) -> Wait:
        await asyncio.sleep(2)
        return Wait("it waits")

    monkeypatch.setattr(reporter, "wait_of", slow)
    api = MemoryApi()
    _source(api)
    async with api.client() as client:
        informer: Informer[JsonObject] = Informer(client, _CLAIMS)
        deletions = DeletionReporter(
            "test", client, EventRecorder(client, "test"), [Watched(_CLAIMS, informer, ())]
        )
        filling = asyncio.create_task(informer.run())
        await informer.wait_synced()
        begun = asyncio.get_running_loop().time()
        await deletions.reconcile(("persistentvolumeclaims/ns", "data"))
        assert asyncio.get_running_loop().time() - begun == pytest.approx(10)
        filling.cancel()


@pytest.mark.parametrize(("namespace", "told"), [("ns", "ns/secret"), ("other", "")])
async def test_events_name_no_claim_of_another_namespace(namespace: str, told: str) -> None:
    api = MemoryApi()
    claim = _source(api)
    _copy(api, namespace)
    async with api.client() as client:
        situation = Situation(client, _CLAIMS, claim, times.now(), is_reporting=True)
        wait = await wait_of(situation)
    assert ("secret" in wait.message()) is bool(told)
    assert told in wait.why

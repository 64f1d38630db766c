"""DataSources: what they lead to, and what their condition says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.cdi_rights import for_controllers
from tests.support.managers import working

from kubecore.json import JsonObject
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from kubecore.runtime import Manager
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.storage.cdi.controller.datasources.reconciler import DataSourceController

pytestmark = pytest.mark.feature("VMC-07")
NAMESPACE = "golden"


@asynccontextmanager
async def cluster() -> AsyncIterator[MemoryApi]:
    api = MemoryApi(
        [kinds.DATA_SOURCES, kinds.DATA_VOLUMES, kinds.VOLUME_SNAPSHOTS], whole=[kinds.DATA_SOURCES]
    )
    with for_controllers(api) as restricted:
        async with restricted.client() as client:
            manager = Manager(client)
            DataSourceController(client, manager)
            async with working(manager):
                yield api


def put(api: MemoryApi, kind: Any, name: str, labels: dict[str, str] | None = None, **members: Any) -> None:
    metadata: JsonObject = {"name": name, "namespace": NAMESPACE, "labels": labels or {}}
    api.put(kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **members})


def source(api: MemoryApi, name: str, labels: dict[str, str] | None = None, **content: Any) -> None:
    named = {kind: {"namespace": NAMESPACE, **reference} for kind, reference in content.items()}
    put(api, kinds.DATA_SOURCES, name, labels, spec={"source": named})


async def until(api: MemoryApi, name: str, reason: str) -> JsonObject:
    """The DataSource once its condition has the reason."""
    async with asyncio.timeout(10):
        while True:
            found = api.get(kinds.DATA_SOURCES, name, NAMESPACE) or {}
            conditions = found.get("status", {}).get("conditions", [{}])
            if conditions[0].get("reason", "") == reason and conditions[0]:
                return found
            await asyncio.sleep(0)


async def test_a_claim_is_ready_as_soon_as_it_is_there() -> None:
    async with cluster() as api:
        source(api, "ds", pvc={"name": "disk"})
        found = await until(api, "ds", "NotFound")
        assert found["status"]["source"] == {}
        assert found["status"]["conditions"][0]["message"] == "PVC not found"
        put(api, PERSISTENT_VOLUME_CLAIMS, "disk")
        found = await until(api, "ds", "Ready")
        assert found["status"]["source"] == {"pvc": {"name": "disk", "namespace": NAMESPACE}}
        assert found["status"]["conditions"][0]["message"] == "DataSource is ready to be consumed"


async def test_other_content_is_a_transition_though_it_is_as_ready() -> None:
    async with cluster() as api:
        for name in ("disk", "other"):
            put(api, PERSISTENT_VOLUME_CLAIMS, name)
        source(api, "ds", pvc={"name": "disk"})
        found = await until(api, "ds", "Ready")
        long_ago = "2001-02-03T04:05:06Z"
        found["status"]["conditions"][0]["lastTransitionTime"] = long_ago
        found["spec"]["source"]["pvc"]["name"] = "other"
        api.put(kinds.DATA_SOURCES, found)
        async with asyncio.timeout(10):
            while found["status"]["source"]["pvc"]["name"] != "other":
                await asyncio.sleep(0)
                found = await until(api, "ds", "Ready")
        assert found["status"]["conditions"][0]["lastTransitionTime"] > long_ago


async def test_a_claim_of_a_data_volume_waits_for_it() -> None:
    async with cluster() as api:
        put(api, PERSISTENT_VOLUME_CLAIMS, "disk")
        put(api, kinds.DATA_VOLUMES, "disk", spec={}, status={"phase": "ImportInProgress"})
        source(api, "ds", pvc={"name": "disk"})
        found = await until(api, "ds", "ImportInProgress")
        message = found["status"]["conditions"][0]["message"]
        assert message == "Import DataVolume phase ImportInProgress"
        put(api, kinds.DATA_VOLUMES, "disk", spec={}, status={"phase": "Succeeded"})
        await until(api, "ds", "Ready")


async def test_a_snapshot_must_be_ready() -> None:
    async with cluster() as api:
        source(api, "ds", snapshot={"name": "disk"})
        assert (await until(api, "ds", "NotFound"))["status"]["conditions"][0]["message"] == (
            "Snapshot not found"
        )
        put(api, kinds.VOLUME_SNAPSHOTS, "disk", spec={"source": {}})
        found = await until(api, "ds", "SnapshotNotReady")
        assert found["status"]["conditions"][0]["message"] == "Snapshot phase is not ready"
        put(api, kinds.VOLUME_SNAPSHOTS, "disk", spec={"source": {}}, status={"readyToUse": True})
        await until(api, "ds", "Ready")


async def test_one_data_source_may_stand_for_another_but_no_further() -> None:
    async with cluster() as api:
        put(api, PERSISTENT_VOLUME_CLAIMS, "disk")
        source(api, "three", dataSource={"name": "two"})
        source(api, "two", dataSource={"name": "one"})
        await until(api, "two", "NotFound")
        source(api, "one", pvc={"name": "disk"})
        found = await until(api, "two", "Ready")
        assert found["status"]["source"] == {"pvc": {"name": "disk", "namespace": NAMESPACE}}
        found = await until(api, "three", "MaxReferenceDepthReached")
        message = found["status"]["conditions"][0]["message"]
        assert message == "DataSource reference chain exceeds maximum depth of 1"
        api.remove(PERSISTENT_VOLUME_CLAIMS, "disk", NAMESPACE)
        found = await until(api, "two", "NotFound")
        assert found["status"]["conditions"][0]["message"] == "PVC not found"


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ({"name": "ds"}, "SelfReference"),
        ({"name": "other", "namespace": "elsewhere"}, "CrossNamespaceReference"),
    ],
)
async def test_references_that_lead_nowhere_are_told(reference: JsonObject, reason: str) -> None:
    async with cluster() as api:
        source(api, "ds", dataSource=reference)
        await until(api, "ds", reason)


async def test_default_instance_types_come_with_the_content() -> None:
    kubevirt = "instancetype.kubevirt.io/default-preference"
    async with cluster() as api:
        cron = {"cdi.kubevirt.io/dataImportCron": "c", "cdi.kubevirt.io/dataImportCron.cleanup": "true"}
        put(api, PERSISTENT_VOLUME_CLAIMS, "disk", {kubevirt: "rhel", "other.example/y": "1", **cron})
        source(api, "ds", {kubevirt: "fedora", "other.example/x": "y"}, pvc={"name": "disk"})
        found = await until(api, "ds", "Ready")
        # Labels of CDI itself would make a user's DataSource go with a cron.
        assert found["metadata"]["labels"] == {kubevirt: "rhel", "other.example/x": "y"}


async def test_a_data_source_without_content_says_so() -> None:
    async with cluster() as api:
        source(api, "ds")
        found = await until(api, "ds", "NoSource")
        assert found["status"]["conditions"][0]["message"] == "No source PVC set"

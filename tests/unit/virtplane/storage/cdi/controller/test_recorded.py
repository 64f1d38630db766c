"""Recorded answers of CDI, played to the controllers of DataSources, DataImportCrons and ObjectTransfers."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from tests.support.apiserver import ADMIN_TOKEN
from tests.support.cdi import CdiCluster, cdi_cluster

from kubecore import resources as core
from kubecore.runtime import EventRecorder, Manager
from virtplane.api import cdi_names, volumesnapshot_crds
from virtplane.storage.cdi.controller.config.reconciler import ConfigController
from virtplane.storage.cdi.controller.crons.reconciler import CronController
from virtplane.storage.cdi.controller.datasources.reconciler import DataSourceController
from virtplane.storage.cdi.controller.profiles.reconciler import ProfileController
from virtplane.storage.cdi.controller.transfers.reconciler import TransferController

_REFERENCE = Path(os.environ.get("VIRTPLANE_REFERENCE", "/nowhere")) / "conformance"
_CASES = (
    "datasource/chain",
    "datasource/snapshot",
    "datasource/used-empty",
    "transfer/*",
    "cron/jobs",
    "cron/names",
    "cron/data-source-exists",
)
"""The others of these areas need the controllers of DataVolumes."""


async def _run(cluster: CdiCluster) -> None:
    async with cluster.server.client() as client, EventRecorder(client, "cdi-deployment") as recorder:
        manager = Manager(client)
        ConfigController(client, manager, cdi_names.NAMESPACE)
        ProfileController(client, manager)
        DataSourceController(client, manager)
        CronController(client, manager, recorder, namespace=cdi_names.NAMESPACE, image="importer:1")
        TransferController(client, manager)
        await manager.run()


@pytest.mark.skipif(
    not _REFERENCE.exists(), reason="VIRTPLANE_REFERENCE names no directory with recorded answers"
)
async def test_answers_are_those_of_cdi(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    async with cdi_cluster(tmp_path, controllers=True) as cluster:
        for definition in volumesnapshot_crds.custom_resource_definitions():
            await cluster.client.create(core.CUSTOM_RESOURCE_DEFINITIONS, definition)
        controllers = asyncio.create_task(_run(cluster))
        arguments = ["--cases", "cases-cdi", "--server", cluster.server.url, "--token", ADMIN_TOKEN]
        arguments += ["--insecure", "--jobs", "3", "--json", str(results)]
        for case in _CASES:
            arguments += ["--only", case]
        replay = await asyncio.create_subprocess_exec(
            sys.executable, str(_REFERENCE / "replay.py"), *arguments, cwd=_REFERENCE
        )
        try:
            async with asyncio.timeout(240):
                await replay.wait()
        finally:
            controllers.cancel()
            await asyncio.gather(controllers, return_exceptions=True)
    found = json.loads(results.read_text())
    assert found
    assert [each["name"] for each in found if each["failures"]] == []

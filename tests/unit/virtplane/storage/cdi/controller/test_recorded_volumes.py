"""What CDI's controllers wrote, as recorded: the same requests played to an API server with ours at work."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.apiserver import ADMIN_TOKEN
from tests.support.cdi import cdi_cluster
from tests.support.cdi_controllers import cdi_controllers
from tests.support.cdi_operator import SETTINGS
from tests.support.managers import working

from kubecore.client import Client
from kubecore.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CUSTOM_RESOURCE_DEFINITIONS
from kubecore.runtime import EventRecorder, Manager
from virtplane.api import cdi_names, resources, volumesnapshot_crds
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.operators.cdi.product import Parameters
from virtplane.operators.cdi.user_roles import user_roles
from virtplane.storage.cdi.controller.crons.reconciler import CronController
from virtplane.storage.cdi.controller.datasources.reconciler import DataSourceController

_REFERENCE = Path(os.environ.get("VIRTPLANE_REFERENCE", "/nowhere")) / "conformance"
_CASES = ("clone/*", "cron/*", "datasource/*", "import/*", "pod/*", "populator/*", "render/*")
_GATED = {
    "import/multi-stage",
    "pod/checkpoint-imageio",
    "pod/legacy-pvc-annotations",
    "pod/long-name",
    "pod/upload-archive-block",
}
"""Where the pod may be seen with its gate, before the controller has opened it (docs/decisions, 034)."""
_AUTHORITY = {"metadata": {"annotations": {"cdi.kubevirt.io/configAuthority": ""}}}


@asynccontextmanager
async def _others(client: Client) -> AsyncIterator[None]:
    """The controllers whose objects lead to DataVolumes."""
    async with EventRecorder(client, cdi_names.CONTROLLER) as recorder:
        manager = Manager(client)
        DataSourceController(client, manager)
        CronController(client, manager, recorder, namespace=cdi_names.NAMESPACE, image="importer:1")
        async with working(manager):
            yield


@pytest.mark.skipif(
    not _REFERENCE.exists(), reason="VIRTPLANE_REFERENCE names no directory with recorded answers"
)
@pytest.mark.timeout(300)
async def test_objects_are_those_of_cdi(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    async with cdi_cluster(tmp_path, controllers=True) as cluster:
        for definition in volumesnapshot_crds.custom_resource_definitions():
            await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        await cluster.client.patch(resources.CDIS, "cdi", _AUTHORITY, type="merge")
        for document in user_roles(Parameters(SETTINGS, CDI())):
            kind = {each.kind: each for each in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)}[document["kind"]]
            await cluster.client.create(kind, document)
        async with cluster.server.client() as client, cdi_controllers(client), _others(client):
            arguments = ["--cases", "cases-cdi", "--server", cluster.server.url, "--token", ADMIN_TOKEN]
            arguments += ["--insecure", "--jobs", "4", "--no-wait", "--json", str(results)]
            arguments += [word for case in _CASES for word in ("--only", case)]
            replay = await asyncio.create_subprocess_exec(
                sys.executable, str(_REFERENCE / "replay.py"), *arguments, cwd=_REFERENCE
            )
            async with asyncio.timeout(240):
                await replay.wait()
    found = json.loads(results.read_text())
    assert {each["name"] for each in found if each["failures"]} <= _GATED
    assert len(found) >= len(_CASES)

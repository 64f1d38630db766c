"""What CDI's controllers wrote, as recorded: the same requests played to an API server with ours at work."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from tests.support.apiserver import ADMIN_TOKEN
from tests.support.cdi import cdi_cluster
from tests.support.cdi_controllers import cdi_controllers

from kubecore.resources import CUSTOM_RESOURCE_DEFINITIONS
from virtplane.api import resources, volumesnapshot_crds

_REFERENCE = Path(os.environ.get("VIRTPLANE_REFERENCE", "/nowhere")) / "conformance"
_AREAS = ("clone", "import", "pod", "populator", "render")
_AUTHORITY = {"metadata": {"annotations": {"cdi.kubevirt.io/configAuthority": ""}}}


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
        async with cluster.server.client() as client, cdi_controllers(client):
            arguments = ["--cases", "cases-cdi", "--server", cluster.server.url, "--token", ADMIN_TOKEN]
            arguments += ["--insecure", "--jobs", "4", "--no-wait", "--json", str(results)]
            arguments += [word for area in _AREAS for word in ("--only", f"{area}/*")]
            replay = await asyncio.create_subprocess_exec(
                sys.executable, str(_REFERENCE / "replay.py"), *arguments, cwd=_REFERENCE
            )
            async with asyncio.timeout(240):
                await replay.wait()
    found = json.loads(results.read_text())
    assert {each["name"] for each in found if each["failures"]} == set()
    assert len(found) >= len(_AREAS)

"""cdi-operator and the components that it runs, against a real API server that checks their rights."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from tests.support.apiserver import ADMIN_TOKEN
from tests.support.cdi_installed import installed_cdi
from tests.support.waiting import until

from kubecore import errors
from kubecore import resources as core
from kubecore.client import Client
from kubecore.json import JsonObject, get_str
from kubecore.resources import ResourceType
from virtplane.api import resources

_REFERENCE = Path(os.environ.get("VIRTPLANE_REFERENCE", "/nowhere")) / "conformance"
_CASES = (
    "config/authority",
    "config/defaults",
    "config/upload-proxy-url",
    "rbac/*",
    "api/*",
    "upload/*",
    "admission/cdi-delete",
)
"""Other cases of config/ look at what controllers for DataVolumes make."""


async def _found(client: Client, resource: ResourceType, name: str) -> JsonObject | None:
    try:
        return await client.get(resource, name)
    except errors.StatusError as error:
        if errors.is_not_found(error):
            return None
        raise


async def _appears(client: Client, resource: ResourceType, name: str) -> JsonObject:
    found: JsonObject = await until(lambda: _found(client, resource, name), 60)
    return found


async def _gone(client: Client, resource: ResourceType, name: str) -> None:
    async def is_gone() -> bool:
        return await _found(client, resource, name) is None

    await until(is_gone, 60)


@pytest.mark.feature("INS-18", "INS-28")
async def test_cdi_is_installed_works_and_is_removed(tmp_path: Path) -> None:
    async with installed_cdi(tmp_path) as cdi:
        client = cdi.client
        volume = {
            "apiVersion": resources.DATA_VOLUMES.api_version,
            "kind": "DataVolume",
            "metadata": {"name": "d"},
            "spec": {"source": {}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}},
        }
        with pytest.raises(errors.StatusError, match="Missing Data volume source"):
            await client.create(resources.DATA_VOLUMES, volume, "default")
        request = {
            "apiVersion": resources.UPLOAD_TOKEN_REQUESTS.api_version,
            "kind": "UploadTokenRequest",
            "metadata": {"name": "t"},
            "spec": {"pvcName": "p"},
        }
        answer = await client.create(resources.UPLOAD_TOKEN_REQUESTS, request, "default")
        assert get_str(answer, "status", "token")
        config = await _appears(client, resources.CDI_CONFIGS, "config")
        assert config["spec"] == {"featureGates": ["HonorWaitForFirstConsumer"]}
        await client.delete(resources.CDIS, "cdi")
        await _gone(client, resources.CDIS, "cdi")
        for resource in (core.SERVICES, core.SECRETS, core.CONFIG_MAPS, core.ROLES):
            found = await client.list(resource, "cdi")
            left = {each["metadata"]["name"] for each in found["items"]} - {
                "kube-root-ca.crt",
                "cdi-operator",
            }
            assert left == set()
        await _gone(client, core.CUSTOM_RESOURCE_DEFINITIONS, "datavolumes.cdi.kubevirt.io")


@pytest.mark.skipif(
    not _REFERENCE.exists(), reason="VIRTPLANE_REFERENCE names no directory with recorded answers"
)
@pytest.mark.feature("INS-52", "INS-53", "INS-54", "INS-55")
async def test_answers_are_those_of_cdi(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    async with installed_cdi(tmp_path) as cdi:
        arguments = ["--cases", "cases-cdi", "--server", cdi.server.url, "--token", ADMIN_TOKEN]
        arguments += ["--insecure", "--jobs", "3", "--json", str(results)]
        for case in _CASES:
            arguments += ["--only", case]
        replay = await asyncio.create_subprocess_exec(
            sys.executable, str(_REFERENCE / "replay.py"), *arguments, cwd=_REFERENCE
        )
        try:
            async with asyncio.timeout(110):
                await replay.wait()
        finally:
            if replay.returncode is None:
                replay.kill()
    found = json.loads(results.read_text())
    failed = {each["name"]: each["failures"] for each in found if each["failures"]}
    assert failed == {}

"""Recorded answers of CDI's webhooks and of its upload API, played to an API server with ours."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from tests.support.apiserver import ADMIN_TOKEN
from tests.support.cdi import cdi_cluster

_REFERENCE = Path(os.environ.get("VIRTPLANE_REFERENCE", "/nowhere")) / "conformance"
_CASES = ("admission/*", "api/*", "clone/token", "upload/token")
_DIFFERENT = {
    # CDI's webhook panics, where ours says what is missing.
    "admission/import-source",
}


@pytest.mark.skipif(
    not _REFERENCE.exists(), reason="VIRTPLANE_REFERENCE names no directory with recorded answers"
)
async def test_answers_are_those_of_cdi(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    async with cdi_cluster(tmp_path, controllers=True) as cluster:
        arguments = ["--cases", "cases-cdi", "--server", cluster.server.url, "--token", ADMIN_TOKEN]
        arguments += ["--insecure", "--jobs", "4", "--json", str(results)]
        for case in _CASES:
            arguments += ["--only", case]
        replay = await asyncio.create_subprocess_exec(
            sys.executable, str(_REFERENCE / "replay.py"), *arguments, cwd=_REFERENCE
        )
        async with asyncio.timeout(120):
            await replay.wait()
    found = json.loads(results.read_text())
    failed = {each["name"] for each in found if each["failures"]}
    assert failed == _DIFFERENT

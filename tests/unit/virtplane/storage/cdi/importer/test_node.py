"""Images that the node has pulled, served by a container beside the importer."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.unit.virtplane.storage.cdi.importer.conftest import MIB, Volume

from virtplane.storage.cdi.importer.outcome import ImportFailed, Outcome
from virtplane.storage.cdi.importer.pipeline import Job
from virtplane.storage.cdi.importer.progress import Progress
from virtplane.storage.cdi.importer.settings import Paths, Settings, read_settings
from virtplane.storage.cdi.importer.sources.node import from_node, tell_done
from virtplane.storage.cdi.importer.target import find_target


def _job(folder: Path) -> Job:
    environment = {"IMPORTER_ENDPOINT": "http://localhost:8100/disk.img", "IMPORTER_IMAGE_SIZE": "1Mi"}
    paths = Paths(data=folder)
    settings = dataclasses.replace(read_settings(environment, paths), ready_file=str(folder / "ready"))
    return Job(settings, find_target(folder, paths.device, 1 << 20, 0.0), Progress("uid"))


@pytest.mark.feature("STO-37")
async def test_disk_that_the_container_serves_is_imported_with_the_labels_it_asks_for(
    volume: Volume, tmp_path: Path
) -> None:
    async def serve(request: web.Request) -> web.Response:
        assert request.match_info["name"] == "a disk"
        return web.Response(body=b"\x07" * MIB)

    application = web.Application()
    application.router.add_get("/{name}", serve)
    (tmp_path / "ready").write_text("a disk")
    (tmp_path / "environment").write_text("A=1\nINSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=debian\n")
    async with TestServer(application) as server:
        ended = await volume.run(
            "http",
            str(server.make_url("/disk.img")),
            IMPORTER_READY_FILE=str(tmp_path / "ready"),
            IMPORTER_PULL_METHOD="node",
        )
    assert ended.code == 0, ended.text
    assert ended.disk.read_bytes()[:MIB] == b"\x07" * MIB
    assert json.loads(ended.text)["labels"] == {"instancetype.kubevirt.io/default-preference": "debian"}


@pytest.mark.parametrize("name", ["../../etc/shadow", "a?b#c", "@host/x"])
async def test_name_of_the_disk_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    seen: list[Settings] = []

    async def fetch(job: Job) -> Outcome:
        seen.append(job.settings)
        return Outcome()

    (tmp_path / "ready").write_text(name)
    await from_node(_job(tmp_path), fetch)
    prefix, _, last = seen[0].endpoint.rpartition("/")
    assert prefix == "http://localhost:8100"
    assert not set(last) & set("/?#@")


@pytest.mark.parametrize("kind", ["missing", "link", "pipe"])
async def test_container_that_never_serves_is_told(tmp_path: Path, kind: str) -> None:
    async def fetch(_: Job) -> Outcome:
        raise AssertionError

    if kind == "link":
        (tmp_path / "ready").symlink_to("/etc/hostname")
    elif kind == "pipe":
        os.mkfifo(tmp_path / "ready")
    with pytest.raises(ImportFailed, match="Timeout waiting for file"):
        await from_node(_job(tmp_path), fetch, ready_seconds=0)


def test_done_follows_no_link(tmp_path: Path) -> None:
    tell_done(str(tmp_path / "done"))
    assert (tmp_path / "done").exists()
    (tmp_path / "link").symlink_to(tmp_path / "made")
    with pytest.raises(OSError, match="symbolic links"):
        tell_done(str(tmp_path / "link"))
    assert not (tmp_path / "made").exists()

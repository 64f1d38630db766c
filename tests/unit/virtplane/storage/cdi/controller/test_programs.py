"""The programs of worker containers where all of them are in one image."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from tests.support.cdi_claims import claim
from tests.support.waiting import until

from virtplane.image.product import PROGRAMS
from virtplane.storage.cdi.controller import programs
from virtplane.storage.cdi.controller.pods import importer
from virtplane.storage.cdi.controller.pods.importer import Import, importer_pod
from virtplane.storage.cdi.controller.pods.worker import Workers

_OWN = programs.own_programs("image:1")
_NODE_PULL = {
    "cdi.kubevirt.io/storage.import.source": "registry",
    "cdi.kubevirt.io/storage.import.endpoint": "docker://registry/disk:1",
    "cdi.kubevirt.io/storage.import.registryImportMethod": "node",
}
ROOT = Path(__file__).resolve().parents[6]


@pytest.mark.parametrize(
    "program",
    [
        programs.IMPORTER,
        programs.UPLOAD_SERVER,
        programs.CLONER,
        programs.POLLER,
        programs.SIZE_DETECTION,
    ],
)
def test_every_program_is_in_the_image_and_in_a_checkout(program: str) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts[program].partition(":")
    assert f"from {module} import {function}\n" in PROGRAMS[program]


def test_an_image_that_the_installation_names_is_its_own_program() -> None:
    named = {"IMPORTER_IMAGE": "importer:1", "UPLOAD_SERVER_IMAGE": "uploadserver:1"}
    found = programs.chosen_programs("image:1", named)
    assert (found.importer_image, found.cloner_image, found.upload_server_image) == (
        "importer:1",
        "image:1",
        "uploadserver:1",
    )
    assert set(found.commands) == {"cdi-clone-source"}
    assert programs.chosen_programs("image:1", {"IMPORTER_IMAGE": "image:1"}) == _OWN


@pytest.mark.feature("STO-37")
def test_image_that_the_node_pulled_is_served_without_a_program_of_its_own() -> None:
    workers = Workers("image:1", "image:1", "image:1", commands=dict(_OWN.commands))
    found = claim("dv", annotations=_NODE_PULL)
    spec = importer_pod(workers, found, Import(found, "0"))["spec"]
    (copy,), (own, server) = spec["initContainers"], spec["containers"]
    assert (copy["image"], own["command"]) == ("image:1", ["virt-cdi-importer"])
    assert (server["image"], server["command"][0]) == ("registry/disk:1", copy["command"][-1])


@asynccontextmanager
async def _served(tmp_path: Path, *names: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, Path]]:
    """The script at work on folders of `tmp_path` in place of those in a pod."""
    shared, disk = tmp_path / "shared", tmp_path / "disk"
    for folder in (shared, disk):
        folder.mkdir()
    for name in names:
        (disk / name).write_bytes(b"content")
    (shared / "busybox").symlink_to("/bin/busybox")
    binary, *arguments = _OWN.commands[importer.SERVER_CONTAINER]
    assert binary == f"{importer.SHARED_PATH}/busybox"
    arguments[-1] = (
        arguments[-1].replace(importer.SHARED_PATH, str(shared)).replace("/disk", str(disk))
    ).replace(importer.SERVER_PORT, "38100")
    process = await asyncio.create_subprocess_exec(
        shared / "busybox",
        *arguments,
        env={"KUBEVIRT_IO_TEST": "x", "PATH": "/nothing"},
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process, shared
    finally:
        # With the server that it started, which holds its errors open, too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def test_server_beside_the_importer_serves_the_one_file_until_it_is_done(tmp_path: Path) -> None:
    async with _served(tmp_path, "the disk.qcow2") as (process, shared):

        def is_ready() -> bool:
            assert process.returncode is None
            return (shared / "ready").exists()

        await until(is_ready)
        assert (shared / "ready").read_text() == "the disk.qcow2"
        assert "KUBEVIRT_IO_TEST=x\n" in (shared / "environment").read_text()
        async with aiohttp.ClientSession() as session:

            async def served() -> bytes:
                async with session.get("http://127.0.0.1:38100/the%20disk.qcow2") as answer:
                    return await answer.read()

            found = await until(
                served, not_yet=lambda error: isinstance(error, aiohttp.ClientConnectionError)
            )
            assert found == b"content"
        os.close(os.open(shared / "done", os.O_CREAT))
        assert await asyncio.wait_for(process.wait(), 20) == 0


@pytest.mark.parametrize("names", [(), ("a", "b")])
async def test_image_without_exactly_one_file_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    async with _served(tmp_path, *names) as (process, _):
        _, errors = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 1
        assert b"Invalid container image" in errors

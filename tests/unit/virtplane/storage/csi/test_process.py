"""The program: registration, liveness, drivers that come late, change or lack what is asked for."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest
from tests.support.fake_csi_driver import EVERYTHING, NAME, FakeDriver, serving
from tests.support.waiting import until

from kubecore.runtime import CannotRun
from kubecore.testing import MemoryApi
from kubecore.wire import load_interface, unix
from virtplane.storage.csi.driver import SocketDriver
from virtplane.storage.csi.liveness import serve_liveness
from virtplane.storage.csi.options import parse
from virtplane.storage.csi.process import Process, Surroundings
from virtplane.storage.csi.registrar import NotRegistered, Registrar

ABOUT = Surroundings(namespace="ns", pod="", node="", identity="me")


async def _registration(path: Path, method: str, values: dict[str, Any]) -> Any:
    interface = load_interface("pluginregistration-v1")
    async with unix.channel_to(str(path)) as channel:
        stub = interface.stub(channel, "Registration")
        request = interface.methods["Registration"][method].request(**values)
        return await stub[method](request, timeout=5)


async def test_the_kubelet_learns_of_the_driver(tmp_path: Path) -> None:
    left = tmp_path / f"{NAME}-reg.sock"
    with socket.socket(socket.AF_UNIX) as earlier:
        earlier.bind(str(left))
    registrar = Registrar(NAME, "/var/lib/kubelet/plugins/d/csi.sock", tmp_path)
    running = asyncio.create_task(registrar.run())
    try:
        info = await until(
            lambda: _registration(registrar.socket, "GetInfo", {}),
            not_yet=lambda error: isinstance(error, grpc.aio.AioRpcError),
        )
        assert (info.type, info.name) == ("CSIPlugin", NAME)
        assert info.endpoint == "/var/lib/kubelet/plugins/d/csi.sock"
        assert list(info.supported_versions) == ["1.0.0"]
        assert registrar.socket.stat().st_mode & 0o077 == 0
        await _registration(registrar.socket, "NotifyRegistrationStatus", {"plugin_registered": True})
        assert registrar.is_registered
        refused = {"plugin_registered": False, "error": "wrong version"}
        await _registration(registrar.socket, "NotifyRegistrationStatus", refused)
        with pytest.raises(NotRegistered, match="wrong version"):
            await asyncio.wait_for(running, 5)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert not registrar.socket.exists()


async def test_a_file_in_the_place_of_the_registration_socket_is_kept(tmp_path: Path) -> None:
    registrar = Registrar(NAME, "/csi.sock", tmp_path)
    registrar.socket.write_text("precious")
    with pytest.raises(FileExistsError, match="is no socket"):
        await registrar.run()
    assert registrar.socket.read_text() == "precious"


async def test_liveness_is_the_drivers_own_word(tmp_path: Path) -> None:
    driver = FakeDriver()
    path = tmp_path / "csi.sock"
    connection = SocketDriver(str(path))

    async def health(port: int) -> tuple[int, str]:
        url = f"http://127.0.0.1:{port}/healthz"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()

    try:
        async with serve_liveness(connection, "127.0.0.1", 0, 0.5) as port:
            status, text = await health(port)
            assert status == 500
            assert "rpc error: code = " in text

            async def healthy() -> bool:
                return await health(port) == (200, "ok")

            async with serving(driver, path):
                await until(healthy)
                driver.ready = False
                assert await health(port) == (500, "driver responded but is not ready")
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("driver", "argv", "text"),
    [
        (
            FakeDriver(controller=EVERYTHING - {"CREATE_DELETE_SNAPSHOT"}),
            ["snapshotter"],
            "ControllerCreateSnapshot",
        ),
        (FakeDriver(), ["provisioner", "--node-deployment"], "NODE_NAME"),
        (FakeDriver(), ["provisioner", "--enable-capacity"], "POD_NAME"),
        (
            FakeDriver(controller=EVERYTHING - {"GET_CAPACITY"}),
            ["provisioner", "--enable-capacity"],
            "the capability GET_CAPACITY",
        ),
    ],
)
async def test_a_part_that_cannot_work_says_why(
    tmp_path: Path, driver: FakeDriver, argv: list[str], text: str
) -> None:
    address = f"--csi-address={tmp_path}/csi.sock"
    async with serving(driver, tmp_path / "csi.sock"), MemoryApi().client() as client:
        process = Process(parse([*argv, address]), ABOUT, client)
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.timeout(20):
                await process.run()
        refusals = caught.value.subgroup(CannotRun)
        assert refusals is not None
        assert text in str(refusals.exceptions[0])


async def test_a_driver_may_come_late_and_restart_but_not_change(tmp_path: Path) -> None:
    path = tmp_path / "csi.sock"
    driver = FakeDriver()
    (tmp_path / "reg").mkdir()
    arguments = [
        "registrar",
        f"--csi-address={path}",
        "--kubelet-registration-path=/k/csi.sock",
        f"--plugin-registration-path={tmp_path}/reg",
    ]
    running = asyncio.create_task(Process(parse(arguments), ABOUT, None).run())
    registration = tmp_path / "reg" / f"{NAME}-reg.sock"

    async def until_it(check: Callable[[], bool]) -> None:
        await until(lambda: running.done() or check())
        if running.done():
            pytest.fail(f"the process has ended: {running.exception()!r}; asked was {driver.methods()}")

    try:
        await asyncio.sleep(0)
        async with serving(driver, path):
            await until_it(registration.exists)
        driver.calls.clear()
        async with serving(driver, path):
            await until_it(lambda: "ControllerGetCapabilities" in driver.methods())
        driver.controller = EVERYTHING - {"CLONE_VOLUME"}
        async with serving(driver, path):
            with pytest.raises(ExceptionGroup) as caught:
                await asyncio.wait_for(running, 30)
        assert caught.value.subgroup(CannotRun) is not None
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_the_command_explains_itself() -> None:
    command = [sys.executable, "-m", "virtplane.cli.main", "csi", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--node-deployment-immediate-binding" in done.stdout
    assert "provisioner, attacher, resizer, snapshotter, registrar, liveness" in " ".join(done.stdout.split())

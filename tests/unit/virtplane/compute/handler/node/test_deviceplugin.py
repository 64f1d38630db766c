"""Devices as resources of the node, registered with a kubelet that this test plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.waiting import until

from kubecore.wire import Interface, load_interface
from virtplane.compute.handler.node import deviceplugin
from virtplane.compute.handler.node.deviceplugin import Device, DevicePlugin

_OPTIONS = [("grpc.default_authority", "localhost")]


class Kubelet:
    """Takes registrations; `refusing` answers them with an error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.refusing = False
        self.registered: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self.refused: asyncio.Queue[str] = asyncio.Queue()
        self.wire: Interface = load_interface("deviceplugin-v1beta1")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self.wire.handler("Registration", {"Register": self._register}),))
        server.add_insecure_port(f"unix://{self.folder}/kubelet.sock")
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)
            (self.folder / "kubelet.sock").unlink(missing_ok=True)

    async def _register(self, request: Any, context: Any) -> Any:
        if self.refusing:
            self.refused.put_nowait(request.endpoint)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        self.registered.put_nowait({"endpoint": request.endpoint, "resource": request.resource_name})
        return self.wire.message("Empty")

    async def heard(self) -> dict[str, str]:
        return await asyncio.wait_for(self.registered.get(), 10)

    @asynccontextmanager
    async def plugin(self, endpoint: str) -> AsyncIterator[dict[str, Any]]:
        """The plugin's methods."""
        async with grpc.aio.insecure_channel(f"unix://{self.folder}/{endpoint}", _OPTIONS) as channel:
            yield self.wire.stub(channel, "DevicePlugin")


@pytest.fixture
def kubelet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubelet:
    monkeypatch.setattr(deviceplugin, "_CHECK_SECONDS", 0.02)
    monkeypatch.setattr(deviceplugin, "_BACK_OFF_SECONDS", (0.02,))
    return Kubelet(tmp_path)


@asynccontextmanager
async def serving(kubelet: Kubelet, path: Path) -> AsyncIterator[DevicePlugin]:
    async with running(DevicePlugin(Device("tun", str(path)), kubelet.folder)) as plugin:
        yield plugin


@asynccontextmanager
async def running(plugin: DevicePlugin) -> AsyncIterator[DevicePlugin]:
    task = asyncio.create_task(plugin.run())
    try:
        yield plugin
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_device_is_registered_offered_and_given(kubelet: Kubelet, tmp_path: Path) -> None:
    device = tmp_path / "tun"
    device.touch()
    async with kubelet.running(), serving(kubelet, device) as plugin:
        assert await kubelet.heard() == {
            "endpoint": "kubevirt-tun.sock",
            "resource": "devices.kubevirt.io/tun",
        }
        await asyncio.wait_for(plugin.ready.wait(), 5)
        async with kubelet.plugin("kubevirt-tun.sock") as methods:
            listed = methods["ListAndWatch"](kubelet.wire.message("Empty"))
            first = await asyncio.wait_for(listed.read(), 5)
            assert len(first.devices) == 1000
            assert {each.health for each in first.devices} == {"Healthy"}
            device.unlink()
            second = await asyncio.wait_for(listed.read(), 5)
            assert {each.health for each in second.devices} == {"Unhealthy"}
            listed.cancel()
            wish = {"container_requests": [{"devices_ids": ["tun7"]}]}
            given = await methods["Allocate"](kubelet.wire.message("AllocateRequest", wish))
            (container,) = given.container_responses
            (spec,) = container.devices
            assert (spec.host_path, spec.container_path, spec.permissions) == (
                str(device),
                str(device),
                "mrw",
            )


async def test_the_kubelet_is_told_when_the_node_is_to_take_fewer_guests(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    (tmp_path / "tun").touch()
    units = [3]
    plugin = DevicePlugin(Device("tun", str(tmp_path / "tun"), lambda: units[0]), kubelet.folder)
    async with kubelet.running(), running(plugin):
        await asyncio.wait_for(plugin.ready.wait(), 5)
        async with kubelet.plugin("kubevirt-tun.sock") as methods:
            listed = methods["ListAndWatch"](kubelet.wire.message("Empty"))
            assert len((await asyncio.wait_for(listed.read(), 5)).devices) == 3
            units[0] = 2
            assert len((await asyncio.wait_for(listed.read(), 5)).devices) == 2
            listed.cancel()


async def test_restarted_kubelet_is_told_again(kubelet: Kubelet, tmp_path: Path) -> None:
    async with serving(kubelet, tmp_path / "tun") as plugin:
        for _ in range(3):
            async with kubelet.running():
                await kubelet.heard()
                await asyncio.wait_for(plugin.ready.wait(), 5)


async def test_kubelet_that_empties_its_folder_is_told_again(kubelet: Kubelet, tmp_path: Path) -> None:
    async with kubelet.running(), serving(kubelet, tmp_path / "tun"):
        await kubelet.heard()
        (kubelet.folder / "kubevirt-tun.sock").unlink()
        await kubelet.heard()


async def test_a_folder_that_is_made_late_is_waited_for(
    kubelet: Kubelet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    kubelet.folder = tmp_path / "device-plugins"
    async with serving(kubelet, tmp_path / "tun") as plugin:
        await until(lambda: "could not register" in caplog.text)
        kubelet.folder.mkdir()
        async with kubelet.running():
            assert (await kubelet.heard())["endpoint"] == "kubevirt-tun.sock"
            await asyncio.wait_for(plugin.ready.wait(), 5)


async def test_kubelet_that_refuses_is_asked_until_it_agrees(kubelet: Kubelet, tmp_path: Path) -> None:
    kubelet.refusing = True
    async with kubelet.running(), serving(kubelet, tmp_path / "tun") as plugin:
        for _ in range(3):
            await asyncio.wait_for(kubelet.refused.get(), 10)
            assert not plugin.ready.is_set()
        kubelet.refusing = False
        await kubelet.heard()
        await asyncio.wait_for(plugin.ready.wait(), 5)

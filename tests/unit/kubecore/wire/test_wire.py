"""Message classes and stubs built from interface tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from kindling.node.devices.manager import DeviceManager
from kindling.node.volumes.content import ContentProblem
from kubecore.wire import load_interface, to_plain


@pytest.mark.parametrize(
    "name",
    [
        "cri-runtime-v1",
        "csi-v1",
        "containerd-events-v1",
        "deviceplugin-v1beta1",
        "pluginregistration-v1",
        "podresources-v1",
    ],
)
def test_every_table_makes_messages(name: str) -> None:
    interface = load_interface(name)
    assert all(cls().SerializeToString() == b"" for cls in interface.messages.values())


def test_messages_survive_the_wire_with_maps_lists_and_enums() -> None:
    cri = load_interface("cri-runtime-v1")
    values = {"config": {"labels": {"a": "b"}, "port_mappings": [{"container_port": 80, "protocol": 1}]}}
    message = cri.message("RunPodSandboxRequest", values)
    again = cri.messages["RunPodSandboxRequest"].FromString(message.SerializeToString())
    plain = to_plain(again)
    assert plain["config"]["labels"] == {"a": "b"}
    assert plain["config"]["port_mappings"][0]["container_port"] == 80
    assert plain["config"]["linux"] is None


def test_field_numbers_are_those_of_the_table() -> None:
    cri = load_interface("cri-runtime-v1")
    encoded = cri.message("ImageSpec", {"user_specified_image": "x"}).SerializeToString()
    assert encoded == b"\x92\x01\x01x"


async def test_a_device_plugin_registers_and_its_devices_are_handed_out_once(tmp_path: Path) -> None:
    interface = load_interface("deviceplugin-v1beta1")

    async def watch(_request: Any, context: Any) -> Any:
        devices = [{"ID": "d0", "health": "Healthy"}, {"ID": "d1", "health": "Unhealthy"}]
        await context.write(interface.message("ListAndWatchResponse", {"devices": devices}))
        await offered.wait()

    async def allocate(request: Any, _context: Any) -> Any:
        ids = list(request.container_requests[0].devices_ids)
        device = {"container_path": "/dev/x", "host_path": "/dev/x", "permissions": "mrw"}
        answer = {"envs": {"IDS": ",".join(ids)}, "devices": [device]}
        return interface.message("AllocateResponse", {"container_responses": [answer]})

    import asyncio

    offered, changed = asyncio.Event(), asyncio.Event()
    plugin = grpc.aio.server()
    handler = interface.handler("DevicePlugin", {"ListAndWatch": watch, "Allocate": allocate})
    plugin.add_generic_rpc_handlers((handler,))
    plugin.add_insecure_port(f"unix:{tmp_path}/x.sock")
    await plugin.start()
    manager = DeviceManager(tmp_path, changed.set)
    await manager.start()
    async with grpc.aio.insecure_channel(
        f"unix:{tmp_path}/kubelet.sock", options=(("grpc.default_authority", "localhost"),)
    ) as channel:
        register = interface.stub(channel, "Registration")["Register"]
        values = {"version": "v1beta1", "endpoint": "x.sock", "resource_name": "example.com/x"}
        await register(interface.message("RegisterRequest", values))
    await asyncio.wait_for(changed.wait(), 2)
    assert manager.capacity() == {"example.com/x": (2, 1)}
    container = {"name": "c", "resources": {"limits": {"example.com/x": "1"}}}
    grant = await manager.allocate({"metadata": {"uid": "u1"}}, container)
    assert grant.envs == {"IDS": "d0"}
    assert grant.devices[0]["host_path"] == "/dev/x"
    with pytest.raises(ContentProblem, match="Requested: 1, Available: 0"):
        await manager.allocate({"metadata": {"uid": "u2"}}, container)
    manager.release("u1")
    assert (await manager.allocate({"metadata": {"uid": "u2"}}, container)).envs == {"IDS": "d0"}
    await manager.close()
    offered.set()
    await plugin.stop(0)

"""CSI volumes against a driver over real sockets, with the kubelet's paths moved into a directory."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from kindling.node.pods import identity
from kindling.node.volumes.content import ContentProblem
from kindling.node.volumes.csi import CsiVolumes, capability, publish_path, staging_path
from kindling.node.volumes.csi_registry import CsiRegistry
from kubecore.errors import StatusError
from kubecore.wire import load_interface

POD: dict[str, Any] = {"metadata": {"name": "p", "namespace": "ns", "uid": "u1"}, "spec": {"containers": []}}
VOLUME: dict[str, Any] = {
    "metadata": {"name": "pv1"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "d.example.com", "volumeHandle": "h1", "volumeAttributes": {"a": "b"}},
    },
}


class Api:
    """Just enough of a client: nodes exist, everything else is made by the registry."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.told = asyncio.Event()

    async def get(self, resource: Any, name: str, *_: Any) -> dict[str, Any]:
        if resource.plural == "nodes":
            return {"metadata": {"name": name, "uid": "n1"}}
        raise StatusError(404, "NotFound", f"{resource.plural} {name} not found")

    async def create(self, _resource: Any, document: dict[str, Any]) -> dict[str, Any]:
        self.created.append(document)
        self.told.set()
        return document


async def serve_driver(stack: AsyncExitStack, directory: Path) -> list[tuple[str, Any]]:
    """A driver that stages; the list of its calls."""
    csi, registration = load_interface("csi-v1"), load_interface("pluginregistration-v1")
    calls: list[tuple[str, Any]] = []

    def answering(method: str, values: dict[str, Any]) -> Any:
        async def answer(request: Any, _context: Any) -> Any:
            calls.append((method, request))
            return csi.methods["Node"][method].response(**values)

        return answer

    node = {
        "NodeGetCapabilities": {"capabilities": [{"rpc": {"type": 1}}]},
        "NodeGetInfo": {"node_id": "node01"},
        "NodeStageVolume": {},
        "NodePublishVolume": {},
        "NodeUnpublishVolume": {},
        "NodeUnstageVolume": {},
    }

    async def info(_request: Any, _context: Any) -> Any:
        values = {"type": "CSIPlugin", "name": "d.example.com", "endpoint": f"{directory}/csi"}
        return registration.message("PluginInfo", values)

    async def notified(request: Any, _context: Any) -> Any:
        calls.append(("registered", request.plugin_registered))
        return registration.message("RegistrationStatusResponse")

    for socket, interface, service, methods in (
        ("csi", csi, "Node", {name: answering(name, values) for name, values in node.items()}),
        ("r/d.sock", registration, "Registration", {"GetInfo": info, "NotifyRegistrationStatus": notified}),
    ):
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((interface.handler(service, methods),))
        (directory / socket).parent.mkdir(exist_ok=True)
        server.add_insecure_port(f"unix:{directory}/{socket}")
        await server.start()
        stack.push_async_callback(server.stop, 0)
    return calls


async def test_a_registered_driver_stages_publishes_and_undoes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "ROOT", tmp_path / "k")
    api: Any = Api()
    async with AsyncExitStack() as stack:
        calls = await serve_driver(stack, tmp_path)
        registry = CsiRegistry(api, "node01", tmp_path / "r")
        volumes = CsiVolumes(api, registry, "node01")
        with pytest.raises(ContentProblem, match="not found in the list of registered CSI drivers"):
            await volumes.publish(POD, VOLUME, read_only=False)
        watching = asyncio.create_task(registry.run())
        await asyncio.wait_for(api.told.wait(), 2)
        assert api.created[0]["spec"]["drivers"] == [{"name": "d.example.com", "nodeID": "node01"}]
        assert ("registered", True) in calls

        prepared = await volumes.publish(POD, VOLUME, read_only=False)
        assert prepared.path == publish_path("u1", "pv1", block=False)
        assert prepared.path.parent.is_dir()
        by_name = dict(calls)
        staging = str(staging_path("d.example.com", "h1", "pv1", block=False))
        assert by_name["NodeStageVolume"].staging_target_path == staging
        assert by_name["NodePublishVolume"].target_path == str(prepared.path)
        assert dict(by_name["NodePublishVolume"].volume_context) == {"a": "b"}

        await volumes.unpublish("u1")
        assert [name for name, _ in calls][-2:] == ["NodeUnpublishVolume", "NodeUnstageVolume"]
        assert not prepared.path.parent.exists()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def test_capabilities_follow_modes() -> None:
    assert capability(VOLUME, frozenset(), block=False)["access_mode"] == {"mode": 1}
    assert capability(VOLUME, frozenset({5}), block=True) == {"block": {}, "access_mode": {"mode": 7}}
    many = {"spec": {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}}
    assert capability(many, frozenset(), block=False)["access_mode"] == {"mode": 5}

"""CSI drivers whose answers would harm the registration of others."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc.aio

from kindling.node.volumes.csi_registry import CsiRegistry
from kubecore.errors import StatusError
from kubecore.patch.mergepatch import apply_merge_patch
from kubecore.wire import load_interface


class Api:
    """A node that must not have some labels, and its CSINode."""

    def __init__(self) -> None:
        self.node: dict[str, Any] = {"metadata": {"name": "node01", "uid": "n1"}}
        self.drivers: list[dict[str, Any]] = []
        self.changed = asyncio.Condition()

    async def get(self, resource: Any, name: str, *_: Any) -> dict[str, Any]:
        if resource.plural == "nodes":
            return self.node
        if not self.drivers:
            raise StatusError(404, "NotFound", f"{resource.plural} {name} not found")
        return {"metadata": {"name": name}, "spec": {"drivers": self.drivers}}

    async def patch(self, resource: Any, _name: str, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        if resource.plural == "csinodes":
            return await self.create(resource, body)
        if any("node-restriction" in key for key in body["metadata"]["labels"]):
            raise StatusError(403, "Forbidden", "is not allowed to modify labels")
        self.node = apply_merge_patch(self.node, body)
        return self.node

    async def create(self, _resource: Any, document: dict[str, Any]) -> dict[str, Any]:
        async with self.changed:
            self.drivers = document["spec"]["drivers"]
            self.changed.notify_all()
        return document


async def serve(stack: AsyncExitStack, folder: Path, name: str, answer: dict[str, Any]) -> asyncio.Queue[str]:
    """A driver that says `answer` of its node; what the node thinks of it."""
    csi, registration = load_interface("csi-v1"), load_interface("pluginregistration-v1")
    problems: asyncio.Queue[str] = asyncio.Queue()

    async def info(_request: Any, _context: Any) -> Any:
        return registration.message("PluginInfo", {"type": "CSIPlugin", "name": name})

    async def notified(request: Any, _context: Any) -> Any:
        problems.put_nowait(request.error)
        return registration.message("RegistrationStatusResponse")

    async def capabilities(_request: Any, _context: Any) -> Any:
        return csi.methods["Node"]["NodeGetCapabilities"].response()

    async def node(_request: Any, _context: Any) -> Any:
        return csi.methods["Node"]["NodeGetInfo"].response(node_id="id", **answer)

    server = grpc.aio.server()
    for interface, service, methods in (
        (registration, "Registration", {"GetInfo": info, "NotifyRegistrationStatus": notified}),
        (csi, "Node", {"NodeGetCapabilities": capabilities, "NodeGetInfo": node}),
    ):
        server.add_generic_rpc_handlers((interface.handler(service, methods),))
    server.add_insecure_port(f"unix:{folder}/{name}.sock")
    await server.start()
    stack.push_async_callback(server.stop, 0)
    return problems


async def test_labels_and_limits_that_a_driver_must_not_have_cost_no_other_driver_its_own(
    tmp_path: Path,
) -> None:
    api: Any = Api()
    async with AsyncExitStack() as stack:
        forbidden = {"segments": {"node-restriction.kubernetes.io/x": "y"}}
        await serve(stack, tmp_path, "a", {"accessible_topology": forbidden, "max_volumes_per_node": 2**40})
        await serve(stack, tmp_path, "b", {"accessible_topology": {"segments": {"b/rack": "r1"}}})
        many = {"segments": {f"c/{number}": "x" for number in range(101)}}
        problems = await serve(stack, tmp_path, "c", {"accessible_topology": many})
        watching = asyncio.create_task(CsiRegistry(api, "node01", tmp_path).run())
        async with asyncio.timeout(20), api.changed:
            await api.changed.wait_for(lambda: len(api.drivers) == 2)
        assert [(each["name"], each.get("allocatable")) for each in api.drivers] == [
            ("a", {"count": 2**31 - 1}),
            ("b", None),
        ]
        assert api.node["metadata"]["labels"] == {"b/rack": "r1"}
        assert await asyncio.wait_for(problems.get(), 20) == "driver c has more than 100 topology keys"
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

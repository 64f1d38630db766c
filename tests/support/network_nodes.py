"""A node in a network namespace, with pods in others, the real CNI plugins, and an API in memory."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.namespaces import Namespace, setns

from kindling.node.networks import network_status
from kindling.node.networks.attachments import NetworkSettings, PodNetworks
from kindling.node.networks.claims import CLAIMS
from kindling.node.networks.definitions import DEFINITIONS
from kindling.node.networks.selection import NETWORKS
from kubecore.json import JsonObject
from kubecore.resources import PODS
from kubecore.testing import MemoryApi

PLUGINS = Path("/usr/lib/cni")


class Runtime:
    """A container runtime whose sandboxes are the namespaces of tests, by name."""

    async def sandbox_network(self, sandbox: str) -> JsonObject:
        inside = {"Sandbox": f"/run/netns/{sandbox}", "Mac": "9a:00:00:00:00:02"}
        address = {"IP": "10.64.1.2", "Gateway": "10.64.1.1"}
        return {
            "Interfaces": {"eth0": {**inside, "IPConfigs": [address]}},
            "Routes": [{"dst": "0.0.0.0/0"}],
        }


@dataclass
class TestNode:
    """A node, whose agent may be killed and started again."""

    __test__ = False

    namespace: Namespace
    directory: Path
    settings: dict[str, Any] = field(default_factory=dict)
    api: MemoryApi = field(default_factory=lambda: MemoryApi([DEFINITIONS, CLAIMS]))
    events: list[tuple[str, str, str]] = field(default_factory=list)

    def define(self, name: str, config: dict[str, Any] | str, namespace: str = "ns") -> None:
        """Create or change a NetworkAttachmentDefinition."""
        text = config if isinstance(config, str) else json.dumps(config)
        metadata = {"name": name, "namespace": namespace}
        document = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": DEFINITIONS.kind, "metadata": metadata}
        self.api.put(DEFINITIONS, {**document, "spec": {"config": text} if text else {}})

    def pod(self, name: str, networks: Any = None, namespace: str = "ns") -> dict[str, Any]:
        """Create a pod, or change what networks it asks for."""
        text = networks if isinstance(networks, str) else json.dumps(networks)
        found = self.api.get(PODS, name, namespace) or {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "annotations": {}},
            "spec": {},
        }
        if networks is not None:
            found["metadata"]["annotations"][NETWORKS] = text
        return self.api.put(PODS, found)

    def status(self, name: str) -> list[dict[str, Any]]:
        """What the status annotation says."""
        pod = self.api.get(PODS, name, "ns")
        assert pod is not None
        found: list[dict[str, Any]] = json.loads(pod["metadata"]["annotations"][network_status.ANNOTATION])
        return found

    def run(self, work: Callable[[PodNetworks], Awaitable[Any]]) -> Any:
        """Run what an agent does in the node; each call is another agent on the same records."""

        async def working() -> Any:
            def told(_pod: Any, kind: str, reason: str, message: str, _container: str) -> None:
                self.events.append((kind, reason, message))

            settings = NetworkSettings(
                records=self.directory / "records", files=self.directory / "files", **self.settings
            )
            runtime: Any = Runtime()
            async with self.api.client() as client:
                networks = PodNetworks(client, runtime, told, settings)
                networks.load()
                return await work(networks)

        def inside() -> Any:
            descriptor = os.open(f"/run/netns/{self.namespace.name}", os.O_RDONLY)
            try:
                setns(descriptor)
            finally:
                os.close(descriptor)
            return asyncio.run(working())

        # A network namespace is its thread's, and what the thread starts is in it.
        with ThreadPoolExecutor(1) as elsewhere:
            return elsewhere.submit(inside).result()

    def attach(self, pod: dict[str, Any], sandbox: Namespace, *, is_live: bool = False) -> None:
        """Attach a pod to what it asks for."""
        self.run(lambda networks: networks.attach(pod, sandbox.name, is_live=is_live))

    def detach(self, sandbox: Namespace) -> None:
        """Detach a pod that ends."""
        self.run(lambda networks: networks.detach(sandbox.name))

    def records(self) -> list[str]:
        """The files of attachments."""
        return sorted(path.name for path in (self.directory / "records").iterdir())


def links(of: Namespace) -> set[str]:
    """The names of the links in a namespace."""
    return {item["ifname"] for item in json.loads(of.run("ip", "-j", "link"))}


def addresses(of: Namespace, link: str) -> list[str]:
    """The IPv4 addresses of a link, with the length of the prefix."""
    found = json.loads(of.run("ip", "-j", "-4", "addr", "show", "dev", link))
    return [f"{item['local']}/{item['prefixlen']}" for one in found for item in one.get("addr_info", ())]

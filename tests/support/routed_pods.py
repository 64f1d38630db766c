"""A node with a few pods behind links of its own, for tests of what its rules let through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.dialling import Call, answered
from tests.support.namespaces import Namespace, connect, namespaces

GATEWAY = "10.64.1.1"


@dataclass
class RoutedPods:
    """The node, and its pods by name."""

    node: Namespace
    pods: dict[str, Namespace]

    @property
    def namespace(self) -> Path:
        """The node's network namespace."""
        return Path(f"/run/netns/{self.node.name}")

    def address(self, name: str) -> str:
        """A pod's address."""
        return f"10.64.1.{list(self.pods).index(name) + 2}"

    def reaches(self, caller: str, address: str, port: int) -> bool:
        """Whether a connection is answered at once."""
        call = Call(caller, address, port)
        return call in answered(self.pods | {"node": self.node}, [call], seconds=0.05)


@contextmanager
def routed_pods(names: Sequence[str]) -> Iterator[RoutedPods]:
    """The pods `names`, whose packets their node forwards."""
    with namespaces("node", *names) as (node, *pods):
        node.sysctl("net.ipv4.ip_forward", "1")
        made = RoutedPods(node, dict(zip(names, pods, strict=True)))
        for number, (name, pod) in enumerate(made.pods.items()):
            link, address = f"veth{number}", made.address(name)
            connect(node, link, pod, "eth0")
            node.run("ip", "addr", "add", f"{GATEWAY}/32", "dev", link)
            node.run("ip", "route", "add", f"{address}/32", "dev", link)
            pod.run("ip", "addr", "add", f"{address}/24", "dev", "eth0")
            node.sysctl(f"net.ipv4.conf.{link}.proxy_arp", "1")
            node.sysctl(f"net.ipv4.neigh.{link}.proxy_delay", "0")
            pod.run("ip", "route", "add", "default", "via", GATEWAY)
        yield made

"""The service proxy: loads services' nftables rules on the machine and the nodes, and feeds the resolver."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kindling.network import machine_rules, nftables, rules, services
from kindling.network.external import ExternalRanges
from kindling.network.resolver import Names, Resolver
from kubecore.client import Client, ClientConfig
from kubecore.json import JsonObject, get_int, get_list, get_str
from kubecore.resources import ENDPOINT_SLICES, PODS, SERVICES
from kubecore.runtime import Informer

_log = logging.getLogger(__name__)

_SETTLE_SECONDS = 0.05
"""Changes that come together are loaded together."""
_RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ProxyPlace:
    """A network namespace that services are reachable from: its file (None: the machine's own), and the name
    of the node it belongs to. `pod_gateway` is the node's address towards its pods, `reserved` are ports of
    the node's own servers."""

    node: str
    namespace: Path | None
    pod_cidr: str = ""
    pod_gateway: str = ""
    reserved: tuple[int, ...] = ()


class ServiceNetwork:
    """The services' proxy and resolver of one instance."""

    def __init__(
        self,
        config: ClientConfig,
        places: Sequence[ProxyPlace],
        *,
        table: str,
        subnet: str,
        external_ranges: Sequence[str] = (),
        dns_service: str,
        dns_address: str,
        upstream_servers: Sequence[str],
    ) -> None:
        self._config = config
        self._places = places
        self._table = f"{table}-services"
        self._machine_table = table
        self._subnet = subnet
        self._ranges = ExternalRanges.of(external_ranges, own=[subnet])
        self._external: Mapping[services.ExternalKey, str] = {}
        self._dns_service = dns_service
        self._resolver = Resolver(dns_address, upstream_servers)
        self._wake = asyncio.Event()
        self._loaded: dict[str, str] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        async with Client(self._config) as client:
            found = Informer(client, SERVICES)
            slices = Informer(client, ENDPOINT_SLICES)
            pods = Informer(client, PODS, transform=_slim_pod)
            for informer in (found, slices, pods):
                informer.add_handler(lambda *_event: self._wake.set())
            async with asyncio.TaskGroup() as group:
                for informer in (found, slices, pods):
                    group.create_task(informer.run(), name=f"proxy-{informer.resource.plural}")
                group.create_task(self._resolver.run(), name="resolver")
                for informer in (found, slices, pods):
                    await informer.wait_synced()
                while True:
                    self._wake.clear()
                    delay = await self._load(found.list(), slices.list(), pods.list())
                    try:
                        await asyncio.wait_for(self._wake.wait(), delay)
                    except TimeoutError:
                        _log.info("loading the service rules again after a failure")
                    await asyncio.sleep(_SETTLE_SECONDS)

    async def _load(
        self, found: list[JsonObject], slices: list[JsonObject], pods: list[JsonObject]
    ) -> float | None:
        """Load the rulesets that changed; returns the seconds until the next attempt, None if all
        succeeded.
        """
        # An address belongs to the first that claims it, so nothing can take the resolver's.
        ports = self._dns_ports() + services.service_ports(found, slices, self._ranges)
        self._external = services.assign_external(ports, self._external)
        hosts = services.host_ports(pods)
        self._resolver.names = Names.of(found, slices)
        failed = False
        for place in self._places:
            local = "" if bridged_packets_are_seen() else place.pod_cidr
            own = [item for item in hosts if item.node == place.node]
            where = rules.Place(self._subnet, local, place.pod_gateway, place.reserved)
            ruleset = rules.ruleset(self._table, where, ports, own, self._external)
            if place.namespace is None:
                ruleset += self._opening()
            if self._loaded.get(place.node) == ruleset:
                continue
            try:
                await nftables.load(ruleset, place.namespace)
            except nftables.RulesRefused as error:
                text = "loading the nftables rules of services in %s failed, trying again in %g s: %s"
                _log.error(text, place.node, _RETRY_SECONDS, error)
                failed = True
            else:
                self._loaded[place.node] = ruleset
        return _RETRY_SECONDS if failed else None

    def _opening(self) -> str:
        """The rules that open the resolver to the cluster; its port is known once it has started."""
        port = self._resolver.port
        return machine_rules.serve(self._machine_table, [("udp", port), ("tcp", port)] if port else [])

    def _dns_ports(self) -> list[services.ServicePort]:
        backend = services.Backend(self._resolver.address, self._resolver.port)
        return [
            services.ServicePort(
                name="kindling/dns:",
                protocol=protocol,
                addresses=(self._dns_service,),
                port=53,
                node_port=0,
                backends=(backend,) if self._resolver.port else (),
                sticky=False,
            )
            for protocol in ("udp", "tcp")
        ]


def bridged_packets_are_seen() -> bool:
    """Whether nftables sees packets between ports of a bridge (br_netfilter)."""
    return Path("/proc/sys/net/bridge/bridge-nf-call-iptables").exists()


def _slim_pod(pod: JsonObject) -> JsonObject:
    """The fields of a pod that host ports need; the cache keeps only these."""
    containers: list[dict[str, Any]] = [
        {"ports": ports}
        for container in get_list(pod, "spec", "containers")
        if (ports := [port for port in get_list(container, "ports") if get_int(port, "hostPort")])
    ]
    metadata = {key: pod["metadata"].get(key) for key in ("name", "namespace", "uid", "resourceVersion")}
    status = {"phase": get_str(pod, "status", "phase"), "podIP": get_str(pod, "status", "podIP")}
    spec = {
        "nodeName": get_str(pod, "spec", "nodeName"),
        "hostNetwork": bool(pod["spec"].get("hostNetwork")),
        "containers": containers,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}

"""The service proxy: loads services' nftables rules on the machine and the nodes, and feeds the resolver.

It also tells load balancers which nodes have endpoints (`health_checks`) and which serve at all
(`proxy_status`), and routes the addresses that services have from outside to the nodes (`external_routes`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kindling.network import flows, machine_rules, nftables, rules, services
from kindling.network.external import ExternalRanges
from kindling.network.external_routes import ExternalRoutes, RoutesRefused
from kindling.network.health_checks import HealthChecks
from kindling.network.proxy_status import ProxyStatus
from kindling.network.resolver import Names, Resolver
from kubecore.client import Client, ClientConfig
from kubecore.json import JsonObject, get_int, get_list, get_str
from kubecore.resources import ENDPOINT_SLICES, PODS, SERVICES
from kubecore.runtime import Informer

_log = logging.getLogger(__name__)

_SETTLE_SECONDS = 0.02
"""Changes that come together are loaded together."""
_RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ProxyPlace:
    """A network namespace that services are reachable from: its file (None: the machine's own), and the name
    of the node it belongs to. `address` is the node's, `pod_cidrs` are its pods' networks, IPv4 first,
    `pod_gateways` its addresses towards them, `reserved` are ports of the node's own servers.
    """

    name: str
    namespace: Path | None
    pod_cidrs: tuple[str, ...] = ()
    pod_gateways: tuple[str, ...] = ()
    reserved: tuple[int, ...] = ()
    address: str = ""

    @property
    def node(self) -> str:
        """The node's name; empty for the machine."""
        return self.name if self.namespace else ""


@dataclass(frozen=True, slots=True)
class _Family:
    """One of the cluster's address families: its place in lists of both, and its ports."""

    index: int
    name: str
    version: int
    subnet: str
    ports: services.ServicePorts

    def place(self, place: ProxyPlace) -> rules.Place:
        """Where the family's table is loaded."""
        cidr, gateway = "", ""
        if len(place.pod_cidrs) > self.index:
            cidr, gateway = place.pod_cidrs[self.index], place.pod_gateways[self.index]
        return rules.Place(self.subnet, place.node, cidr, gateway, place.reserved, self.name)


class ServiceNetwork:
    """The services' proxy and resolver of one instance."""

    def __init__(  # noqa: PLR0913 - an instance's network, by name
        self,
        config: ClientConfig,
        places: Sequence[ProxyPlace],
        *,
        table: str,
        subnets: Sequence[str],
        bridge: str,
        external_ranges: Sequence[str] = (),
        dns_service: str,
        dns_address: str,
        upstream_servers: Sequence[str],
    ) -> None:
        self._config = config
        self._places = places
        self._table = f"{table}-services"
        self._machine_table = table
        allowed = ExternalRanges.of(external_ranges, own=subnets)
        self._families = [
            _Family(index, name, version, subnet, services.ServicePorts(allowed, version))
            for index, (name, version, subnet) in enumerate(
                zip((rules.IPV4, rules.IPV6), (4, 6), subnets, strict=False)
            )
        ]
        self._external: Mapping[services.ExternalKey, str] = {}
        self._dns_service = dns_service
        self._resolver = Resolver(dns_address, upstream_servers)
        self._wake = asyncio.Event()
        self._keepers = {
            (place.name, family.name): nftables.Keeper(place.namespace)
            for place in places
            for family in self._families
        }
        self._led: dict[tuple[str, str], flows.Destinations] = {}
        """Where UDP is led, by place and family, as far as its stale flows are forgotten."""
        self._opened = ""
        self._routes = ExternalRoutes(bridge)
        nodes = {item.node: (item.namespace, item.address) for item in places if item.namespace}
        self._health = HealthChecks(nodes)
        self._status = ProxyStatus(
            {node: namespace for node, (namespace, _) in nodes.items()}, has_ipv6=len(subnets) > 1
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with Client(self._config) as client:
            await self.follow(client)

    async def follow(self, client: Client) -> None:
        """Work with the objects that `client` reads, until cancelled."""
        found = Informer(client, SERVICES)
        slices = Informer(client, ENDPOINT_SLICES)
        pods = Informer(client, PODS, transform=_slim_pod)
        for informer in (found, slices, pods):
            informer.add_handler(lambda *_event: self._wake.set())
        async with self._health, self._status, asyncio.TaskGroup() as group:
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
        """Load what changed; returns the seconds until the next attempt, None if all succeeded."""
        # In threads: services of thousands of ports take time, and questions to the resolver do not wait.
        ports = [await asyncio.to_thread(family.ports.of, found, slices) for family in self._families]
        # An address belongs to the first that claims it, so nothing can take the resolver's.
        ports[0] = self._dns_ports() + ports[0]
        self._external = services.assign_external([item for each in ports for item in each], self._external)
        self._resolver.names = await asyncio.to_thread(Names.of, found, slices)
        hosts = [services.host_ports(pods, family.version) for family in self._families]
        async with asyncio.TaskGroup() as group:
            done = [
                group.create_task(item)
                for item in (self._route(), self._health.serve(services.health_checks(found, slices)))
            ]
            done += [group.create_task(self._load_families(place, ports, hosts)) for place in self._places]
        await self._status.serve()
        return None if all(task.result() for task in done) else _RETRY_SECONDS

    async def _load_families(
        self,
        place: ProxyPlace,
        ports: Sequence[Sequence[services.ServicePort]],
        hosts: Sequence[Sequence[services.HostPort]],
    ) -> bool:
        """Load a place's tables, and note how it went."""
        work = (
            self._load_place(place, family, ports[family.index], hosts[family.index])
            for family in self._families
        )
        loaded = await asyncio.gather(*work)
        if place.node:
            self._status.note(place.node, is_loaded=all(loaded))
        return all(loaded)

    async def _load_place(
        self,
        place: ProxyPlace,
        family: _Family,
        ports: Sequence[services.ServicePort],
        hosts: Sequence[services.HostPort],
    ) -> bool:
        own = [item for item in hosts if item.node == place.node]
        where = family.place(place)
        wanted = await asyncio.to_thread(rules.table, self._table, where, ports, own, self._external)
        # The resolver has an IPv4 address alone.
        opening = "" if place.namespace or family.version != 4 else self._opening()
        try:
            keeper = self._keepers[place.name, family.name]
            await keeper.load(wanted, opening if opening != self._opened else "")
        except nftables.RulesRefused as error:
            text = "loading the nftables rules (%s) of services in %s failed, trying again in %g s: %s"
            _log.error(text, family.name, place.name, _RETRY_SECONDS, error)
            return False
        if opening:
            self._opened = opening
        return await self._forget_flows(place, family, flows.destinations(ports, own, self._external))

    async def _forget_flows(self, place: ProxyPlace, family: _Family, wanted: flows.Destinations) -> bool:
        """Have the flows that the loaded rules would lead elsewhere choose anew."""
        key = place.name, family.name
        try:
            await flows.forget(flows.stale(self._led.get(key), wanted), family.version, place.namespace)
        except flows.FlowsKept as error:
            text = (
                "UDP clients of services in %s may still go to pods that are gone, trying again in %g s: %s"
            )
            _log.error(text, place.name, _RETRY_SECONDS, error)
            return False
        self._led[key] = wanted
        return True

    async def _route(self) -> bool:
        try:
            await self._routes.keep({address for address, _, _ in self._external})
        except RoutesRefused as error:
            text = "routing external addresses of services failed, trying again in %g s: %s"
            _log.error(text, _RETRY_SECONDS, error)
            return False
        return True

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
            )
            for protocol in ("udp", "tcp")
        ]


def _slim_pod(pod: JsonObject) -> JsonObject:
    """The fields of a pod that host ports need; the cache keeps only these."""
    containers: list[dict[str, Any]] = [
        {"ports": ports}
        for container in get_list(pod, "spec", "containers")
        if (ports := [port for port in get_list(container, "ports") if get_int(port, "hostPort")])
    ]
    metadata = {key: pod["metadata"].get(key) for key in ("name", "namespace", "uid", "resourceVersion")}
    status = {"phase": get_str(pod, "status", "phase"), "podIPs": get_list(pod, "status", "podIPs")}
    spec = {
        "nodeName": get_str(pod, "spec", "nodeName"),
        "hostNetwork": bool(pod["spec"].get("hostNetwork")),
        "containers": containers,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}

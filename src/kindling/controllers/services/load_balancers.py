"""Addresses of services of type LoadBalancer, from the ranges that the administrator allows.

A service of both address families gets one of each; of the second only where there is a pool of it.

A service keeps its address until it is deleted or has another type; then the next may have it. Services of
another implementation (``loadBalancerClass``) are left alone, and so is a status that somebody else wrote.
The machine itself is the load balancer: the service proxy makes the address work (`kindling.network`).
"""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from kindling.controllers.environment import Environment
from kindling.network.external import ExternalRanges
from kindling.network.services import MAX_CLAIMS, balancer_addresses
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import SERVICES
from kubecore.runtime import DONE, Key, RequeueAfter, Result

NAME = "service-controller"
_VERSIONS = {"IPv4": 4, "IPv6": 6}
_ROUTES = Path("/proc/net/route")
RETRY_SECONDS = 60.0
"""While no address is free; one that is given back is taken at once."""


class NoAddress(Exception):
    """No address can be given; the text says why, and what to do."""


def is_ours(service: JsonObject) -> bool:
    """Whether the service is to have an address of this cluster's."""
    spec = get_object(service, "spec")
    return get_str(spec, "type") == "LoadBalancer" and not spec.get("loadBalancerClass")


def in_use(services: Iterable[JsonObject]) -> list[str]:
    """The addresses that load balancers gave these services, and those that they claim.

    Claims count up to what takes effect, so that no namespace can claim a whole range.
    """
    given: list[str] = []
    claimed: dict[str, list[str]] = {}
    for service in services:
        given += balancer_addresses(service)
        claimed.setdefault(meta.namespace(service), []).extend(get_list(service, "spec", "externalIPs"))
    return given + [address for claims in claimed.values() for address in claims[:MAX_CLAIMS]]


def choose(
    service: JsonObject, taken: Iterable[str], ranges: ExternalRanges, is_machines_own: Callable[[str], bool]
) -> list[str]:
    """The addresses for a service, by its families; one that it names itself is the only one.

    `is_machines_own` tells those that the machine uses. Raises NoAddress.
    """
    used = set(taken)
    wanted = get_str(service, "spec", "loadBalancerIP")
    if wanted:
        if not ranges.admits(wanted) or is_machines_own(wanted):
            raise NoAddress(f"spec.loadBalancerIP {wanted} is in no range for external addresses")
        if wanted in used:
            raise NoAddress(f"spec.loadBalancerIP {wanted} belongs to another service")
        return [wanted]
    first, *others = get_list(service, "spec", "ipFamilies") or ["IPv4"]
    with_pool = [family for family in others if any(ranges.pool(_VERSIONS[family]))]
    return [_free_address(_VERSIONS[family], used, ranges, is_machines_own) for family in (first, *with_pool)]


def _free_address(
    version: int, used: set[str], ranges: ExternalRanges, is_machines_own: Callable[[str], bool]
) -> str:
    is_empty = True
    for address in ranges.pool(version):
        is_empty = False
        if address not in used and not is_machines_own(address):
            return address
    if is_empty:
        raise NoAddress(
            f"the cluster has no pool of IPv{version} addresses; start it with an --external-range of "
            "65,536 at most"
        )
    raise NoAddress(
        "all addresses of the cluster's external ranges are in use; delete a service or add a range"
    )


def is_machines(address: str) -> bool:
    """Whether an address is this machine's, or that of a gateway it uses."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return address in gateways(_ROUTES.read_text())
        return True


def gateways(routes: str) -> set[str]:
    """The gateways in the text of ``/proc/net/route``: hexadecimal, in the machine's byte order."""
    found = [line.split()[2] for line in routes.splitlines()[1:]]
    return {socket.inet_ntoa(int(gateway, 16).to_bytes(4, sys.byteorder)) for gateway in found}


class LoadBalancers:
    """Keyed by service."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        self._ranges = environment.external
        self._recorder = environment.recorder(NAME)
        self._services = environment.manager.informer(SERVICES)
        self._given: dict[Key, tuple[str, list[str]]] = {}
        """Uid and addresses by service, from before they are written until the cache shows them."""
        self._waiting: set[Key] = set()
        self._controller = environment.controller(NAME, self.reconcile, workers=1)
        self._controller.watch(self._services)

    async def reconcile(self, key: Key) -> Result:
        """Give one service an address, or take it back."""
        service = self._services.get(*key)
        if service is None or meta.is_being_deleted(service) or not is_ours(service):
            self._given.pop(key, None)
            self._waiting.discard(key)
            if service is not None:
                await self._take_back(service)
            for waiting in self._waiting:
                self._controller.enqueue(waiting)
            return DONE
        if get_list(service, "status", "loadBalancer", "ingress"):
            self._given.pop(key, None)
            self._waiting.discard(key)
            return DONE
        uid, addresses = self._given.get(key, ("", []))
        if uid != meta.uid(service):
            try:
                addresses = self._choose(service, key)
            except NoAddress as problem:
                message = f"Error syncing load balancer: {problem}"
                self._recorder.event(service, "Warning", "SyncLoadBalancerFailed", message)
                self._waiting.add(key)
                return RequeueAfter(RETRY_SECONDS)
            self._given[key] = (meta.uid(service), addresses)
        await self._write(service, [{"ip": address} for address in addresses])
        self._waiting.discard(key)
        message = f"Ensured load balancer: {', '.join(addresses)}"
        self._recorder.event(service, "Normal", "EnsuredLoadBalancer", message)
        return DONE

    def _choose(self, service: JsonObject, key: Key) -> list[str]:
        taken = in_use(other for other in self._services.list() if meta.key(other) != key)
        taken += [address for other, (_, given) in self._given.items() if other != key for address in given]
        return choose(service, taken, self._ranges, is_machines)

    async def _take_back(self, service: JsonObject) -> None:
        """A service of another type has no load balancer any more."""
        is_other = get_str(service, "spec", "type") != "LoadBalancer"
        if is_other and get_list(service, "status", "loadBalancer", "ingress"):
            await self._write(service, None)

    async def _write(self, service: JsonObject, ingress: list[JsonObject] | None) -> None:
        # Of this very version: an address that somebody else wrote meanwhile stays.
        metadata = {"resourceVersion": service["metadata"]["resourceVersion"], "uid": meta.uid(service)}
        await self._client.patch(
            SERVICES,
            meta.name(service),
            {"metadata": metadata, "status": {"loadBalancer": {"ingress": ingress}}},
            meta.namespace(service),
            type="merge",
            subresource="status",
        )

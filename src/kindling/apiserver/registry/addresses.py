"""Service addresses and node ports of the cluster, handed out once each."""

from __future__ import annotations

import ipaddress
import secrets
from collections import Counter
from typing import Generic, TypeVar

from kubecore.json import JsonObject
from kubecore.objects import meta

_SHARE = 4
"""A namespace has at most this part of a range: who may write services in one could leave none to others."""
_SMALL_SHARE = 256
"""Of small ranges it may have so many, which may be all."""

_What = TypeVar("_What")


class AllocationError(Exception):
    """An address or port cannot be had; the text is what users see in the field error."""


class _Taken(Generic[_What]):
    """What is taken of ranges of so many, and by which namespaces; an empty one stands for nobody."""

    def __init__(self, what: str, size: int) -> None:
        self._what = what
        self._most = max(_SMALL_SHARE, size // _SHARE)
        self._owners: dict[_What, str] = {}
        self._counts: Counter[str] = Counter()

    def __contains__(self, each: _What) -> bool:
        return each in self._owners

    def check(self, namespace: str) -> None:
        """Raise AllocationError where a namespace has its share already."""
        if namespace and self._counts[namespace] >= self._most:
            text = (
                f"the services of namespace {namespace} have {self._most} {self._what}, which is their share"
            )
            raise AllocationError(text)

    def add(self, each: _What, namespace: str) -> None:
        """Take it."""
        self.discard(each)
        self._owners[each] = namespace
        self._counts[namespace] += 1

    def discard(self, each: _What) -> None:
        """Give it back; what is not taken is ignored."""
        namespace = self._owners.pop(each, None)
        if namespace is not None:
            self._counts[namespace] -= 1
            if not self._counts[namespace]:
                del self._counts[namespace]


class AddressPool:
    """Hands out the cluster's service addresses and node ports, each at most once.

    Allocation is synchronous and in memory; what stored objects use is reserved at start. A failed or
    dry-run request must give back what it took: use ``RequestContext.on_rollback``. `service_cidrs` are one
    range, or one of each family with a comma between them; the first one's family is the default. `ports` is
    an inclusive range.
    """

    def __init__(self, service_cidrs: str, ports: tuple[int, int] = (30000, 32767)) -> None:
        networks = [ipaddress.ip_network(text) for text in service_cidrs.split(",")]
        self._networks = {f"IPv{network.version}": network for network in networks}
        if len(self._networks) != len(networks):
            raise ValueError(f"service addresses {service_cidrs}: one range of each family is enough")
        self._ports = ports
        largest = max(network.num_addresses for network in networks)
        self._taken_ips: _Taken[str] = _Taken("addresses", largest)
        self._taken_ports: _Taken[int] = _Taken("node ports", ports[1] - ports[0] + 1)

    @property
    def families(self) -> tuple[str, ...]:
        """The families that services can have, the default one first."""
        return tuple(self._networks)

    @property
    def cidrs(self) -> list[str]:
        """The ranges, in the order of `families`."""
        return [str(network) for network in self._networks.values()]

    @property
    def first_address(self) -> str:
        """The address of the API server's own service."""
        return str(self._networks[self.families[0]].network_address + 1)

    def allocate_ip(self, family: str = "IPv4", namespace: str = "") -> str:
        """A free service address, for a service of that namespace. Raises AllocationError."""
        if family not in self._networks:
            raise AllocationError(f"the cluster has no service addresses of family {family}")
        self._taken_ips.check(namespace)
        network = self._networks[family]
        size = network.num_addresses
        # The lower part is left to addresses that users choose, as Kubernetes does.
        reserved = min(max(16, size // 16), 256)
        for low, high in ((reserved, size - 1), (1, reserved)):
            if high <= low:
                continue
            start = secrets.randbelow(high - low)
            for step in range(high - low):
                address = str(network.network_address + low + (start + step) % (high - low))
                if address not in self._taken_ips:
                    self._taken_ips.add(address, namespace)
                    return address
        raise AllocationError("range is full")

    def adopt(self, service: JsonObject) -> None:
        """Reserve the addresses of a stored service, even if they are outside the present range."""
        spec = service.get("spec") or {}
        for address in spec.get("clusterIPs") or [spec.get("clusterIP")]:
            if address and address != "None":
                self._taken_ips.add(_usual(address), meta.namespace(service))
        ports = [port.get("nodePort") for port in spec.get("ports") or ()]
        for port in (*ports, spec.get("healthCheckNodePort")):
            if port:
                self._taken_ports.add(port, meta.namespace(service))

    def reserve_ip(self, address: str, namespace: str = "") -> None:
        """Take this very address. Raises AllocationError in the words users see."""
        parsed = ipaddress.ip_address(address)
        network = self._networks.get(f"IPv{parsed.version}")
        if network is None:
            raise AllocationError(f"the cluster has no service addresses of family IPv{parsed.version}")
        if parsed not in network:
            raise AllocationError(f"the provided network does not match the current range: {network}")
        # Only IPv4 has a broadcast address.
        if parsed == network.network_address or (parsed.version == 4 and parsed == network.broadcast_address):
            raise AllocationError(f"the provided IP ({address}) is not in the valid range")
        if _usual(address) in self._taken_ips:
            raise AllocationError("provided IP is already allocated")
        self._taken_ips.check(namespace)
        self._taken_ips.add(_usual(address), namespace)

    def release_ip(self, address: str) -> None:
        """Give an address back; unknown ones are ignored."""
        self._taken_ips.discard(_usual(address))

    def allocate_port(self, namespace: str = "") -> int:
        """A free node port, for a service of that namespace. Raises AllocationError."""
        self._taken_ports.check(namespace)
        low, high = self._ports
        start = secrets.randbelow(high - low + 1)
        for step in range(high - low + 1):
            port = low + (start + step) % (high - low + 1)
            if port not in self._taken_ports:
                self._taken_ports.add(port, namespace)
                return port
        raise AllocationError("range is full")

    def reserve_port(self, port: int, namespace: str = "") -> None:
        """Take this very port. Raises AllocationError (``provided port is already allocated``)."""
        low, high = self._ports
        if not low <= port <= high:
            raise AllocationError(
                f"provided port is not in the valid range. The range of valid ports is {low}-{high}"
            )
        if port in self._taken_ports:
            raise AllocationError("provided port is already allocated")
        self._taken_ports.check(namespace)
        self._taken_ports.add(port, namespace)

    def release_port(self, port: int) -> None:
        """Give a port back; unknown ones are ignored."""
        self._taken_ports.discard(port)


def _usual(address: str) -> str:
    """An address as it is usually written: IPv6 has many ways to write one."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address

"""Service addresses and node ports of the cluster, handed out once each."""

from __future__ import annotations

import ipaddress
import secrets

from kubecore.json import JsonObject


class AllocationError(Exception):
    """An address or port cannot be had; the text is what users see in the field error."""


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
        self._taken_ips: set[str] = set()
        self._taken_ports: set[int] = set()

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

    def allocate_ip(self, family: str = "IPv4") -> str:
        """A free service address. Raises AllocationError."""
        if family not in self._networks:
            raise AllocationError(f"the cluster has no service addresses of family {family}")
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
                    self._taken_ips.add(address)
                    return address
        raise AllocationError("range is full")

    def adopt(self, service: JsonObject) -> None:
        """Reserve the addresses of a stored service, even if they are outside the present range."""
        spec = service.get("spec") or {}
        for address in spec.get("clusterIPs") or [spec.get("clusterIP")]:
            if address and address != "None":
                self.adopt_ip(address)
        ports = [port.get("nodePort") for port in spec.get("ports") or ()]
        self._taken_ports.update(port for port in (*ports, spec.get("healthCheckNodePort")) if port)

    def adopt_ip(self, address: str) -> None:
        """Take an address without asking whether it is free."""
        self._taken_ips.add(_usual(address))

    def reserve_ip(self, address: str) -> None:
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
        self._taken_ips.add(_usual(address))

    def release_ip(self, address: str) -> None:
        """Give an address back; unknown ones are ignored."""
        self._taken_ips.discard(_usual(address))

    def allocate_port(self) -> int:
        """A free node port. Raises AllocationError."""
        low, high = self._ports
        start = secrets.randbelow(high - low + 1)
        for step in range(high - low + 1):
            port = low + (start + step) % (high - low + 1)
            if port not in self._taken_ports:
                self._taken_ports.add(port)
                return port
        raise AllocationError("range is full")

    def reserve_port(self, port: int) -> None:
        """Take this very port. Raises AllocationError (``provided port is already allocated``)."""
        low, high = self._ports
        if not low <= port <= high:
            raise AllocationError(
                f"provided port is not in the valid range. The range of valid ports is {low}-{high}"
            )
        if port in self._taken_ports:
            raise AllocationError("provided port is already allocated")
        self._taken_ports.add(port)

    def release_port(self, port: int) -> None:
        """Give a port back; unknown ones are ignored."""
        self._taken_ports.discard(port)


def _usual(address: str) -> str:
    """An address as it is usually written: IPv6 has many ways to write one."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address

"""Which addresses a proxy may connect to for its clients (protection against SSRF).

Proxies connect to addresses that users, object statuses and guests name. They must not reach what only this
host can reach: loopback, link-local addresses, and services that listen on the host's own addresses.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass

from kubecore import errors

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NOT_ALLOWED = "address not allowed"
"""Kubernetes' words."""
_DISCARD_PORT = 9


def is_own(address: Address) -> bool:
    """Whether an address belongs to this host (to this network namespace)."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a UDP socket sends nothing; to a local address, the source is that same address.
            probe.connect((str(address), _DISCARD_PORT))
        except PermissionError:  # a broadcast address
            return True
        except OSError:  # there is no route to the address
            return False
        return ipaddress.ip_address(probe.getsockname()[0]) == address


@dataclass(frozen=True, slots=True)
class Destinations:
    """The rule for addresses. `allowed` are networks to which it does not apply."""

    allowed: tuple[Network, ...] = ()
    is_own: Callable[[Address], bool] = is_own

    def admits(self, address: Address) -> bool:
        """Whether a proxy may connect to the address."""
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
        if any(address in network for network in self.allowed):
            return True
        if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
            return False
        return not self.is_own(address)

    async def resolve(self, host: str) -> str:
        """The address to connect to for a name or address. Raises StatusError (400), OSError.

        Connect to the returned address and not to `host`: the next DNS answer may differ.
        """
        try:
            found = [ipaddress.ip_address(host)]
        except ValueError:
            entries = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found = [ipaddress.ip_address(entry[4][0]) for entry in entries]
        if not found or not all(self.admits(address) for address in found):
            raise errors.bad_request(_NOT_ALLOWED)
        return str(found[0])

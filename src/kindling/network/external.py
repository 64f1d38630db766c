"""The external addresses that services may use; pure.

Every user who may write a service can name any address in ``externalIPs``, in a load balancer's status or as
a host port's ``hostIP``. A rule for such an address redirects the traffic of all pods on the node, so the
address takes effect only inside the ranges that the administrator allows (CVE-2020-8554), and never inside
the cluster.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LARGEST_POOL = 65536


@dataclass(frozen=True, slots=True)
class ExternalRanges:
    """`allowed` are the administrator's ranges, `own` what nodes, pods and services use."""

    allowed: tuple[Network, ...] = ()
    own: tuple[Network, ...] = ()

    @classmethod
    def of(cls, allowed: Iterable[str], own: Iterable[str]) -> ExternalRanges:
        """From texts like ``192.0.2.0/24``. Raises ValueError."""
        return cls(
            tuple(ipaddress.ip_network(text) for text in allowed),
            tuple(ipaddress.ip_network(text) for text in own),
        )

    def admits(self, text: str) -> bool:
        """Whether rules may be loaded for an address: it is allowed, not in the cluster's ranges, and a
        unicast address.
        """
        address = parse(text)
        return (
            address is not None
            and is_remote(text)
            and any(address in network for network in self.allowed)
            and not any(address in network for network in self.own)
        )

    def pool(self, version: int = 4) -> Iterator[str]:
        """The addresses of IPv4 or IPv6 that load balancers get, in order.

        A network with more than 65,536 addresses is a permission and not a pool: whoever allows 0.0.0.0/0
        does not mean that the next service has an address of somebody else.
        """
        for network in self.allowed:
            if network.version == version and network.num_addresses <= _LARGEST_POOL:
                yield from filter(self.admits, map(str, network.hosts()))


def is_remote(text: str) -> bool:
    """Whether an address can be another host's: not loopback, link-local, multicast and such.

    Where nodes translate to 127.0.0.1, packets would get to their own servers.
    """
    address = parse(text)
    return address is not None and not (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
    )


def parse(text: str) -> Address | None:
    """`text` as an address of either family; None if it is not one. An IPv4 address in IPv6's clothes
    (``::ffff:127.0.0.1``) is none: on some paths it would be one of IPv4.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id):
        return None
    return address

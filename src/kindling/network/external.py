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

_SMALLEST_PREFIX = 16


@dataclass(frozen=True, slots=True)
class ExternalRanges:
    """`allowed` are the administrator's ranges, `own` what nodes, pods and services use. IPv4."""

    allowed: tuple[ipaddress.IPv4Network, ...] = ()
    own: tuple[ipaddress.IPv4Network, ...] = ()

    @classmethod
    def of(cls, allowed: Iterable[str], own: Iterable[str]) -> ExternalRanges:
        """From texts like ``192.0.2.0/24``. Raises ValueError."""
        return cls(
            tuple(ipaddress.IPv4Network(text) for text in allowed),
            tuple(ipaddress.IPv4Network(text) for text in own),
        )

    def admits(self, text: str) -> bool:
        """Whether rules may be loaded for an address: it is allowed, not in the cluster's ranges, and a
        unicast address.
        """
        address = ipv4(text)
        return (
            address is not None
            and is_remote(text)
            and any(address in network for network in self.allowed)
            and not any(address in network for network in self.own)
        )

    def pool(self) -> Iterator[str]:
        """The addresses that load balancers get, in order.

        A network with more than 65,536 addresses is a permission and not a pool: whoever allows 0.0.0.0/0
        does not mean that the next service has an address of somebody else.
        """
        for network in self.allowed:
            if network.prefixlen >= _SMALLEST_PREFIX:
                yield from filter(self.admits, map(str, network.hosts()))


def is_remote(text: str) -> bool:
    """Whether an address can be another host's: IPv4 that is not loopback, link-local, multicast and such.

    Where nodes translate to 127.0.0.1, packets would get to their own servers.
    """
    address = ipv4(text)
    return address is not None and not (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
    )


def ipv4(text: str) -> ipaddress.IPv4Address | None:
    """`text` as an IPv4 address; None if it is not one."""
    try:
        return ipaddress.IPv4Address(text)
    except ValueError:
        return None

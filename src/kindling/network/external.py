"""The external addresses that services may use; pure.

Anybody who may write a service can name any address in ``externalIPs``, in a load balancer's status or as a
host port's ``hostIP``. Whatever is loaded for such an address takes the traffic of everybody on the node, so
it counts only inside the ranges that the administrator allows (CVE-2020-8554), and never inside the cluster.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass


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
        """Whether an address takes effect: allowed, not the cluster's, and one that traffic can have."""
        address = ipv4(text)
        return (
            address is not None
            and is_remote(text)
            and any(address in network for network in self.allowed)
            and not any(address in network for network in self.own)
        )


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
    """The address that `text` is; None for anything else."""
    try:
        return ipaddress.IPv4Address(text)
    except ValueError:
        return None

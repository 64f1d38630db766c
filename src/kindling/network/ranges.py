"""Ranges of addresses and numbers: joined, and blocks without their exceptions; pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Range = tuple[int, int]
"""First and last."""


def address(text: str) -> Address | None:
    """`text` as an address of either family; None if it is not one. Zones of links are none."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return None if "%" in text else found


def network(text: str) -> Network | None:
    """`text` as a network of either family (host bits are dropped, as in policies); None if it is not one."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The same numbers in as few ranges as possible, in order."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def without(whole: Range, parts: Iterable[Range]) -> list[Range]:
    """The ranges of `whole` that are left when `parts` are taken out."""
    found, first = [], whole[0]
    for start, end in joined(parts):
        if start > whole[1] or end < first:
            continue
        if start > first:
            found.append((first, start - 1))
        first = end + 1
    if first <= whole[1]:
        found.append((first, whole[1]))
    return found


def of_network(item: Network) -> Range:
    """The first and the last address of a network, as numbers."""
    return int(item.network_address), int(item.broadcast_address)


def text(item: Range, version: int) -> str:
    """A range of addresses as nft writes it."""
    make = ipaddress.IPv4Address if version == 4 else ipaddress.IPv6Address
    first, last = item
    return str(make(first)) if first == last else f"{make(first)}-{make(last)}"

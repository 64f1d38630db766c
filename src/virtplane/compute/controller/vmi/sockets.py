"""Addresses of guests for sockets between them and their nodes (VSOCK): each is unique in the cluster."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance

FIRST, LAST = 3, 2**32 - 2
"""Those between are guests'; the kernel keeps the others: hypervisor, loopback, host and any."""


class CidsExhausted(Exception):
    """Every address is in use."""

    def __init__(self) -> None:
        super().__init__("CIDs exhausted")


def needs_cid(vmi: VirtualMachineInstance) -> bool:
    """Whether the guest has a VSOCK device and no address for it yet."""
    return vmi.spec.domain.devices.autoattach_vsock is True and vmi.status.vsockcid is None


def free_cid(
    vmis: Iterable[VirtualMachineInstance],
    choose: Callable[[int, int], int] = lambda first, last: first + secrets.randbelow(last - first + 1),
    last: int = LAST,
) -> int:
    """An address that no instance of the cluster has. Raises CidsExhausted.

    A random one, so that two instances get different ones although neither is seen in the other's cache yet.
    """
    used = {vmi.status.vsockcid for vmi in vmis}
    start, count = choose(FIRST, last), last - FIRST + 1
    for step in range(min(count, len(used) + 1)):
        cid = FIRST + (start - FIRST + step) % count
        if cid not in used:
            return cid
    raise CidsExhausted

"""The default route of a pod that names the network which has it (``default-route``)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from kindling.node.networks.problems import NetworkProblem
from kindling.node.programs import run_program

_SECONDS = 20.0


async def choose_default(
    namespace_path: str, interfaces: Iterable[str], gateways: Mapping[str, Sequence[str]]
) -> None:
    """Remove the default routes of `interfaces`, and make those through `gateways` (by interface).

    Raises NetworkProblem, OSError.
    """
    inside = ("nsenter", f"--net={namespace_path}", "ip")
    for interface in interfaces:
        for family in ("-4", "-6"):
            await _run(*inside, family, "route", "flush", "exact", "default", "dev", interface)
    for interface, addresses in gateways.items():
        for address in addresses:
            family = f"-{ipaddress.ip_address(address).version}"
            await _run(
                *inside, family, "route", "replace", "default", "via", address, "dev", interface, "onlink"
            )


async def _run(*command: str) -> None:
    code, _, problem = await run_program(*command, seconds=_SECONDS)
    if code != 0:
        raise NetworkProblem(f"error setting default gateway: {problem[:500]}")

"""Pods of one node reach each other through the node, not past it.

Frames between two ports of a bridge pass none of the hooks that see connections, where neither policies nor
the translation of services work. So the ports of pods are isolated from each other: each reaches the bridge
alone, and the node answers for the neighbours (RFC 3069's private VLANs; proxied neighbour discovery for
IPv6), forwards their packets and filters them. What a pod does to its end of the link changes nothing. Guests
with their pod's address and MAC are no different.
"""

from __future__ import annotations

from pathlib import Path

from kindling.network.pod_filter import BRIDGE, PodLink
from kubecore import programs

_SYSCTLS = Path("/proc/sys/net")
SETTINGS = (
    f"ipv4/conf/{BRIDGE}/proxy_arp_pvlan=1",
    f"ipv4/neigh/{BRIDGE}/proxy_delay=0",
    f"ipv6/conf/{BRIDGE}/proxy_ndp=1",
    f"ipv6/neigh/{BRIDGE}/proxy_delay=0",
)
_SHOWN = 500


class PortRefused(Exception):
    """A bridge's port could not be isolated; the text is that of the program or the kernel."""


async def isolate(link: PodLink) -> None:
    """Isolate the port of a pod's link, in this namespace; repeating it changes nothing.

    Raises PortRefused.
    """
    try:
        for setting in SETTINGS:
            name, _, value = setting.partition("=")
            path = _SYSCTLS / name
            # A machine may have no IPv6.
            if not name.startswith("ipv6/") or path.exists():
                path.write_text(value)
    except OSError as error:
        raise PortRefused(f"neighbours cannot be answered for on {BRIDGE}: {error}") from error
    # One program for all of it: each costs the pod's start some milliseconds.
    await _ip("".join(f"{command}\n" for command in commands(link)))


def commands(link: PodLink) -> list[str]:
    """The commands of ``ip`` that isolate a port. Neighbour discovery is answered for one address at a time.

    The answers stay when the pod is gone: the next pod with the address needs the same.
    """
    neighbours = [address for address in link.addresses if ":" in address]
    return [
        f"link set dev {link.name} type bridge_slave isolated on",
        *(f"neigh replace proxy {each} dev {BRIDGE}" for each in neighbours),
    ]


async def _ip(commands: str) -> None:
    try:
        ended = await programs.run(["ip", "-batch", "-"], commands.encode())
    except OSError as error:
        raise PortRefused(f"ip cannot be run: {error}") from error
    if ended.code != 0:
        raise PortRefused(
            f"ip refused {commands!r}: {ended.problem.decode(errors='replace').strip()[:_SHOWN]}"
        )

"""The firewall of the machine itself towards a cluster's network; pure.

Nodes are network namespaces of their own, so the servers of nodes and pods are not the machine's. On the
machine, pods need the API server and the resolver. They must not reach anything else that listens there, on
any address. Packets that node ports send on are not for the machine and pass.

Nodes are let in, since they pull images, maybe from a mirror or through a proxy on the machine. Pods cannot
pass for their node: links are filtered (`pod_filter`), and translated packets of pods leave a node with an
address of the pod network (`rules`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def guard(table: str, bridge: str, gateway: str, api_port: int, nodes: Sequence[str]) -> str:
    """The commands that restrict packets from `bridge` to the machine; loading them again changes nothing.

    `gateway` is the machine's IPv4 address there, `nodes` the networks that it shares with the nodes, of each
    family. Ports that are found later are added by `serve` and stay. Of IPv6, only the nodes get anything:
    the API server and the resolver have no address of it.
    """
    admitted = "".join(
        f"        {family} saddr {network} accept\n"
        for family, network in zip(("ip", "ip6"), nodes, strict=False)
    )
    return f"""{_served_set(table)}
add chain inet {table} input {{ type filter hook input priority -10; policy accept; }}
flush chain inet {table} input
table inet {table} {{
    chain input {{
        iifname != "{bridge}" accept
        ct state established,related accept
        icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} ip6 hoplimit 255 accept
{admitted}        ip daddr {gateway} tcp dport {api_port} accept
        ip daddr {gateway} meta l4proto . th dport @served accept
        icmp type echo-request accept
        icmpv6 type echo-request accept
        reject with icmpx type admin-prohibited
    }}
}}
"""


def serve(table: str, ports: Iterable[tuple[str, int]]) -> str:
    """The commands that open these (protocol, port) of the machine's address, and no others."""
    elements = ", ".join(f"{protocol} . {port}" for protocol, port in ports)
    opening = f"add element inet {table} served {{ {elements} }}\n" if elements else ""
    return f"{_served_set(table)}\nflush set inet {table} served\n{opening}"


def _served_set(table: str) -> str:
    return f"""add table inet {table}
add set inet {table} served {{ type inet_proto . inet_service; }}"""

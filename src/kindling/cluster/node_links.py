"""Links of nodes beside the one to the cluster, and what keeps secondary networks off the pod network.

``up --node-link NAME`` gives every node a link NAME, as if a second network card of each were plugged into
one switch. The switch is a bridge of the machine without an address, and the machine takes nothing from it:
what pods send there, unfiltered and with any address, reaches other nodes' links and nothing else.
"""

from __future__ import annotations

import re

from kindling.cluster import machine
from kindling.cluster.instance import Instance, NodeLayout
from kindling.cluster.node_network import NODE_LINK
from kindling.network import pod_filter

_LETTERS = "abcdefgh"
MAX_LINKS = len(_LETTERS)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,14}")
_TAKEN = (NODE_LINK, pod_filter.BRIDGE, "lo")
_GUARD = "kindling-networks"
"""The nftables table in a node that separates secondary networks from the pod network."""


def problem_of(name: str) -> str:
    """Why a node cannot have a link of this name; empty if it can (pure)."""
    if not _NAME.fullmatch(name):
        return f"{name!r} is not the name of a link: up to 15 letters, digits, and _ . -"
    return f"nodes have another link {name!r}" if name in _TAKEN else ""


def create(instance: Instance) -> None:
    """Create the switches unless they exist. Raises SetupError."""
    if not instance.node_links:
        return
    # First of all, so that the machine never answers there.
    machine.nft(closed(instance), what=f"closing the switches of {instance.bridge}")
    for position, name in enumerate(instance.node_links):
        switch = switch_name(instance, position)
        what = f"switch of the nodes' links {name}"
        if not machine.run(["ip", "-o", "link", "show", switch], what=what, check=False):
            _ip(what, f"link add {switch} mtu {instance.mtu} type bridge")
            machine.write_sysctl(f"net.ipv6.conf.{switch}.disable_ipv6", "1", required=False)
            _ip(what, f"link set {switch} up")


def connect(instance: Instance, node: NodeLayout) -> None:
    """Create the node's links unless they exist, and load its guard. Raises SetupError."""
    namespace = node.namespaces / "net"
    machine.nft(guard(instance.subnets), what=f"guard of {node.name}", namespace=namespace)
    inside = ["nsenter", f"--net={namespace}", "ip"]
    for position, name in enumerate(instance.node_links):
        what = f"link {name} of {node.name}"
        switch, port = switch_name(instance, position), port_name(instance, position, node)
        if machine.run(["ip", "-o", "link", "show", port], what=what, check=False):
            continue
        size = f"mtu {instance.mtu}"
        _ip(
            what,
            f"link add {port} {size} type veth peer name {name} netns {namespace} {size}",
            f"link set {port} master {switch} up",
        )
        # It carries what others send; the node itself has no address there unless somebody gives it one.
        machine.run([*inside, "link", "set", name, "addrgenmode", "none"], what=what)
        machine.run([*inside, "link", "set", name, "up"], what=what)


def disconnect(instance: Instance, node: NodeLayout) -> None:
    """Remove the links of a node that exist.

    The kernel removes them with the node's network namespace, but later: a node that is started at once would
    be taken for one that has them.
    """
    for position in range(len(instance.node_links)):
        port = port_name(instance, position, node)
        machine.run(["ip", "link", "del", port], what=f"removing {port}", check=False)


def destroy(instance: Instance) -> None:
    """Remove the links and switches that exist."""
    if not instance.node_links:
        return
    table = f"table bridge {instance.table}"
    for position in range(len(instance.node_links)):
        ports = [port_name(instance, position, node) for node in instance.nodes()]
        for link in [*ports, switch_name(instance, position)]:
            machine.run(["ip", "link", "del", link], what=f"removing {link}", check=False)
    machine.nft(f"add {table}\ndelete {table}\n", what="nftables", check=False)


def guard(subnets: tuple[str, ...]) -> str:
    """The rules in a node (pure): packets of secondary networks have no address of `subnets`, the cluster's,
    and start no connection to the pod network, other nodes and the machine.

    Port mappings lead to pods on secondary networks, and the answers get out. A node is a gateway of a
    secondary network for nothing but itself: if it masqueraded for pods, they would be the node for the
    machine, which lets nodes in where it keeps pods out.
    """
    pod_network = f'{{ "{NODE_LINK}", "{pod_filter.BRIDGE}" }}'
    known = f'{{ "lo", "{NODE_LINK}", "{pod_filter.BRIDGE}" }}'
    claims = (f"{'ip6' if ':' in subnet else 'ip'} saddr {subnet} drop" for subnet in subnets)
    claimed = "\n        ".join(claims)
    return f"""add table inet {_GUARD}
delete table inet {_GUARD}
table inet {_GUARD} {{
    chain prerouting {{
        type filter hook prerouting priority -300; policy accept;
        iifname {known} accept
        {claimed}
    }}
    chain forward {{
        type filter hook forward priority -20; policy accept;
        iifname {pod_network} accept
        ct state established,related accept
        oifname {pod_network} drop
    }}
}}
"""


def closed(instance: Instance) -> str:
    """The rules on the machine (pure): nothing that arrives at a switch is for the machine."""
    # The names of a switch's ports begin with its own.
    ports = ", ".join(f'"{switch_name(instance, index)}*"' for index in range(len(instance.node_links)))
    table = f"table bridge {instance.table}"
    return f"""add {table}
delete {table}
{table} {{
    chain input {{
        type filter hook input priority 0; policy accept;
        iifname {{ {ports} }} drop
    }}
}}
"""


def switch_name(instance: Instance, position: int) -> str:
    """The machine's bridge that joins the nodes' links at `position` of the instance's list."""
    return f"{instance.bridge}{_LETTERS[position]}"


def port_name(instance: Instance, position: int, node: NodeLayout) -> str:
    """The end of a node's link that is in the bridge."""
    return f"{switch_name(instance, position)}{node.index}"


def _ip(what: str, *commands: str) -> None:
    machine.run(["ip", "-batch", "-"], what=what, stdin="\n".join(commands) + "\n")

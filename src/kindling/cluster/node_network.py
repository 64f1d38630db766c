"""The instance's network on the machine: a bridge, a link and routes for each node, and masquerading."""

from __future__ import annotations

import ipaddress
import itertools

import orjson

from kindling.cluster import machine
from kindling.cluster.instance import Instance, NodeLayout
from kindling.network import machine_rules, pod_filter

NODE_LINK = "eth0"
"""The uplink's name inside a node."""
_MULTICAST = {"ip": "224.0.0.0/4", "ip6": "ff00::/8"}
_IPV6_OF_LINKS = (("disable_ipv6", "0"), ("accept_dad", "0"), ("accept_ra", "0"))
"""Links of nodes have the addresses that they are given: nobody else has them, and waiting for another's
objection would delay the first packets by a second."""


def create(instance: Instance) -> None:
    """Create the bridge and its rules unless they exist. Raises SetupError."""
    machine.write_sysctl("net.ipv4.ip_forward", "1")
    if not machine.run(["ip", "-o", "link", "show", instance.bridge], what="links", check=False):
        _ip(
            f"looking after {instance.bridge}",
            f"link add {instance.bridge} mtu {instance.mtu} type bridge",
            f"link set {instance.bridge} address {_mac(instance.gateway)}",
            f"addr add {instance.gateway}/24 dev {instance.bridge}",
            f"link set {instance.bridge} up",
        )
    if instance.has_ipv6:
        _create_ipv6(instance)
    # What no node has (services, pods of a node that is switched off) has no route of its own: what is sent
    # there would leave the machine by its default route, and strangers could answer.
    _ip(f"routes to {instance.bridge}", *_whole(instance))
    # Node ports answer on 127.0.0.1 as well; the service rules drop packets of other hosts to it.
    machine.write_sysctl(f"net.ipv4.conf.{instance.bridge}.route_localnet", "1")
    machine.nft(host_rules(instance), what=f"nftables table {instance.table}")
    guard = machine_rules.guard(
        instance.table, instance.bridge, instance.gateway, instance.api_port, instance.node_subnets
    )
    machine.nft(guard, what=f"guarding the machine against {instance.bridge}")


def _create_ipv6(instance: Instance) -> None:
    """Give the bridge its IPv6 address, and let the machine forward. May be repeated."""
    # A machine that forwards no longer listens to routers, and would lose the route that one announced.
    for uplink in machine.learned_ipv6_uplinks():
        machine.write_sysctl(f"net/ipv6/conf/{uplink}/accept_ra", "2")
    machine.write_sysctl("net.ipv6.conf.all.forwarding", "1")
    for name, value in _IPV6_OF_LINKS:
        machine.write_sysctl(f"net.ipv6.conf.{instance.bridge}.{name}", value)
    _ip(
        f"IPv6 of {instance.bridge}",
        f"addr replace {instance.gateways[1]}/64 dev {instance.bridge} nodad",
    )


def connect(instance: Instance, node: NodeLayout) -> None:
    """Create the node's link, addresses and routes unless they exist. Raises SetupError."""
    namespace = node.namespaces / "net"
    inside = ["nsenter", f"--net={namespace}"]
    what = f"network of {node.name}"
    if not machine.run(["ip", "-o", "link", "show", node.host_link], what=what, check=False):
        _ip(
            what,
            f"link add {node.host_link} mtu {instance.mtu} type veth peer name {NODE_LINK} netns {namespace} "
            f"mtu {instance.mtu}",
            f"link set {node.host_link} master {instance.bridge} up",
        )
        commands = (
            f"link set {NODE_LINK} address {_mac(node.address)}\naddr add {node.address}/24 dev {NODE_LINK}\n"
            f"link set {NODE_LINK} up\nroute replace default via {instance.gateway}\n"
        )
        machine.run([*inside, "ip", "-batch", "-"], what=what, stdin=commands)
    if instance.has_ipv6:
        _connect_ipv6(instance, node, inside)
    # Containers with hostNetwork must not spoof addresses of other nodes and their pods.
    link = pod_filter.PodLink(node.host_link, _mac(node.address), node.addresses, node.pod_cidrs)
    machine.nft(pod_filter.ruleset(link, instance.table), what=f"filter on {node.host_link}")
    for other in instance.nodes():
        if other.name != node.name:
            routes = "".join(f"{command}\n" for command in _routes(other))
            machine.run([*inside, "ip", "-batch", "-"], what=what, stdin=routes)
    _ip(what, *_routes(node))
    for name, value, required in (
        ("net.ipv4.ip_forward", "1", True),
        ("net.ipv4.conf.all.route_localnet", "1", True),
        # ARP requests carry the link's own address. The packet that waits may have the node's address towards
        # its pods, as calls of node ports do, and the filter on the node's link drops requests with that.
        ("net.ipv4.conf.all.arp_announce", "2", True),
        # All packets of pods are forwarded (`bridge_ports`): nothing that crosses the bridge is translated.
        ("net.bridge.bridge-nf-call-iptables", "0", False),
        ("net.bridge.bridge-nf-call-ip6tables", "0", False),
        # How long connections of services are remembered while nothing is sent: as long as kube-proxy has it.
        # The kernel's minute for half-closed ones is too short for their other half.
        ("net.netfilter.nf_conntrack_tcp_timeout_established", "86400", False),
        ("net.netfilter.nf_conntrack_tcp_timeout_close_wait", "3600", False),
    ):
        _set_inside(inside, name, value, required=required)


def _connect_ipv6(instance: Instance, node: NodeLayout, inside: list[str]) -> None:
    """Give the node its IPv6 address and route. May be repeated."""
    places = ("all", "default", NODE_LINK)
    for place, (name, value) in itertools.product(places, _IPV6_OF_LINKS):
        _set_inside(inside, f"net.ipv6.conf.{place}.{name}", value)
    _set_inside(inside, "net.ipv6.conf.all.forwarding", "1")
    commands = (
        f"addr replace {node.addresses[1]}/64 dev {NODE_LINK} nodad\n"
        f"route replace default via {instance.gateways[1]}\n"
    )
    machine.run([*inside, "ip", "-batch", "-"], what=f"IPv6 of {node.name}", stdin=commands)


def _whole(instance: Instance) -> list[str]:
    """The commands that lead what is sent to addresses of no node to the bridge, where nobody answers."""
    return [f"route replace {subnet} dev {instance.bridge}" for subnet in instance.subnets]


def _routes(node: NodeLayout) -> list[str]:
    """The commands that lead to the node's pods."""
    pairs = zip(node.pod_cidrs, node.addresses, strict=True)
    return [f"route replace {cidr} via {address}" for cidr, address in pairs]


def _set_inside(inside: list[str], name: str, value: str, *, required: bool = True) -> None:
    path = f"/proc/sys/{name.replace('.', '/')}"
    machine.run([*inside, "sh", "-c", f"echo {value} > {path}"], what=f"sysctl {name}", check=required)


def plug(instance: Instance, node: NodeLayout) -> None:
    """Cut the node's link if the node is isolated, as a broken cable does, or mend it. Raises SetupError."""
    state = "down" if node.name in instance.isolated_nodes else "up"
    _ip(f"link of {node.name}", f"link set {node.host_link} {state}")


def disconnect(instance: Instance, node: NodeLayout) -> None:
    """Remove the node's link, the filter on it and the routes of the machine and of other nodes to its pods,
    as far as there are any.
    """
    what = f"removing the network of {node.name}"
    chain = f"chain {pod_filter.FAMILY} {instance.table} {node.host_link}"
    machine.nft(f"flush {chain}\ndelete {chain}\n", what=what, check=False)
    machine.run(["ip", "link", "del", node.host_link], what=what, check=False)
    others = [["nsenter", f"--net={other.namespaces / 'net'}"] for other in instance.running_nodes()]
    for prefix in ([], *others):
        for cidr in node.pod_cidrs:
            machine.run([*prefix, "ip", "route", "del", cidr], what=what, check=False)


def destroy(instance: Instance) -> None:
    """Remove the links, the bridge and the rules that exist."""
    machine.nft(delete_rules(instance), what="nftables", check=False)
    for link in [node.host_link for node in instance.nodes()] + [instance.bridge]:
        machine.run(["ip", "link", "del", link], what=f"removing {link}", check=False)


def host_rules(instance: Instance) -> str:
    """The rules that masquerade packets leaving the instance's subnet, and allow the machine to forward its
    packets. Packets to groups stay on the nodes' link: machines that show bridged packets to their firewall
    would make themselves the sender.

    The whole table is replaced; the service proxy of the host uses another table.
    """
    return "".join(
        _host_table(f"table {family} {instance.table}", family, subnet)
        for family, subnet in zip(("ip", "ip6"), instance.subnets, strict=False)
    )


def _host_table(table: str, family: str, subnet: str) -> str:
    return f"""add {table}
delete {table}
{table} {{
    chain postrouting {{
        type nat hook postrouting priority 100; policy accept;
        {family} saddr {subnet} {family} daddr != {{ {subnet}, {_MULTICAST[family]} }} masquerade
    }}
    chain forward {{
        type filter hook forward priority 0; policy accept;
        {family} saddr {subnet} accept
        {family} daddr {subnet} accept
    }}
}}
"""


def delete_rules(instance: Instance) -> str:
    """Delete the instance's nftables tables from the host, if they exist."""
    name = instance.table
    tables = [f"{family} {each}" for family in ("ip", "ip6") for each in (name, f"{name}-services")]
    tables += [f"inet {name}", f"netdev {name}"]
    return "".join(f"add table {table}\ndelete table {table}\n" for table in tables)


def render_cni(node: NodeLayout, mtu: int) -> bytes:
    """The CNI configuration of pods on `node`. Masquerading and host ports are done by nftables rules, not by
    CNI plugins.
    """
    return orjson.dumps(
        {
            "cniVersion": "1.0.0",
            "name": "kindling",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": pod_filter.BRIDGE,
                    "isGateway": True,
                    "ipMasq": False,
                    "hairpinMode": True,
                    "mtu": mtu,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": "/run/cni-addresses",
                        "ranges": [[_pod_range(cidr)] for cidr in node.pod_cidrs],
                        "routes": [{"dst": dst} for dst in ("0.0.0.0/0", "::/0")[: len(node.pod_cidrs)]],
                    },
                }
            ],
        },
        option=orjson.OPT_INDENT_2,
    )


def _pod_range(cidr: str) -> dict[str, str]:
    """The addresses of pods in a node's network: of a /64 as many as of a /24, so that they come again, and
    what is kept for each does not grow without end.
    """
    network = ipaddress.ip_network(cidr)
    last = str(network.network_address + 254)
    return {"subnet": cidr} | ({"rangeEnd": last} if network.version == 6 else {})


def _mac(address: str) -> str:
    return "02:42:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def _ip(what: str, *commands: str) -> None:
    machine.run(["ip", "-batch", "-"], what=what, stdin="\n".join(commands) + "\n")

"""The instance's network on the machine: a bridge, a link and routes for each node, and masquerading."""

from __future__ import annotations

import orjson

from kindling.cluster import machine
from kindling.cluster.errors import SetupError
from kindling.cluster.instance import Instance, NodeLayout
from kindling.network import machine_rules, pod_filter

NODE_LINK = "eth0"
"""The uplink's name inside a node."""


def create(instance: Instance) -> None:
    """Create the bridge and its rules unless they exist. Raises SetupError."""
    machine.write_sysctl("net.ipv4.ip_forward", "1")
    prefix = instance.subnet.rsplit(".", 2)[0]
    if not machine.run(["ip", "-o", "link", "show", instance.bridge], what="links", check=False):
        _ip(
            f"looking after {instance.bridge}",
            f"link add {instance.bridge} mtu {instance.mtu} type bridge",
            f"link set {instance.bridge} address {_mac(instance.gateway)}",
            f"addr add {instance.gateway}/24 dev {instance.bridge}",
            f"link set {instance.bridge} up",
        )
    # Node ports answer on 127.0.0.1 as well; the service rules drop packets of other hosts to it.
    machine.write_sysctl(f"net.ipv4.conf.{instance.bridge}.route_localnet", "1")
    if not prefix:
        raise SetupError("network", f"unusable subnet {instance.subnet}")
    machine.nft(host_rules(instance), what=f"nftables table {instance.table}")
    guard = machine_rules.guard(
        instance.table, instance.bridge, instance.gateway, instance.api_port, instance.node_subnet
    )
    machine.nft(guard, what=f"guarding the machine against {instance.bridge}")


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
    # Containers with hostNetwork must not spoof addresses of other nodes and their pods.
    link = pod_filter.PodLink(node.host_link, _mac(node.address), (node.address,), (node.pod_cidr,))
    machine.nft(pod_filter.ruleset(link, instance.table), what=f"filter on {node.host_link}")
    for other in instance.nodes():
        if other.name != node.name:
            route = f"route replace {other.pod_cidr} via {other.address}\n"
            machine.run([*inside, "ip", "-batch", "-"], what=what, stdin=route)
    _ip(what, f"route replace {node.pod_cidr} via {node.address}")
    for name, required in (
        ("net.ipv4.ip_forward", True),
        ("net.ipv4.conf.all.route_localnet", True),
        ("net.bridge.bridge-nf-call-iptables", False),
    ):
        path = f"/proc/sys/{name.replace('.', '/')}"
        machine.run([*inside, "sh", "-c", f"echo 1 > {path}"], what=f"sysctl {name}", check=required)


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
        machine.run([*prefix, "ip", "route", "del", node.pod_cidr], what=what, check=False)


def destroy(instance: Instance) -> None:
    """Remove the links, the bridge and the rules that exist."""
    machine.nft(delete_rules(instance), what="nftables", check=False)
    for link in [node.host_link for node in instance.nodes()] + [instance.bridge]:
        machine.run(["ip", "link", "del", link], what=f"removing {link}", check=False)


def host_rules(instance: Instance) -> str:
    """The rules that masquerade packets leaving the instance's subnet, and allow the machine to forward its
    packets.

    The whole table is replaced; the service proxy of the host uses another table.
    """
    table, subnet = f"table ip {instance.table}", instance.subnet
    return f"""add {table}
delete {table}
{table} {{
    chain postrouting {{
        type nat hook postrouting priority 100; policy accept;
        ip saddr {subnet} ip daddr != {subnet} masquerade
    }}
    chain forward {{
        type filter hook forward priority 0; policy accept;
        ip saddr {subnet} accept
        ip daddr {subnet} accept
    }}
}}
"""


def delete_rules(instance: Instance) -> str:
    """Delete the instance's nftables tables from the host, if they exist."""
    name = instance.table
    tables = (f"ip {name}", f"ip {name}-services", f"inet {name}", f"netdev {name}")
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
                        "ranges": [[{"subnet": node.pod_cidr}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        },
        option=orjson.OPT_INDENT_2,
    )


def _mac(address: str) -> str:
    return "02:42:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def _ip(what: str, *commands: str) -> None:
    machine.run(["ip", "-batch", "-"], what=what, stdin="\n".join(commands) + "\n")

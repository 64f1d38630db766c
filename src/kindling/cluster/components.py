"""The entry points of the long-running processes, configured from the instance."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kindling.cluster import kubeconfigs, namespaces, processes
from kindling.cluster.containerd import STREAM_PORT
from kindling.cluster.instance import Instance
from kindling.network.proxy_status import HEALTH_PORT, STATUS_PORT
from kubecore.long_lived import stay_small
from kubecore.process_name import name_process
from kubecore.runtime import set_up_logging, until_signalled

if TYPE_CHECKING:
    from kindling.metrics.component import ComponentSettings
    from kindling.network.proxy import ServiceNetwork

KUBELET_PORT = 10250
_NODE_PORTS = (KUBELET_PORT, STREAM_PORT, HEALTH_PORT, STATUS_PORT)
"""Of a node's own servers: pods get none of them as a host port."""


def run_api_server(instance: Instance) -> int:
    """Run the API server; returns its exit status after it was stopped."""
    stay_small()
    # Imported here: it is large, and the process of a node imports this module, too.
    from kindling.apiserver.main import main as serve  # noqa: PLC0415

    name_process("kube-apiserver")
    allow_open_files()
    return serve(processes.api_server_arguments(instance))


def run_node(instance: Instance, name: str) -> None:
    """Run the node agent inside the node until it is stopped."""
    name_process("kubelet")
    allow_open_files()
    node = instance.node(name)
    namespaces.enter(node)
    stay_small()
    # The namespaces can be entered only while the process has one thread, so modules that start threads are
    # imported afterwards.
    import uvloop  # noqa: PLC0415

    from kindling.node.agent import AgentSettings, NodeAgent  # noqa: PLC0415
    from kindling.node.networks.attachments import NetworkSettings  # noqa: PLC0415
    from kindling.node.options import parse  # noqa: PLC0415
    from kindling.node.pods.sandbox import ResolverSettings  # noqa: PLC0415
    from kindling.node.registration import NodeSettings  # noqa: PLC0415

    set_up_logging(f"node-{name}")
    servers, searches, options = upstream_resolver(Path("/etc/resolv.conf").read_text())
    settings = AgentSettings(
        node=NodeSettings(name, node.addresses, node.pod_cidrs, KUBELET_PORT, parse(instance.node_options)),
        api=kubeconfigs.client_config(instance, f"node-{name}", internal=True),
        network_api=kubeconfigs.client_config(instance, "service-proxy", internal=True),
        runtime_socket=processes.runtime_socket(),
        cgroup_root=instance.node_cgroup(name),
        resolver=ResolverSettings(
            instance.dns_service,
            upstream_servers=servers,
            upstream_searches=searches,
            upstream_options=options,
        ),
        tls_cert=instance.pki / f"node-{name}-server.crt",
        tls_key=instance.pki / f"node-{name}-server.key",
        client_ca=instance.pki / "ca.crt",
        networks=NetworkSettings(is_isolated=instance.isolate_networks, node_ports=_NODE_PORTS),
        registered=lambda: node.registered.write_text(str(os.getpid())),
    )
    uvloop.run(until_signalled(NodeAgent(settings).run))


def run_controllers(instance: Instance, nodes: Sequence[str] = ()) -> None:
    """Run the controllers, the scheduler, the metrics API, and the service proxy and resolver for `nodes`
    (default: all) until stopped.
    """
    stay_small()
    # Imported here: the process of a node imports this module, too, and does not need them.
    import uvloop  # noqa: PLC0415

    from kindling.controllers import main as controllers  # noqa: PLC0415
    from kindling.controllers.accounts import token_secrets  # noqa: PLC0415
    from kindling.metrics import component  # noqa: PLC0415
    from kindling.network.external import ExternalRanges  # noqa: PLC0415

    name_process("kube-controller-manager")
    set_up_logging("kindling-controllers")
    network = _service_network(instance, nodes)
    measuring = _metrics_settings(instance)
    sign = token_secrets.signer((instance.pki / "sa.key").read_bytes())

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            work = controllers.run(
                kubeconfigs.client_config(instance, "controllers"),
                scheduler_config=kubeconfigs.client_config(instance, "scheduler"),
                sign_token=sign,
                control_planes=[instance.nodes()[0].name],
                external=ExternalRanges.of(instance.external_ranges, own=instance.subnets),
            )
            group.create_task(work, name="controllers")
            group.create_task(network.run(), name="services")
            group.create_task(component.run(measuring), name="metrics")

    # The streams of uvloop use a tenth of the memory of asyncio's: the process has one watch for each kind.
    uvloop.run(until_signalled(run))


def _service_network(instance: Instance, nodes: Sequence[str]) -> ServiceNetwork:
    """The service proxy and the resolver of the machine and of `nodes` (all if there are none)."""
    from kindling.network.proxy import ProxyPlace, ServiceNetwork  # noqa: PLC0415

    places = [ProxyPlace("host", None)]
    places += [
        ProxyPlace(
            node.name,
            node.namespaces / "net",
            node.pod_cidrs,
            node.pod_gateways,
            _NODE_PORTS,
            node.address,
        )
        for node in instance.running_nodes()
        if not nodes or node.name in nodes
    ]
    servers, _, _ = upstream_resolver(Path("/etc/resolv.conf").read_text())
    return ServiceNetwork(
        kubeconfigs.client_config(instance, "service-proxy"),
        places,
        table=instance.table,
        subnets=instance.subnets,
        bridge=instance.bridge,
        external_ranges=instance.external_ranges,
        dns_service=instance.dns_service,
        dns_address=instance.gateway,
        upstream_servers=servers,
    )


def _metrics_settings(instance: Instance) -> ComponentSettings:
    from kindling.metrics.component import ComponentSettings  # noqa: PLC0415

    return ComponentSettings(
        api=kubeconfigs.client_config(instance, "metrics"),
        address=instance.gateway,
        tls_cert=instance.pki / "metrics-server.crt",
        tls_key=instance.pki / "metrics-server.key",
        proxy_ca=instance.pki / "front-proxy-ca.crt",
        node_ca=instance.pki / "ca.crt",
        client_cert=instance.pki / "metrics.crt",
        client_key=instance.pki / "metrics.key",
    )


def allow_open_files() -> None:
    """Raise the limit of open files to the hard limit: every connection is one.

    The usual soft limit of 1024 exists only for programs that use select(2).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def upstream_resolver(text: str) -> tuple[list[str], list[str], list[str]]:
    """Servers, search domains and options of a resolv.conf; loopback servers are of no use to pods."""
    servers: list[str] = []
    searches: list[str] = []
    options: list[str] = []
    for line in text.splitlines():
        word, *rest = line.split() or [""]
        if word == "nameserver" and rest and not rest[0].startswith("127."):
            servers.append(rest[0])
        elif word == "search":
            searches = rest
        elif word == "options":
            options += rest
    return servers, searches, options

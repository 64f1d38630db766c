"""The processes of an instance and how each is started."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kindling.cluster import fingerprints, namespaces
from kindling.cluster.containerd import SOCKET
from kindling.cluster.image_names import HOST_REPOSITORY
from kindling.cluster.instance import Instance, write_atomically

_KINDLING = (sys.executable, "-m", "kindling.cluster.cli")

DATABASE = "apiserver.db"
"""Everything that the API server stores, in the state directory."""

SUPERVISED = "supervised"
"""In the state directory: the processes that the supervisor runs, so that others see what it has read."""

NODES_VARIABLE = "KINDLING_NODES"
"""Environment variable of the controllers: the nodes that they serve, separated by commas."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One supervised process; `name` is also its log's."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    earlier: Sequence[str] = ()
    """The command of earlier versions, by which a process that one started is found and replaced."""


def specs(instance: Instance) -> list[ProcessSpec]:
    """All processes, in the order in which they start.

    Their environments contain fingerprints of what they read at their start: the supervisor restarts
    processes whose fingerprint differs.
    """
    code, pki = fingerprints.of_code(), instance.pki

    def settings(*texts: str, certificates: Sequence[str]) -> dict[str, str]:
        files = [pki / f"{name}.crt" for name in ("ca", *certificates)] + [pki / "sa.key"]
        return {fingerprints.VARIABLE: fingerprints.of(code, *texts, files=files)}

    state = ["--state", str(instance.state)]
    arguments = api_server_arguments(instance)
    shown = ("apiserver", "apiserver-kubelet-client", "front-proxy-ca", "front-proxy-client")
    nodes = instance.running_nodes()
    wanted = [
        ProcessSpec("apiserver", [*_KINDLING, "apiserver", *state], settings(*arguments, certificates=shown))
    ]
    for node in nodes:
        config = node.directory / "containerd.toml"
        command = [*namespaces.enter_command(node), "containerd", "--config", str(config)]
        # Makes Go collect garbage earlier: containerd and its shims count towards the memory of each node.
        limits = {"GOGC": "50", "GOMAXPROCS": "2"}
        configured = {fingerprints.VARIABLE: fingerprints.of(files=[config])}
        wanted.append(ProcessSpec(f"containerd-{node.name}", command, limits | configured))
    layout = {NODES_VARIABLE: ",".join(node.name for node in nodes)}
    used = ("controllers", "scheduler", "service-proxy", "metrics", "metrics-server")
    control_plane = (node.name for node in instance.nodes()[:1])
    layout |= settings(*instance.external_ranges, *instance.subnets, *control_plane, certificates=used)
    wanted.append(ProcessSpec("controllers", [*_KINDLING, "controllers", *state], layout))
    for node in nodes:
        name = f"node-{node.name}"
        networks = f"isolated networks: {instance.isolate_networks}"
        certificates = (name, f"{name}-server", "service-proxy")
        own = settings(networks, *instance.node_options, certificates=certificates)
        earlier = [*_KINDLING, "node", node.name, *state]
        wanted.append(ProcessSpec(name, [*_KINDLING, "run-node", node.name, *state], own, earlier))
    return wanted


def of_node(instance: Instance, name: str) -> list[ProcessSpec]:
    """The processes of one node, stopped or not."""
    every = specs(replace(instance, stopped_nodes=()))
    return [spec for spec in every if spec.name in (f"containerd-{name}", f"node-{name}")]


def record(instance: Instance, names: Iterable[str]) -> None:
    """Write down which processes the supervisor runs from now on (`names`)."""
    write_atomically(instance.state / SUPERVISED, "\n".join(names).encode())


def supervisor(instance: Instance) -> ProcessSpec:
    """The supervisor, which starts all other processes."""
    command = [*_KINDLING, "supervise", "--state", str(instance.state)]
    return ProcessSpec("supervisor", command, {fingerprints.VARIABLE: fingerprints.of_code()})


def chores(instance: Instance) -> list[ProcessSpec]:
    """What the supervisor has done daily."""
    return [ProcessSpec("renewal", [*_KINDLING, "renew", "--state", str(instance.state)])]


def api_server_arguments(instance: Instance) -> list[str]:
    """Flags of the API server."""
    pki = instance.pki
    flags = {
        "--storage": instance.state / DATABASE,
        "--bind": f"127.0.0.1,{instance.gateway}",
        "--port": instance.api_port,
        "--advertise": instance.gateway,
        "--tls-cert": pki / "apiserver.crt",
        "--tls-key": pki / "apiserver.key",
        "--client-ca": pki / "ca.crt",
        "--front-proxy-ca": pki / "front-proxy-ca.crt",
        "--proxy-client-cert": pki / "front-proxy-client.crt",
        "--proxy-client-key": pki / "front-proxy-client.key",
        "--kubelet-client-cert": pki / "apiserver-kubelet-client.crt",
        "--kubelet-client-key": pki / "apiserver-kubelet-client.key",
        "--kubelet-ca": pki / "ca.crt",
        "--token-file": pki / "tokens.csv",
        "--sa-key": pki / "sa.key",
        "--service-cidr": ",".join(instance.service_cidrs),
        "--cluster-cidr": ",".join(instance.subnets),
    }
    lists = [f"--external-range={value}" for value in instance.external_ranges]
    # Reserve the name of the host image even if it is not offered: an image volume of it would show files of
    # the machine.
    lists.append(f"--reserved-image={HOST_REPOSITORY}")
    lists += [f"--reserved-image-account={value}" for value in instance.image_accounts]
    return [f"{flag}={value}" for flag, value in flags.items()] + lists + list(instance.api_flags)


def runtime_socket() -> str:
    """The runtime's socket as seen inside a node."""
    return SOCKET

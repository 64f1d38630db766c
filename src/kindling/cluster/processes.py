"""The processes of an instance and how each is started."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kindling.cluster import images, isolation
from kindling.cluster.containerd import SOCKET
from kindling.cluster.instance import Instance

DATABASE = "apiserver.db"
"""Everything that the API server stores, in the state directory."""

NODES_VARIABLE = "KINDLING_NODES"
"""Environment variable of the controllers: the nodes that they serve, separated by commas."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One supervised process; `name` is also its log's."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def specs(instance: Instance) -> list[ProcessSpec]:
    """All processes, in the order in which they start."""
    kindling = [sys.executable, "-m", "kindling.cluster.cli"]
    state = ["--state", str(instance.state)]
    # What processes read of the layout when they start: the supervisor replaces them when it has changed.
    ranges = {"KINDLING_EXTERNAL_RANGES": ",".join(instance.external_ranges)}
    served = {
        **ranges,
        "KINDLING_IMAGE_ACCOUNTS": ",".join(instance.image_accounts),
        "KINDLING_API_FLAGS": " ".join(instance.api_flags),
    }
    wanted = [ProcessSpec("apiserver", [*kindling, "apiserver", *state], served)]
    for node in instance.nodes():
        config = node.directory / "containerd.toml"
        command = [*isolation.enter_command(node), "containerd", "--config", str(config)]
        # What the runtime and its shims keep in memory counts: Go collects garbage earlier with this.
        wanted.append(ProcessSpec(f"containerd-{node.name}", command, {"GOGC": "50", "GOMAXPROCS": "2"}))
    layout = {NODES_VARIABLE: ",".join(instance.node_names), **ranges}
    wanted.append(ProcessSpec("controllers", [*kindling, "controllers", *state], layout))
    wanted += [
        ProcessSpec(f"node-{node.name}", [*kindling, "node", node.name, *state]) for node in instance.nodes()
    ]
    return wanted


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
        "--service-cidr": instance.service_cidr,
        "--cluster-cidr": instance.subnet,
    }
    lists = [f"--external-range={value}" for value in instance.external_ranges]
    # Where the image is not offered its name still stands for the machine: as a volume it needs no layers.
    lists.append(f"--reserved-image={images.HOST_REPOSITORY}")
    lists += [f"--reserved-image-account={value}" for value in instance.image_accounts]
    return [f"{flag}={value}" for flag, value in flags.items()] + lists + list(instance.api_flags)


def runtime_socket() -> str:
    """The runtime's socket as seen inside a node."""
    return SOCKET

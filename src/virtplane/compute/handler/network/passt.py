"""Interfaces behind passt: pod and guest have the same address, and passt, an ordinary user of the pod,
makes and accepts the guest's connections.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

from virtplane.api import labels
from virtplane.api.kubevirt_v1.networks import Interface
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.launcherpods import QEMU_USER
from virtplane.compute.domain.devices import socket_directory
from virtplane.compute.handler.launchers.process import Process
from virtplane.compute.handler.network.plan import PodInterface, stable_mac
from virtplane.compute.handler.network.setup import NetworkSetupError
from virtplane.compute.podlinks import Wire

_ISTIO_PORTS = (15000, 15001, 15004, 15006, 15008, 15009, 15020, 15021, 15053, 15090)
"""Those at which the proxy of a service mesh listens in the pod."""

_ALL_PORTS_FILES = 4 * 49152 + 1024
"""The sockets of a passt that forwards all ports but ephemeral ones: TCP and UDP, IPv4 and IPv6."""

_SETTINGS = {
    # The guest's echo requests are those of passt's group.
    "net/ipv4/ping_group_range": f"{QEMU_USER} {QEMU_USER}",
    "net/ipv4/ip_unprivileged_port_start": "0",
}


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The ports at which connections reach the guest, in passt's notation; empty for none."""

    tcp: str
    udp: str

    @property
    def is_everything(self) -> bool:
        """Whether passt listens at as many ports as there are."""
        return self.tcp == "all" or self.tcp.startswith("~")


def is_passt(wire: Wire) -> bool:
    """Whether passt serves an interface."""
    return wire.interface.passt_binding is not None and wire.is_primary


def forwarded(vmi: VirtualMachineInstance, interface: Interface) -> Forwarded:
    """Those ports that the interface lists, or all. A service mesh keeps its own, and has no UDP."""
    tcp = [str(port.port) for port in interface.ports if (port.protocol or "TCP").upper() == "TCP"]
    udp = [str(port.port) for port in interface.ports if (port.protocol or "TCP").upper() == "UDP"]
    is_meshed = vmi.metadata.annotations.get(labels.ISTIO_INJECT, "").lower() == "true"
    kept = [f"~{port}" for port in _ISTIO_PORTS] if is_meshed else []
    if not interface.ports and not is_meshed:
        return Forwarded("all", "all")
    return Forwarded(",".join([*kept, *tcp]), ",".join(udp))


def socket(vmi: VirtualMachineInstance) -> str:
    """Where QEMU listens for passt, in the launcher's container. Only the pod network has passt."""
    return f"{socket_directory(vmi)}/virt-passt"


def guest_mac(interface: Interface, pod: PodInterface) -> str:
    """The MAC of the guest's card."""
    return (interface.mac_address or "").replace("-", ":").lower() or pod.mac


def arguments(wire: Wire, pod: PodInterface, ports: Forwarded) -> list[str]:
    """The command line of passt. Its own MAC differs from the guest's, and the gateway's address leads to the
    gateway, not to the pod's own programs.
    """
    words = ["--interface", wire.names.pod, "--mac-addr", stable_mac(pod.mac), "--no-map-gw"]
    for option, value in (("--tcp-ports", ports.tcp), ("--udp-ports", ports.udp)):
        if value:
            words += [option, value]
    return words


def allow_in_pod() -> None:
    """Let ordinary users of the pod listen at every port, and send echo requests. Runs inside the namespace.

    Raises NetworkSetupError.
    """
    try:
        for name, value in _SETTINGS.items():
            Path("/proc/sys", name).write_text(value)
    except OSError as error:
        raise NetworkSetupError(f"preparing the pod for passt failed: {error}") from error


def allow_files(launcher: Process, ports: Forwarded, interface: str) -> None:
    """Let the launcher's processes open a socket for every port, where that many are wanted.

    Raises NetworkSetupError, OSError.
    """
    if not ports.is_everything:
        return
    try:
        soft, hard = resource.prlimit(launcher.pid, resource.RLIMIT_NOFILE)
    except PermissionError as error:
        raise NetworkSetupError(
            f"interface {interface} forwards every port, for which passt opens up to {_ALL_PORTS_FILES}"
            " files, and virt-handler may not look at the launcher's limit (it lacks CAP_SYS_RESOURCE)."
            " List the interface's ports"
        ) from error
    if not launcher.is_alive:
        raise ProcessLookupError(f"process {launcher.pid} has ended")
    if hard == resource.RLIM_INFINITY or hard >= _ALL_PORTS_FILES:
        return
    try:
        resource.prlimit(launcher.pid, resource.RLIMIT_NOFILE, (soft, _ALL_PORTS_FILES))
    except PermissionError as error:
        raise NetworkSetupError(
            f"interface {interface} forwards every port, for which passt opens up to {_ALL_PORTS_FILES}"
            f" files, and containers of this node may open {hard}. List the interface's ports, or raise the"
            " limit of the node's container runtime (LimitNOFILE)"
        ) from error

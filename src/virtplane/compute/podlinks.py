"""Names of the links in a launcher's pod, by which pods, their annotations and nodes agree.

The interface of a secondary network is named after a hash of the network's name: a kernel has room for 15
letters. Instances that began under an older release have numbered names (``net1``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from virtplane.api.kubevirt_v1.network_configuration import InterfaceBindingPlugin
from virtplane.api.kubevirt_v1.networks import (
    Interface,
    InterfaceBridge,
    MultusNetwork,
    Network,
)
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstanceNetworkInterface

POD_INTERFACE = "eth0"
"""The pod's interface on its default network."""

DOMAIN, GUEST_AGENT, MULTUS = "domain", "guest-agent", "multus-status"
"""Where the facts in an interface's status come from (``infoSource``), in this order."""

_HASHED = "pod"
_HASHED_NAME = re.compile(r"pod[0-9a-f]{11}", re.ASCII)
_NUMBERED = re.compile(r"net[1-9][0-9]{0,3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class LinkNames:
    """The links of one network in the pod's namespace."""

    pod: str
    """The interface that the CNI plugin made."""
    bridge: str
    tap: str
    card: str
    """The name that the pod's interface has once a bridged guest took its place."""
    first_holder: str
    """See ``handler.network.bridge``."""


TAP, MANAGED_TAP = "tap", "managedTap"
"""Ways of attachment that binding plug-ins may name."""

PRIMARY = LinkNames(POD_INTERFACE, "k6t-eth0", "tap0", "eth0-nic", "eth0-held")


@dataclass(frozen=True, slots=True)
class Wire:
    """One interface of a guest, the network that it joins, and the links in between."""

    interface: Interface
    network: Network
    names: LinkNames
    attachment: str = ""
    """What the plug-in of its binding leaves to virt-handler: ``tap``, ``managedTap``, or nothing."""

    @property
    def is_primary(self) -> bool:
        """Whether it is on the pod's default network."""
        return is_primary(self.network)


def pod_interface_name(network: str) -> str:
    """The name of a secondary network's interface in the pod."""
    return _HASHED + hashlib.sha256(network.encode()).hexdigest()[:11]


def is_primary(network: Network) -> bool:
    """Whether a network is the pod's default one: the pod network, or what takes its place."""
    return network.pod is not None or (network.multus is not None and bool(network.multus.default))


def is_numbered(pod_interface: str) -> bool:
    """Whether a pod's interface has the name of an older release (``net1``)."""
    return _NUMBERED.fullmatch(pod_interface) is not None


def is_hashed(pod_interface: str) -> bool:
    """Whether a pod's interface has the name of an instance's secondary network."""
    return _HASHED_NAME.fullmatch(pod_interface) is not None


def link_names(network: Network, established: str = "") -> LinkNames:
    """The links of a network. `established` is the pod's interface as the instance's status has it: it counts
    where it is a numbered one, and no other name does.
    """
    if is_primary(network):
        return PRIMARY
    if is_numbered(established):
        number = established.removeprefix("net")
        return LinkNames(
            established, f"k6t-{established}", f"tap{number}", f"{established}-nic", f"{established}-held"
        )
    name = pod_interface_name(network.name)
    short = name.removeprefix(_HASHED)
    return LinkNames(name, f"k6t-{short}", f"tap{short}", f"{short}-nic", f"{short}-old")


def wires(
    vmi: VirtualMachineInstance, plugins: Mapping[str, InterfaceBindingPlugin] | None = None
) -> list[Wire]:
    """The guest's interfaces with their networks, in the order of the specification. `plugins` are the
    registered binding plug-ins, by name.
    """
    spec = vmi.spec
    networks = {network.name: network for network in spec.networks}
    established = {item.name: item.pod_interface_name or "" for item in vmi.status.interfaces}
    return [
        Wire(
            interface,
            network,
            link_names(network, established.get(network.name, "")),
            _attachment(interface, plugins or {}),
        )
        for interface in spec.domain.devices.interfaces
        if (network := networks.get(interface.name)) is not None
    ]


def _attachment(interface: Interface, plugins: Mapping[str, InterfaceBindingPlugin]) -> str:
    plugin = plugins.get(interface.binding.name) if interface.binding is not None else None
    return (plugin.domain_attachment_type or "") if plugin is not None else ""


def leaving_wire(name: str) -> Wire:
    """An interface that has left the specification before it left the guest."""
    network = Network(name=name, multus=MultusNetwork(network_name=name))
    return Wire(Interface(name=name, bridge=InterfaceBridge(), state="absent"), network, link_names(network))


def sources(status: VirtualMachineInstanceNetworkInterface) -> list[str]:
    """The sources of an interface's status, of which ``infoSource`` is the list."""
    return [part for part in (status.info_source or "").split(", ") if part]

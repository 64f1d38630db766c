"""Rules on networks and network cards."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kubecore.objects import names
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.networks import DHCPOptions, Interface, Network, Port, PortRange
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.compute.addresses import without_leading_zeros
from virtplane.compute.apiserver.admission.rules.disks import PCI_ADDRESS
from virtplane.serving.responses import (
    DUPLICATE,
    NOT_FOUND,
    NOT_SUPPORTED,
    REQUIRED,
    Cause,
)

MODELS = ("e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139", "virtio")
RESERVED_MAC = "02:00:00:00:00:00"
MAX_PORT_RANGES = 10
_NAME = re.compile(r"^[A-Za-z0-9-_]+$")


def discontinued(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Bindings that are gone, refused on creation."""
    for index, card in enumerate(spec.domain.devices.interfaces):
        for key, binding, what in (
            ("slirp", card.slirp, "Slirp interface support"),
            ("passt", card.passt, "Passt network binding"),
            ("macvtap", card.macvtap, "Macvtap network binding"),
        ):
            if binding is not None:
                field = f"{path}.domain.devices.interfaces[{index}].{key}"
                yield Cause(f"{what} has been discontinued since v1.3", field)


def networks(path: str, spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> Iterator[Cause]:
    """Everything about networks and cards."""
    yield from _single_pod_network(path, spec)
    yield from _sources(path, spec)
    yield from _states(path, spec)
    yield from _bindings(path, spec, config)
    yield from _matching(path, spec)
    cards = spec.domain.devices.interfaces
    for index, interface in enumerate(cards):
        yield from _card(f"{path}.domain.devices.interfaces[{index}]", interface)
    pod_networks = {network.name for network in spec.networks if network.pod is not None}
    for index, interface in enumerate(cards):
        field = f"{path}.domain.devices.interfaces[{index}]"
        on_pod_network = interface.name in pod_networks
        if on_pod_network:
            yield from _ports(field, interface.ports)
        yield from _port_ranges(field, interface, config, on_pod_network=on_pod_network)
    for index, interface in enumerate(cards):
        if interface.dhcp_options is not None:
            yield from _dhcp(path, index, interface.dhcp_options)
    yield from _claims(path, spec, config)


def _replaces_pod_network(network: Network) -> bool:
    return network.multus is not None and network.multus.default is True


def _single_pod_network(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    pods = [network for network in spec.networks if network.pod is not None]
    defaults = [network for network in spec.networks if _replaces_pod_network(network)]
    if len(pods) > 1:
        field = f"{path}.interfaces"
        yield Cause(f"more than one interface is connected to a pod network in {field}", field, DUPLICATE)
    if len(defaults) > 1:
        yield Cause("Multus CNI should only have one default network", f"{path}.networks")
    if pods and defaults:
        yield Cause(
            "Pod network cannot be defined when Multus default network is defined", f"{path}.networks"
        )


def _sources(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    for index, network in enumerate(spec.networks):
        sources = (network.pod, network.multus, network.resource_claim)
        count = sum(1 for source in sources if source is not None)
        if count != 1:
            message = "should have only one network type" if count else "should have a network type"
            yield Cause(message, f"{path}.networks[{index}]", REQUIRED)
    for index, network in enumerate(spec.networks):
        if network.multus is not None and not network.multus.network_name:
            yield Cause(
                "CNI delegating plugin must have a networkName", f"{path}.networks[{index}]", REQUIRED
            )
            return


def _states(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    by_name = {network.name: network for network in spec.networks}
    for index, interface in enumerate(spec.domain.devices.interfaces):
        state, name = interface.state, interface.name
        field = f"{path}.domain.devices.interfaces[{index}].state"
        if state not in (None, "", "absent", "up", "down"):
            yield Cause(f"logical {name} interface state value is unsupported: {state}", field)
        if state in ("up", "down") and interface.sriov is not None:
            yield Cause(f'"{name}" interface\'s state "{state}" is not supported for SR-IOV NICs', field)
        if state == "absent":
            if interface.bridge is None:
                yield Cause(
                    f'"{name}" interface\'s state "absent" is supported only for bridge binding', field
                )
            network = by_name.get(name)
            if network is not None and (network.pod is not None or _replaces_pod_network(network)):
                yield Cause(
                    f'"{name}" interface\'s state "absent" is not supported on default networks', field
                )


def _bindings(path: str, spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> Iterator[Cause]:
    by_name = {network.name: network for network in spec.networks}
    for index, card in enumerate(spec.domain.devices.interfaces):
        field, network = f"{path}.domain.devices.interfaces[{index}]", by_name.get(card.name)
        on_pod_network = network is not None and network.pod is not None
        bindings = (card.bridge, card.masquerade, card.sriov, card.passt_binding, card.binding)
        if sum(1 for binding in bindings if binding is not None) != 1:
            yield Cause(
                f"logical {card.name} interface must have exactly one binding method or binding plugin", field
            )
        if card.masquerade is not None:
            if not on_pod_network:
                yield Cause("Masquerade interface only implemented with pod network", f"{field}.name")
            if (card.mac_address or "").lower().replace("-", ":") == RESERVED_MAC:
                yield Cause(
                    "The requested MAC address is reserved for the in-pod bridge. Please choose another one.",
                    f"{field}.macAddress",
                )
        if card.bridge is not None and on_pod_network and not config.permits_bridge_on_pod_network:
            yield Cause(
                "Bridge on pod network configuration is not enabled under kubevirt-config", f"{field}.name"
            )
        if card.passt_binding is not None:
            if not config.gate("PasstBinding"):
                yield Cause("PasstBinding feature gate is not enabled", f"{field}.name")
            if not on_pod_network:
                yield Cause("PasstBinding interface only implemented with pod network", f"{field}.name")


def _matching(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    network_names = [network.name for network in spec.networks]
    card_names = [card.name for card in spec.domain.devices.interfaces]
    for index, name in enumerate(network_names):
        if name in network_names[:index]:
            yield Cause(
                f'Network with name "{name}" already exists, every network must have a unique name',
                f"{path}.networks[{index}].name",
                DUPLICATE,
            )
    for index, name in enumerate(network_names):
        if name not in card_names:
            field = f"{path}.networks[{index}].name"
            yield Cause(f"{field} '{name}' not found.", field, REQUIRED)
    for index, name in enumerate(card_names):
        if name in card_names[:index]:
            yield Cause(
                "Only one interface can be connected to one specific network",
                f"{path}.domain.devices.interfaces[{index}].name",
                DUPLICATE,
            )
    for index, name in enumerate(card_names):
        if name not in network_names:
            field = f"{path}.domain.devices.interfaces[{index}].name"
            yield Cause(f"{field} '{name}' not found.", field)


def _card(field: str, card: Interface) -> Iterator[Cause]:
    if not _NAME.match(card.name):
        yield Cause(
            "Network interface name can only contain alphabetical characters, numbers,"
            " dashes (-) or underscores (_)",
            f"{field}.name",
        )
    if card.model and card.model not in MODELS:
        yield Cause(
            f"interface {field}.name uses model {card.model} that is not supported.",
            f"{field}.model",
            NOT_SUPPORTED,
        )
    address, pci = card.mac_address, card.pci_address
    problem = mac_address_problem(address) if address else ""
    if problem:
        yield Cause(f"interface {field}.name has {problem} MAC address ({address}).", f"{field}.macAddress")
    if pci and not PCI_ADDRESS.match(pci):
        yield Cause(f"interface {field}.name has malformed PCI address ({pci}).", f"{field}.pciAddress")


_MAC = re.compile(r"^[0-9a-fA-F]{2}(?:([:-])[0-9a-fA-F]{2})(?:\1[0-9a-fA-F]{2})*$")
_DOTTED_MAC = re.compile(r"^[0-9a-fA-F]{4}(?:\.[0-9a-fA-F]{4})+$")


def mac_address_problem(address: str) -> str:
    """`malformed` or `too long` (8 or 20 octets are addresses, but not of Ethernet); empty where fine."""
    if _MAC.match(address):
        octets = (len(address) + 1) // 3
    elif _DOTTED_MAC.match(address):
        octets = 2 * ((len(address) + 1) // 5)
    else:
        return "malformed"
    if octets not in (6, 8, 20):
        return "malformed"
    return "" if octets == 6 else "too long"


def _ports(field: str, ports: Sequence[Port]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        name = port.name
        if not name:
            continue
        where = f"{field}.ports[{index}].name"
        if name in seen:
            yield Cause(f"Duplicate name of the port: {name}", where, DUPLICATE)
        if names.is_port_name(name):
            yield Cause(f"Invalid name of the port: {name}", where)
        seen.add(name)
    for index, port in enumerate(ports):
        where = f"{field}.ports[{index}]"
        if port.port == 0:
            yield Cause("Port field is mandatory.", f"{where}.port", REQUIRED)
        elif not 0 < port.port < 65536:
            yield Cause("Port field must be in range 0 < x < 65536.", f"{where}.port")
        if port.protocol not in (None, "", "TCP", "UDP"):
            yield Cause("Unknown protocol, only TCP or UDP allowed", f"{where}.protocol")


def _port_ranges(
    field: str, interface: Interface, config: ClusterConfig, *, on_pod_network: bool
) -> Iterator[Cause]:
    ranges = interface.port_ranges
    if not ranges:
        return
    if not config.gate("PortRangesSpec"):
        yield Cause(
            "portRanges is specified on interface but the PortRangesSpec feature gate is not enabled",
            f"{field}.name",
        )
        return
    if not on_pod_network:
        return
    if interface.ports:
        yield Cause("Cannot define both ports and portRanges on interface", f"{field}.name")
    if interface.masquerade is None:
        yield Cause("portRanges are only supported on masquerade interfaces", f"{field}.name")
    if len(ranges) > MAX_PORT_RANGES:
        yield Cause(f"No more than {MAX_PORT_RANGES} portRanges are allowed", f"{field}.portRanges")
        return
    yield from _ranges(f"{field}.portRanges", ranges)


def _ranges(where: str, ranges: Sequence[PortRange]) -> Iterator[Cause]:
    valid: dict[str, list[tuple[int, int]]] = {}
    for index, entry in enumerate(ranges):
        own, protocol, start, end = f"{where}[{index}]", entry.protocol, entry.start, entry.end
        if protocol not in ("TCP", "UDP"):
            yield Cause("Unknown protocol, only TCP or UDP allowed", f"{own}.protocol")
        elif not 0 < start < 65536:
            yield Cause("Start must be a valid port number, 0 < x < 65536", f"{own}.start")
        elif not 0 < end < 65536:
            yield Cause("End must be a valid port number, 0 < x < 65536", f"{own}.end")
        elif start > end:
            yield Cause("Start must be less than or equal to end", f"{own}.start")
        else:
            valid.setdefault(protocol, []).append((start, end))
    for protocol, intervals in valid.items():
        for (first, last), (start, end) in pairwise(sorted(intervals)):
            if start <= last:
                yield Cause(f"{protocol} portRanges [{first}-{last}] and [{start}-{end}] overlap", where)


def _dhcp(path: str, index: int, options: DHCPOptions) -> Iterator[Cause]:
    numbers = [option.option for option in options.private_options]
    if len(set(numbers)) != len(numbers):
        yield Cause("Found Duplicates: you have provided duplicate DHCPPrivateOptions", path)
    for number in numbers:
        if not 224 <= number <= 254:
            yield Cause("provided DHCPPrivateOptions are out of range, must be in range 224 to 254", path)
    for position, server in enumerate(options.ntp_servers):
        try:
            ipaddress.IPv4Address(without_leading_zeros(server))
        except ValueError:
            yield Cause(
                "NTP servers must be a list of valid IPv4 addresses.",
                f"{path}.domain.devices.interfaces[{index}].dhcpOptions.ntpServers[{position}]",
            )


def _claims(path: str, spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> Iterator[Cause]:
    claimed = [
        (index, network.name, network.resource_claim)
        for index, network in enumerate(spec.networks)
        if network.resource_claim is not None
    ]
    if not claimed:
        return
    field = f"{path}.networks"
    if not config.gate("NetworkDevicesWithDRA"):
        yield Cause(
            "vmi.spec.networks contains DRA networks but NetworkDevicesWithDRA feature gate is not enabled",
            field,
        )
        return
    if any(network.multus is not None for network in spec.networks):
        yield Cause("mixing Multus and DRA resourceClaim networks in the same VMI is not supported", field)
    cards = {card.name: card for card in spec.domain.devices.interfaces}
    defined = {claim.name for claim in spec.resource_claims}
    seen: set[tuple[str, str]] = set()
    for index, name, claim in claimed:
        where, card = f"{field}[{index}]", cards.get(name)
        if card is None or (card.sriov is None and card.binding is None):
            yield Cause(
                f'DRA network "{name}" requires an SR-IOV or binding plugin interface',
                f"{path}.domain.devices.interfaces",
            )
        pair = claim.claim_name or "", claim.request_name or ""
        if not pair[0]:
            yield Cause("claimName is required for DRA network", f"{where}.resourceClaim.claimName", REQUIRED)
        elif pair[0] not in defined:
            yield Cause(
                f'network references resourceClaim "{pair[0]}" which is not defined in spec.resourceClaims',
                f"{where}.resourceClaim.claimName",
                NOT_FOUND,
            )
        if not pair[1]:
            yield Cause(
                "requestName is required for DRA network", f"{where}.resourceClaim.requestName", REQUIRED
            )
        if pair in seen:
            yield Cause(
                f'duplicate claimName/requestName combination "{pair[0]}/{pair[1]}"', where, DUPLICATE
            )
        seen.add(pair)

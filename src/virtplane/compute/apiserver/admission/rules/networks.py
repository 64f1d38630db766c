"""Rules on networks and network cards."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kubecore.json import JsonObject, get_bool, get_int, get_list, get_object, get_str
from kubecore.objects import names
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.admission.response import (
    DUPLICATE,
    NOT_FOUND,
    NOT_SUPPORTED,
    REQUIRED,
    Cause,
)
from virtplane.compute.apiserver.admission.rules.disks import PCI_ADDRESS

BINDINGS = ("bridge", "masquerade", "sriov", "passtBinding", "binding")
MODELS = ("e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139", "virtio")
RESERVED_MAC = "02:00:00:00:00:00"
MAX_PORT_RANGES = 10
_NAME = re.compile(r"^[A-Za-z0-9-_]+$")
_SOURCES = ("pod", "multus", "resourceClaim")
_DISCONTINUED = (
    ("slirp", "Slirp interface support has been discontinued since v1.3"),
    ("passt", "Passt network binding has been discontinued since v1.3"),
    ("macvtap", "Macvtap network binding has been discontinued since v1.3"),
)


def discontinued(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Bindings that are gone, refused on creation."""
    for index, interface in enumerate(_interfaces(spec)):
        for key, message in _DISCONTINUED:
            if interface.get(key) is not None:
                yield Cause(message, f"{path}.domain.devices.interfaces[{index}].{key}")


def networks(path: str, spec: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    """Everything about networks and cards."""
    yield from _single_pod_network(path, spec)
    yield from _sources(path, spec)
    yield from _states(path, spec)
    yield from _bindings(path, spec, config)
    yield from _matching(path, spec)
    for index, interface in enumerate(_interfaces(spec)):
        yield from _card(f"{path}.domain.devices.interfaces[{index}]", interface)
    pod_networks = {get_str(network, "name") for network in _networks(spec) if "pod" in network}
    for index, interface in enumerate(_interfaces(spec)):
        field = f"{path}.domain.devices.interfaces[{index}]"
        on_pod_network = get_str(interface, "name") in pod_networks
        if on_pod_network:
            yield from _ports(field, get_list(interface, "ports"))
        yield from _port_ranges(field, interface, config, on_pod_network=on_pod_network)
    for index, interface in enumerate(_interfaces(spec)):
        yield from _dhcp(path, index, get_object(interface, "dhcpOptions"))
    yield from _claims(path, spec, config)


def _networks(spec: JsonObject) -> list[JsonObject]:
    return get_list(spec, "networks")


def _interfaces(spec: JsonObject) -> list[JsonObject]:
    return get_list(spec, "domain", "devices", "interfaces")


def is_default(network: JsonObject) -> bool:
    """Whether the network is the pod's or takes its place."""
    return "pod" in network or get_bool(network, "multus", "default")


def _single_pod_network(path: str, spec: JsonObject) -> Iterator[Cause]:
    pods = [network for network in _networks(spec) if "pod" in network]
    defaults = [network for network in _networks(spec) if get_bool(network, "multus", "default")]
    if len(pods) > 1:
        field = f"{path}.interfaces"
        yield Cause(f"more than one interface is connected to a pod network in {field}", field, DUPLICATE)
    if len(defaults) > 1:
        yield Cause("Multus CNI should only have one default network", f"{path}.networks")
    if pods and defaults:
        yield Cause(
            "Pod network cannot be defined when Multus default network is defined", f"{path}.networks"
        )


def _sources(path: str, spec: JsonObject) -> Iterator[Cause]:
    for index, network in enumerate(_networks(spec)):
        count = sum(1 for source in _SOURCES if network.get(source) is not None)
        if count != 1:
            message = "should have only one network type" if count else "should have a network type"
            yield Cause(message, f"{path}.networks[{index}]", REQUIRED)
    for index, network in enumerate(_networks(spec)):
        if network.get("multus") is not None and not get_str(network, "multus", "networkName"):
            yield Cause(
                "CNI delegating plugin must have a networkName", f"{path}.networks[{index}]", REQUIRED
            )
            return


def _states(path: str, spec: JsonObject) -> Iterator[Cause]:
    by_name = {get_str(network, "name"): network for network in _networks(spec)}
    for index, interface in enumerate(_interfaces(spec)):
        state, name = get_str(interface, "state"), get_str(interface, "name")
        field = f"{path}.domain.devices.interfaces[{index}].state"
        if state not in ("", "absent", "up", "down"):
            yield Cause(f"logical {name} interface state value is unsupported: {state}", field)
        if state in ("up", "down") and interface.get("sriov") is not None:
            yield Cause(f'"{name}" interface\'s state "{state}" is not supported for SR-IOV NICs', field)
        if state == "absent":
            if interface.get("bridge") is None:
                yield Cause(
                    f'"{name}" interface\'s state "absent" is supported only for bridge binding', field
                )
            if is_default(by_name.get(name, {})):
                yield Cause(
                    f'"{name}" interface\'s state "absent" is not supported on default networks', field
                )


def _bindings(path: str, spec: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    by_name = {get_str(network, "name"): network for network in _networks(spec)}
    for index, interface in enumerate(_interfaces(spec)):
        field, name = f"{path}.domain.devices.interfaces[{index}]", get_str(interface, "name")
        network = by_name.get(name)
        on_pod_network = network is not None and "pod" in network
        if sum(1 for binding in BINDINGS if interface.get(binding) is not None) != 1:
            yield Cause(
                f"logical {name} interface must have exactly one binding method or binding plugin", field
            )
        if interface.get("masquerade") is not None:
            if not on_pod_network:
                yield Cause("Masquerade interface only implemented with pod network", f"{field}.name")
            if get_str(interface, "macAddress").lower().replace("-", ":") == RESERVED_MAC:
                yield Cause(
                    "The requested MAC address is reserved for the in-pod bridge. Please choose another one.",
                    f"{field}.macAddress",
                )
        if (
            interface.get("bridge") is not None
            and on_pod_network
            and not config.permits_bridge_on_pod_network
        ):
            yield Cause(
                "Bridge on pod network configuration is not enabled under kubevirt-config", f"{field}.name"
            )
        if interface.get("passtBinding") is not None:
            if not config.gate("PasstBinding"):
                yield Cause("PasstBinding feature gate is not enabled", f"{field}.name")
            if not on_pod_network:
                yield Cause("PasstBinding interface only implemented with pod network", f"{field}.name")


def _matching(path: str, spec: JsonObject) -> Iterator[Cause]:
    network_names = [get_str(network, "name") for network in _networks(spec)]
    card_names = [get_str(interface, "name") for interface in _interfaces(spec)]
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


def _card(field: str, interface: JsonObject) -> Iterator[Cause]:
    name, model = get_str(interface, "name"), get_str(interface, "model")
    if not _NAME.match(name):
        yield Cause(
            "Network interface name can only contain alphabetical characters, numbers,"
            " dashes (-) or underscores (_)",
            f"{field}.name",
        )
    if model and model not in MODELS:
        yield Cause(
            f"interface {field}.name uses model {model} that is not supported.",
            f"{field}.model",
            NOT_SUPPORTED,
        )
    address = get_str(interface, "macAddress")
    problem = mac_address_problem(address) if address else ""
    if problem:
        yield Cause(f"interface {field}.name has {problem} MAC address ({address}).", f"{field}.macAddress")
    pci = get_str(interface, "pciAddress")
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


def _ports(field: str, ports: Sequence[JsonObject]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        name = get_str(port, "name")
        if not name:
            continue
        where = f"{field}.ports[{index}].name"
        if name in seen:
            yield Cause(f"Duplicate name of the port: {name}", where, DUPLICATE)
        if names.is_port_name(name):
            yield Cause(f"Invalid name of the port: {name}", where)
        seen.add(name)
    for index, port in enumerate(ports):
        where, number = f"{field}.ports[{index}]", get_int(port, "port")
        if number == 0:
            yield Cause("Port field is mandatory.", f"{where}.port", REQUIRED)
        elif not 0 < number < 65536:
            yield Cause("Port field must be in range 0 < x < 65536.", f"{where}.port")
        if get_str(port, "protocol") not in ("", "TCP", "UDP"):
            yield Cause("Unknown protocol, only TCP or UDP allowed", f"{where}.protocol")


def _port_ranges(
    field: str, interface: JsonObject, config: ClusterConfig, *, on_pod_network: bool
) -> Iterator[Cause]:
    ranges = get_list(interface, "portRanges")
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
    if get_list(interface, "ports"):
        yield Cause("Cannot define both ports and portRanges on interface", f"{field}.name")
    if interface.get("masquerade") is None:
        yield Cause("portRanges are only supported on masquerade interfaces", f"{field}.name")
    if len(ranges) > MAX_PORT_RANGES:
        yield Cause(f"No more than {MAX_PORT_RANGES} portRanges are allowed", f"{field}.portRanges")
        return
    yield from _ranges(f"{field}.portRanges", ranges)


def _ranges(where: str, ranges: Sequence[JsonObject]) -> Iterator[Cause]:
    valid: dict[str, list[tuple[int, int]]] = {}
    for index, entry in enumerate(ranges):
        own, protocol = f"{where}[{index}]", get_str(entry, "protocol")
        start, end = get_int(entry, "start"), get_int(entry, "end")
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


def _dhcp(path: str, index: int, options: JsonObject) -> Iterator[Cause]:
    private = get_list(options, "privateOptions")
    numbers = [get_int(option, "option") for option in private]
    if len(set(numbers)) != len(numbers):
        yield Cause("Found Duplicates: you have provided duplicate DHCPPrivateOptions", path)
    for number in numbers:
        if not 224 <= number <= 254:
            yield Cause("provided DHCPPrivateOptions are out of range, must be in range 224 to 254", path)
    for position, server in enumerate(get_list(options, "ntpServers")):
        try:
            ipaddress.IPv4Address(server)
        except ValueError:
            yield Cause(
                "NTP servers must be a list of valid IPv4 addresses.",
                f"{path}.domain.devices.interfaces[{index}].dhcpOptions.ntpServers[{position}]",
            )


def _claims(path: str, spec: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    claimed = [
        (index, network)
        for index, network in enumerate(_networks(spec))
        if network.get("resourceClaim") is not None
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
    if any(network.get("multus") is not None for network in _networks(spec)):
        yield Cause("mixing Multus and DRA resourceClaim networks in the same VMI is not supported", field)
    cards = {get_str(card, "name"): card for card in _interfaces(spec)}
    defined = {get_str(claim, "name") for claim in get_list(spec, "resourceClaims")}
    seen: set[tuple[str, str]] = set()
    for index, network in claimed:
        name, where = get_str(network, "name"), f"{field}[{index}]"
        card = cards.get(name, {})
        if card.get("sriov") is None and card.get("binding") is None:
            yield Cause(
                f'DRA network "{name}" requires an SR-IOV or binding plugin interface',
                f"{path}.domain.devices.interfaces",
            )
        claim = get_object(network, "resourceClaim")
        pair = get_str(claim, "claimName"), get_str(claim, "requestName")
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

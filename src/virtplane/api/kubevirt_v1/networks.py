"""Networks and network cards."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virtplane.api.kubevirt_v1.claims import ClaimRequest
from virtplane.api.markers import ATOMIC, ZERO_IS_UNSET, ApiStruct, Int, Int32, UInt, describe


class MultusNetwork(ApiStruct, kw_only=True):
    """A network attachment definition."""

    default: Annotated[
        bool | None,
        describe("The network takes the place of the pod network; false when absent."),
        ZERO_IS_UNSET,
    ] = None
    network_name: Annotated[str, describe("The definition's name, or namespace/name.")]


class PodNetwork(ApiStruct, kw_only=True):
    """The pod's own network."""

    vm_i_pv6_network_cidr: Annotated[
        str | None, describe("The IPv6 network that guests with masquerade see; fd10:0:2::/120 when absent.")
    ] = field(default=None, name="vmIPv6NetworkCIDR")
    vm_network_cidr: Annotated[
        str | None, describe("The network that guests with masquerade see; 10.0.2.0/24 when absent.")
    ] = field(default=None, name="vmNetworkCIDR")


class Network(ApiStruct, kw_only=True):
    """A network that the interface of the same name joins; one source."""

    multus: MultusNetwork | None = None
    name: Annotated[str, describe("The name, which an interface has, too.")]
    pod: PodNetwork | None = None
    resource_claim: Annotated[
        ClaimRequest | None, describe("A network device of a claim. No effect yet.")
    ] = None


class PluginBinding(ApiStruct, kw_only=True):
    """A network binding plugin."""

    name: Annotated[str, describe("The name by which the installation has registered it.")]


class InterfaceBridge(ApiStruct, kw_only=True):
    """Bridge the card to the pod's interface; the guest takes the pod's address."""


class DHCPPrivateOptions(ApiStruct, kw_only=True):
    """A DHCP option for private use."""

    option: Annotated[Int, describe("The number, 224 to 254.")]
    value: Annotated[str, describe("The text.")]


class DHCPOptions(ApiStruct, kw_only=True):
    """What the DHCP answer tells the guest besides its address."""

    boot_file_name: Annotated[str | None, describe("The file to boot.")] = None
    ntp_servers: Annotated[tuple[str, ...], describe("IPv4 addresses of time servers.")] = ()
    private_options: Annotated[
        tuple[DHCPPrivateOptions, ...], describe("Options for private use, each number once.")
    ] = ()
    tftp_server_name: Annotated[str | None, describe("The server to boot from.")] = None


class DeprecatedInterfaceMacvtap(ApiStruct, kw_only=True):
    """Discontinued; refused."""


class InterfaceMasquerade(ApiStruct, kw_only=True):
    """Put the guest behind the pod's address by NAT; pod network only."""


class DeprecatedInterfacePasst(ApiStruct, kw_only=True):
    """Discontinued; refused. Use passtBinding."""


class InterfacePasstBinding(ApiStruct, kw_only=True):
    """The guest has the pod's address, and passt makes its connections; pod network only."""


class PortRange(ApiStruct, kw_only=True):
    """A range of ports that reach the guest."""

    end: Annotated[Int32, describe("The last port, up to 65535.")]
    protocol: Annotated[str, describe("TCP or UDP.")]
    start: Annotated[Int32, describe("The first port, from 1.")]


class Port(ApiStruct, kw_only=True):
    """A port of the pod that reaches the guest."""

    name: Annotated[str | None, describe("A name for the port, unique on the card.")] = None
    port: Annotated[Int32, describe("The number, 1 to 65535.")]
    protocol: Annotated[str | None, describe("TCP (when absent) or UDP.")] = None


class DeprecatedInterfaceSlirp(ApiStruct, kw_only=True):
    """Discontinued; refused."""


class InterfaceSRIOV(ApiStruct, kw_only=True):
    """Give the guest a virtual function of a network card of the node, which the CNI plugin chooses."""


class Interface(ApiStruct, kw_only=True):
    """A network card of the guest; one binding says how it joins its network."""

    acpi_index: Annotated[
        Int | None, describe("A number by which the guest can name the card."), ZERO_IS_UNSET
    ] = None
    binding: PluginBinding | None = None
    boot_order: Annotated[
        UInt | None, describe("The place in the boot order, from 1. Cards without one do not boot.")
    ] = None
    bridge: InterfaceBridge | None = None
    dhcp_options: DHCPOptions | None = None
    mac_address: Annotated[
        str | None, describe("The card's address; that of the pod's interface when absent.")
    ] = None
    macvtap: DeprecatedInterfaceMacvtap | None = None
    masquerade: InterfaceMasquerade | None = None
    model: Annotated[
        str | None, describe("virtio (when absent), e1000, e1000e, igb, ne2k_pci, pcnet or rtl8139.")
    ] = None
    name: Annotated[str, describe("The network that the card joins.")]
    passt: DeprecatedInterfacePasst | None = None
    passt_binding: InterfacePasstBinding | None = None
    pci_address: Annotated[str | None, describe("The PCI address in the guest, such as 0000:81:01.0.")] = None
    port_ranges: Annotated[
        tuple[PortRange, ...],
        describe(
            "Up to 10 ranges of ports that reach the guest; masquerade only. Needs the gate PortRangesSpec."
        ),
        ATOMIC,
    ] = ()
    ports: Annotated[
        tuple[Port, ...], describe("Ports of the pod that reach the guest; all when empty.")
    ] = ()
    slirp: DeprecatedInterfaceSlirp | None = None
    sriov: InterfaceSRIOV | None = None
    state: Annotated[
        str | None,
        describe(
            "up (when absent), down, or absent: the card is unplugged (binding bridge, secondary networks)."
        ),
    ] = None
    tag: Annotated[
        str | None, describe("Tells the guest what the card is for, in the metadata of its config drive.")
    ] = None

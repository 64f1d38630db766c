"""Networks and network cards."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virtplane.api.kubevirt_v1.claims import ClaimRequest
from virtplane.api.markers import ATOMIC, ZERO_IS_UNSET, ApiStruct, Int, Int32, UInt, describe


class MultusNetwork(ApiStruct, kw_only=True):
    """A network attachment definition."""

    default: Annotated[
        bool | None, describe("The network takes the place of the pod network."), ZERO_IS_UNSET
    ] = None
    network_name: Annotated[str, describe("Name, or namespace/name, of the network attachment definition.")]


class PodNetwork(ApiStruct, kw_only=True):
    """The pod's own network."""

    vm_i_pv6_network_cidr: Annotated[
        str | None,
        describe("The IPv6 network that guests behind NAT see; fd10:0:2::/120 when absent."),
    ] = field(default=None, name="vmIPv6NetworkCIDR")
    vm_network_cidr: Annotated[
        str | None, describe("The network that guests behind NAT see; 10.0.2.0/24 when absent.")
    ] = field(default=None, name="vmNetworkCIDR")


class Network(ApiStruct, kw_only=True):
    """A network that an interface of the same name joins; one source."""

    multus: MultusNetwork | None = None
    name: str
    pod: PodNetwork | None = None
    resource_claim: ClaimRequest | None = None


class PluginBinding(ApiStruct, kw_only=True):
    """The network binding plugin registered under this name."""

    name: str


class InterfaceBridge(ApiStruct, kw_only=True):
    """Bridge the card to the pod's interface; the guest takes the pod's address."""


class DHCPPrivateOptions(ApiStruct, kw_only=True):
    """A private DHCP option (224-254)."""

    option: Int
    value: str


class DHCPOptions(ApiStruct, kw_only=True):
    """What the DHCP answer tells the guest besides its address."""

    boot_file_name: str | None = None
    ntp_servers: tuple[str, ...] = ()
    private_options: tuple[DHCPPrivateOptions, ...] = ()
    tftp_server_name: str | None = None


class DeprecatedInterfaceMacvtap(ApiStruct, kw_only=True):
    """Discontinued; refused."""


class InterfaceMasquerade(ApiStruct, kw_only=True):
    """Put the guest behind the pod's address by NAT."""


class DeprecatedInterfacePasst(ApiStruct, kw_only=True):
    """Discontinued; refused. Use passtBinding."""


class InterfacePasstBinding(ApiStruct, kw_only=True):
    """Connect the card through passt."""


class PortRange(ApiStruct, kw_only=True):
    """A range of ports let through to the guest."""

    end: Int32
    protocol: str
    start: Int32


class Port(ApiStruct, kw_only=True):
    """A port let through to the guest."""

    name: str | None = None
    port: Int32
    protocol: str | None = None


class DeprecatedInterfaceSlirp(ApiStruct, kw_only=True):
    """Discontinued; refused."""


class InterfaceSRIOV(ApiStruct, kw_only=True):
    """Pass a virtual function of an SR-IOV card to the guest."""


class Interface(ApiStruct, kw_only=True):
    """A network card of the guest; one binding says how it joins its network."""

    acpi_index: Annotated[Int | None, ZERO_IS_UNSET] = None
    binding: PluginBinding | None = None
    boot_order: Annotated[UInt | None, describe("The place in the boot order, from 1.")] = None
    bridge: InterfaceBridge | None = None
    dhcp_options: DHCPOptions | None = None
    mac_address: Annotated[str | None, describe("The card's address; made at random when absent.")] = None
    macvtap: DeprecatedInterfaceMacvtap | None = None
    masquerade: InterfaceMasquerade | None = None
    model: Annotated[str | None, describe("e1000, e1000e, igb, ne2k_pci, pcnet, rtl8139 or virtio.")] = None
    name: Annotated[str, describe("The network that the card joins.")]
    passt: DeprecatedInterfacePasst | None = None
    passt_binding: InterfacePasstBinding | None = None
    pci_address: str | None = None
    port_ranges: Annotated[tuple[PortRange, ...], ATOMIC] = ()
    ports: Annotated[tuple[Port, ...], describe("Ports let through to the guest; all when empty.")] = ()
    slirp: DeprecatedInterfaceSlirp | None = None
    sriov: InterfaceSRIOV | None = None
    state: Annotated[str | None, describe("up, down or absent.")] = None
    tag: str | None = None

"""The network annotations of the launcher pod: secondary networks, service mesh, device details."""

from __future__ import annotations

from typing import Any

import orjson

from kubecore.json import JsonObject
from virtplane.api import labels
from virtplane.api.kubevirt_v1.network_configuration import InterfaceBindingPlugin
from virtplane.api.kubevirt_v1.networks import Interface
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.launcherpod.inputs import RenderInputs
from virtplane.compute.podlinks import DOMAIN, is_numbered, pod_interface_name, sources

NETWORK_STATUS_ANNOTATION = "k8s.v1.cni.cncf.io/network-status"
NETWORK_INFO_ANNOTATION = labels.NETWORK_INFO
_ISTIO_ANNOTATIONS = ("istio.io/reroute-virtual-interfaces", "traffic.sidecar.istio.io/kubevirtInterfaces")


def pod_annotations(inputs: RenderInputs) -> dict[str, str]:
    """The launcher's network annotations."""
    result: dict[str, str] = {}
    attachments = network_attachments(inputs)
    if attachments:
        result[labels.NETWORKS] = orjson.dumps(attachments).decode()
    for network in inputs.spec.networks:
        if network.multus is not None and network.multus.default:
            result[labels.DEFAULT_NETWORK] = network.multus.network_name
    pod_networks = {network.name for network in inputs.spec.networks if network.pod is not None}
    for interface in inputs.devices.interfaces:
        if interface.masquerade is not None and interface.name in pod_networks:
            result.update(dict.fromkeys(_ISTIO_ANNOTATIONS, "k6t-eth0"))
    return result


def network_attachments(inputs: RenderInputs) -> list[JsonObject]:
    """The pod's secondary networks in multus's notation, including those of network binding plugins."""
    interfaces = {interface.name: interface for interface in inputs.devices.interfaces}
    result: list[JsonObject] = []
    for network in inputs.spec.networks:
        interface = interfaces.get(network.name, Interface(name=network.name))
        multus = network.multus
        if multus is not None and not multus.default and _is_on_network(inputs, interface):
            result.append(_attachment(inputs, interface, multus.network_name))
        result += _plugin_attachment(inputs, interface)
    return result


def _is_on_network(inputs: RenderInputs, interface: Interface) -> bool:
    """Whether the pod is to be on the network: an interface that leaves has to be out of the guest first."""
    if interface.state != "absent":
        return True
    status = next((item for item in inputs.vmi.status.interfaces if item.name == interface.name), None)
    return status is not None and DOMAIN in sources(status)


def _attachment(inputs: RenderInputs, interface: Interface, reference: str) -> JsonObject:
    namespace, attachment = _split(reference, inputs.namespace_name)
    item: dict[str, Any] = {"name": attachment, "namespace": namespace}
    if interface.mac_address:
        item["mac"] = interface.mac_address
    item["interface"] = _established_name(inputs, interface.name) or pod_interface_name(interface.name)
    return item


def _established_name(inputs: RenderInputs, network: str) -> str:
    """The interface name that a running instance already uses (older instances have numbered names)."""
    for status in inputs.vmi.status.interfaces:
        if status.name == network and is_numbered(status.pod_interface_name or ""):
            return status.pod_interface_name or ""
    return ""


def _plugin(inputs: RenderInputs, interface: Interface) -> InterfaceBindingPlugin:
    """The registered network binding plugin of an interface; empty if it has none."""
    named = interface.binding.name if interface.binding is not None else ""
    return inputs.settings.binding_plugins.get(named) or InterfaceBindingPlugin()


def _plugin_attachment(inputs: RenderInputs, interface: Interface) -> list[JsonObject]:
    reference = _plugin(inputs, interface).network_attachment_definition
    if not reference:
        return []
    namespace, attachment = _split(reference, inputs.namespace_name)
    return [{"name": attachment, "namespace": namespace, "cni-args": {"logicNetworkName": interface.name}}]


def definitions(vmi: VirtualMachineInstance) -> dict[str, tuple[str, str]]:
    """Namespace and name of the attachment definition of each secondary network."""
    return {
        network.name: _split(network.multus.network_name, vmi.metadata.namespace)
        for network in vmi.spec.networks
        if network.multus is not None
    }


def _split(reference: str, namespace: str) -> tuple[str, str]:
    before, slash, after = reference.partition("/")
    return (before, after) if slash else (namespace, before)


def wants_network_info(inputs: RenderInputs) -> bool:
    """Whether the launcher needs device details that multus reports only after it has set up the networks."""
    return any(
        interface.sriov is not None or _plugin(inputs, interface).downward_api == "device-info"
        for interface in inputs.devices.interfaces
    )


def container_ports(inputs: RenderInputs) -> list[JsonObject]:
    """Ports that the user listed at the guest's interfaces."""
    ports: list[JsonObject] = []
    for interface in inputs.devices.interfaces:
        for port in interface.ports:
            item: JsonObject = {"containerPort": port.port, "protocol": port.protocol or "TCP"}
            if port.name:
                item["name"] = port.name
            ports.append(item)
    return ports

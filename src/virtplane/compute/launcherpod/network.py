"""What the launcher's annotations tell the pod network: secondary networks, service mesh, device details."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from kubecore.json import JsonObject, get_list, get_object, get_str
from virtplane.compute.launcherpod.inputs import RenderInputs

NETWORKS_ANNOTATION = "k8s.v1.cni.cncf.io/networks"
DEFAULT_NETWORK_ANNOTATION = "v1.multus-cni.io/default-network"
NETWORK_STATUS_ANNOTATION = "k8s.v1.cni.cncf.io/network-status"
NETWORK_INFO_ANNOTATION = "kubevirt.io/network-info"
_ISTIO_ANNOTATIONS = ("istio.io/reroute-virtual-interfaces", "traffic.sidecar.istio.io/kubevirtInterfaces")


def pod_interface_name(network: str) -> str:
    """The name of a secondary network's interface in the pod."""
    return "pod" + hashlib.sha256(network.encode()).hexdigest()[:11]


def pod_annotations(inputs: RenderInputs) -> dict[str, str]:
    """The launcher's network annotations."""
    result: dict[str, str] = {}
    attachments = network_attachments(inputs)
    if attachments:
        result[NETWORKS_ANNOTATION] = orjson.dumps(attachments).decode()
    networks = {get_str(item, "name"): item for item in get_list(inputs.spec, "networks")}
    for network in networks.values():
        multus = get_object(network, "multus")
        if multus.get("default") is True:
            result[DEFAULT_NETWORK_ANNOTATION] = get_str(multus, "networkName")
    for interface in get_list(inputs.devices, "interfaces"):
        if "masquerade" in interface and "pod" in networks.get(get_str(interface, "name"), {}):
            result.update(dict.fromkeys(_ISTIO_ANNOTATIONS, "k6t-eth0"))
    return result


def network_attachments(inputs: RenderInputs) -> list[JsonObject]:
    """The secondary networks of the pod in multus's notation, and those that binding plugins ask for."""
    interfaces = {get_str(item, "name"): item for item in get_list(inputs.devices, "interfaces")}
    result: list[JsonObject] = []
    for network in get_list(inputs.spec, "networks"):
        name = get_str(network, "name")
        interface = interfaces.get(name, {})
        multus = get_object(network, "multus")
        if multus and multus.get("default") is not True and interface.get("state") != "absent":
            result.append(_attachment(inputs, name, interface, get_str(multus, "networkName")))
        result += _plugin_attachment(inputs, name, interface)
    return result


def _attachment(inputs: RenderInputs, name: str, interface: JsonObject, reference: str) -> JsonObject:
    namespace, attachment = _split(reference, inputs.namespace_name)
    item: dict[str, Any] = {"name": attachment, "namespace": namespace}
    if interface.get("macAddress"):
        item["mac"] = interface["macAddress"]
    item["interface"] = _established_name(inputs, name) or pod_interface_name(name)
    return item


def _established_name(inputs: RenderInputs, network: str) -> str:
    """The interface name a running instance already uses (older instances count them)."""
    for status in get_list(inputs.vmi, "status", "interfaces"):
        if status.get("name") == network:
            return get_str(status, "podInterfaceName")
    return ""


def _plugin_attachment(inputs: RenderInputs, network: str, interface: JsonObject) -> list[JsonObject]:
    plugin = get_object(inputs.settings.binding_plugins, get_str(interface, "binding", "name"))
    reference = get_str(plugin, "networkAttachmentDefinition")
    if not reference:
        return []
    namespace, attachment = _split(reference, inputs.namespace_name)
    return [{"name": attachment, "namespace": namespace, "cni-args": {"logicNetworkName": network}}]


def _split(reference: str, namespace: str) -> tuple[str, str]:
    before, slash, after = reference.partition("/")
    return (before, after) if slash else (namespace, before)


def wants_network_info(inputs: RenderInputs) -> bool:
    """Whether the launcher must learn device details that are known only once the pod's networks exist."""
    for interface in get_list(inputs.devices, "interfaces"):
        if "sriov" in interface:
            return True
        plugin = get_object(inputs.settings.binding_plugins, get_str(interface, "binding", "name"))
        if plugin.get("downwardAPI") == "device-info":
            return True
    return False


def container_ports(inputs: RenderInputs) -> list[JsonObject]:
    """Ports that the user listed at the guest's interfaces."""
    ports: list[JsonObject] = []
    for interface in get_list(inputs.devices, "interfaces"):
        for port in get_list(interface, "ports"):
            item: JsonObject = {"containerPort": port.get("port"), "protocol": port.get("protocol") or "TCP"}
            if port.get("name"):
                item["name"] = port["name"]
            ports.append(item)
    return ports

"""Warns of addresses that a service, or a host port, claims in vain.

They are stored as Kubernetes stores them; whether they take effect is decided where rules are made
(``kindling.network.external``), after the same ranges.
"""

from __future__ import annotations

from kindling.apiserver.registry.admission import Admission, AdmissionAttributes
from kindling.apiserver.registry.context import ObjectReader
from kindling.network.external import ExternalRanges, parse
from kubecore.json import JsonObject, get_list, get_str
from kubecore.resources import NODES, PODS, SERVICES

from .base import concerns

_WHY = "is in no range that the cluster's administrator allows for external addresses, and has no effect"


class ExternalAddresses(Admission):
    """See the module."""

    def __init__(self, ranges: ExternalRanges, objects: ObjectReader) -> None:
        self._ranges = ranges
        self._objects = objects

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Warn; nothing is refused."""
        self._warn_of_host_ports(attributes)
        service, old = attributes.object, attributes.old_object or {}
        for subresource in ("", "status"):
            if service is not None and concerns(
                attributes, SERVICES, "CREATE", "UPDATE", subresource=subresource
            ):
                before = {address for _, address in _claims(old)}
                for path, address in _claims(service):
                    if address not in before and not self._ranges.admits(address):
                        attributes.ctx.warn(f"{path}: {address} {_WHY}")

    def _warn_of_host_ports(self, attributes: AdmissionAttributes) -> None:
        pod = attributes.object
        if pod is None or not concerns(attributes, PODS, "CREATE"):
            return
        bound = [
            (f"spec.containers[{index}].ports[{position}].hostIP", get_str(port, "hostIP"))
            for index, container in enumerate(get_list(pod, "spec", "containers"))
            for position, port in enumerate(get_list(container, "ports"))
            if get_str(port, "hostIP")
        ]
        nodes = self._node_addresses() if bound else set()
        for path, text in bound:
            address = parse(text)
            is_own = address is not None and (address.is_loopback or address.is_unspecified)
            if not is_own and text not in nodes and text != "::":
                attributes.ctx.warn(f"{path}: {text} is no address of a node, and has no effect")

    def _node_addresses(self) -> set[str]:
        found = [get_list(node, "status", "addresses") for node in self._objects.list(NODES)]
        return {get_str(item, "address") for addresses in found for item in addresses}


def _claims(service: JsonObject) -> list[tuple[str, str]]:
    """(field, address) of all that a service claims."""
    found = [
        (f"spec.externalIPs[{position}]", str(address))
        for position, address in enumerate(get_list(service, "spec", "externalIPs"))
    ]
    points = get_list(service, "status", "loadBalancer", "ingress")
    found += [
        (f"status.loadBalancer.ingress[{position}].ip", get_str(point, "ip"))
        for position, point in enumerate(points)
        if get_str(point, "ip")
    ]
    return found

"""Warns of addresses that a service claims in vain.

They are stored as Kubernetes stores them; whether they take effect is decided where rules are made
(``kindling.network.external``), after the same ranges.
"""

from __future__ import annotations

from kindling.apiserver.registry.admission import AdmissionAttributes
from kindling.network.external import ExternalRanges
from kubecore.json import JsonObject, get_list, get_str
from kubecore.resources import SERVICES

from .base import PluginBase, concerns

_WHY = "is in no range that the cluster's administrator allows for external addresses, and has no effect"


class ExternalAddresses(PluginBase):
    """See the module."""

    def __init__(self, ranges: ExternalRanges) -> None:
        self._ranges = ranges

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Warn; nothing is refused."""
        service, old = attributes.object, attributes.old_object or {}
        for subresource in ("", "status"):
            if service is not None and concerns(
                attributes, SERVICES, "CREATE", "UPDATE", subresource=subresource
            ):
                before = {address for _, address in _claims(old)}
                for path, address in _claims(service):
                    if address not in before and not self._ranges.admits(address):
                        attributes.ctx.warn(f"{path}: {address} {_WHY}")


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

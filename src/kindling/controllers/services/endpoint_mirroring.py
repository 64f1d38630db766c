"""EndpointSlices that mirror Endpoints objects written by users, for services without selectors."""

from __future__ import annotations

from kindling.controllers.environment import Environment
from kindling.controllers.services import service_endpoints as facts
from kindling.controllers.services.endpoint_slices import (
    carry_out,
    changes,
    index_key,
    service_index,
    services_of,
    template,
)
from kindling.controllers.services.endpoints import HEADLESS, TRIGGER_TIME
from kindling.controllers.services.endpoints import MANAGED_BY as ENDPOINTS_MANAGED_BY
from kubecore.json import JsonObject, get_list
from kubecore.objects import meta
from kubecore.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from kubecore.runtime import DONE, Key, Result

NAME = "endpointslice-mirroring-controller"
MANAGER = "endpointslicemirroring-controller.k8s.io"
SKIP_LABEL = "endpointslice.kubernetes.io/skip-mirror"
LEADER_ANNOTATION = "control-plane.alpha.kubernetes.io/leader"
_NOT_COPIED = frozenset({TRIGGER_TIME, "kubectl.kubernetes.io/last-applied-configuration", LEADER_ANNOTATION})


def is_mirrored(endpoints: JsonObject, service: JsonObject | None) -> bool:
    """Whether the Endpoints are not made by a controller and belong to a service without a selector."""
    if service is None or facts.is_selected(service):
        return False
    labels = meta.labels(endpoints)
    if labels.get(SKIP_LABEL) == "true" or ENDPOINTS_MANAGED_BY in labels:
        return False
    return LEADER_ANNOTATION not in meta.annotations(endpoints)


def groups(endpoints: JsonObject) -> list[tuple[str, list[JsonObject], list[JsonObject]]]:
    """Address family, ports and endpoints of each group of slices."""
    result: list[tuple[str, list[JsonObject], list[JsonObject]]] = []
    for subset in get_list(endpoints, "subsets"):
        ports = [{"name": "", "protocol": "TCP", **port} for port in get_list(subset, "ports")]
        by_family: dict[str, list[JsonObject]] = {}
        for field, ready in (("addresses", True), ("notReadyAddresses", False)):
            for address in get_list(subset, field):
                family = "IPv6" if ":" in address["ip"] else "IPv4"
                by_family.setdefault(family, []).append(_endpoint(address, ready))
        result += [(family, ports, members) for family, members in by_family.items()]
    return result


def _endpoint(address: JsonObject, ready: bool) -> JsonObject:
    endpoint: JsonObject = {"addresses": [address["ip"]], "conditions": {"ready": ready}}
    for field in ("hostname", "nodeName", "targetRef"):
        if address.get(field):
            endpoint[field] = address[field]
    return endpoint


class EndpointMirroring:
    """Keyed by Endpoints."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        manager = environment.manager
        self._endpoints = manager.informer(ENDPOINTS)
        self._services = manager.informer(SERVICES)
        self._slices = manager.informer(ENDPOINT_SLICES, indexers={"service": service_index})
        controller = environment.controller(NAME, self.reconcile)
        controller.watch(self._endpoints)
        controller.watch(self._services)
        controller.watch(self._slices, services_of(MANAGER))

    async def reconcile(self, key: Key) -> Result:
        """Update the slices that mirror one Endpoints object."""
        endpoints = self._endpoints.get(*key)
        existing = self._slices.by_index("service", index_key(*key, MANAGER))
        blank: dict[str, JsonObject] = {}
        wanted: list[tuple[str, list[JsonObject], list[JsonObject]]] = []
        if endpoints is not None and is_mirrored(endpoints, self._services.get(*key)):
            wanted = groups(endpoints)
            for family in ("IPv4", "IPv6"):
                blank[family] = self._blank(endpoints, family)
        await carry_out(self._client, changes(existing, blank, wanted))
        return DONE

    def _blank(self, endpoints: JsonObject, family: str) -> JsonObject:
        blank = template(endpoints, ENDPOINTS, meta.name(endpoints), MANAGER, family)
        labels = {name: value for name, value in meta.labels(endpoints).items() if name != HEADLESS}
        blank["metadata"]["labels"] = {**labels, **blank["metadata"]["labels"]}
        annotations = {
            name: value for name, value in meta.annotations(endpoints).items() if name not in _NOT_COPIED
        }
        if annotations:
            blank["metadata"]["annotations"] = annotations
        return blank

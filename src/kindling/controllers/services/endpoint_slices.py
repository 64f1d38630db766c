"""EndpointSlices of Services with selectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kindling.controllers.environment import Environment
from kindling.controllers.services import service_endpoints as facts
from kindling.controllers.services.endpoints import labels_of, selecting_services
from kubecore.client import Client
from kubecore.errors import ignoring
from kubecore.json import JsonObject, deep_copy, get_list, get_str
from kubecore.objects import meta
from kubecore.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES, ResourceType
from kubecore.runtime import DONE, Key, Result

NAME = "endpointslice-controller"
MANAGER = "endpointslice-controller.k8s.io"
SERVICE_LABEL = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MAX_ENDPOINTS = 100
"""Endpoints per slice."""


@dataclass(slots=True)
class Changes:
    """The slices to create, update and delete."""

    create: list[JsonObject] = field(default_factory=list)
    update: list[JsonObject] = field(default_factory=list)
    delete: list[JsonObject] = field(default_factory=list)


def template(
    owner: JsonObject, resource: ResourceType, service: str, manager: str, family: str
) -> JsonObject:
    """An empty slice of one family."""
    return {
        "apiVersion": ENDPOINT_SLICES.api_version,
        "kind": ENDPOINT_SLICES.kind,
        "metadata": {
            "generateName": f"{service}-",
            "namespace": meta.namespace(owner),
            "labels": {SERVICE_LABEL: service, MANAGED_BY: manager},
            "ownerReferences": [meta.new_controller_ref(owner, resource)],
        },
        "addressType": family,
    }


def groups(
    service: JsonObject, pods: Sequence[JsonObject], zones: dict[str, str]
) -> list[tuple[str, list[JsonObject], list[JsonObject]]]:
    """Address family, ports and endpoints of each group of slices: pods that offer the same ports."""
    result: list[tuple[str, list[JsonObject], list[JsonObject]]] = []
    for family in facts.families(service):
        by_ports: dict[str, tuple[list[JsonObject], list[JsonObject]]] = {}
        for pod in sorted(pods, key=meta.name):
            if not facts.includes(pod, terminating=True) or not facts.addresses(pod, family):
                continue
            offered = [{"name": "", **port} for port in facts.ports(service, pod)]
            _, members = by_ports.setdefault(str(offered), (offered, []))
            zone = zones.get(get_str(pod, "spec", "nodeName"), "")
            members.append(facts.slice_endpoint(service, pod, family, zone))
        if not by_ports:
            # A service without endpoints has one empty slice, so that clients know that it was processed.
            by_ports[""] = ([], [])
        result += [(family, offered, members) for offered, members in by_ports.values()]
    return result


def changes(
    existing: Sequence[JsonObject],
    blank: dict[str, JsonObject],
    wanted: Sequence[tuple[str, list[JsonObject], list[JsonObject]]],
) -> Changes:
    """Fit the wanted groups into the existing slices. `blank` are empty slices by family."""
    result = Changes()
    spare = list(existing)
    for family, ports, endpoints in wanted:
        chunks = [
            endpoints[start : start + MAX_ENDPOINTS] for start in range(0, len(endpoints), MAX_ENDPOINTS)
        ]
        for chunk in chunks or [[]]:
            found = _closest(spare, family, ports, chunk)
            target = blank[family]
            if found is None:
                result.create.append({**deep_copy(target), "endpoints": chunk, "ports": ports})
                continue
            spare.remove(found)
            if not _equal(found, target, ports, chunk):
                updated = deep_copy(found)
                updated["metadata"]["labels"] = dict(target["metadata"]["labels"])
                updated["metadata"]["ownerReferences"] = target["metadata"]["ownerReferences"]
                result.update.append({**updated, "endpoints": chunk, "ports": ports})
    result.delete = spare
    return result


def _closest(
    slices: Sequence[JsonObject], family: str, ports: list[JsonObject], endpoints: list[JsonObject]
) -> JsonObject | None:
    """The slice that shares the most endpoints; one with the same ports, if any."""
    wanted = {tuple(endpoint["addresses"]) for endpoint in endpoints}

    def rank(found: JsonObject) -> tuple[bool, int]:
        shared = sum(tuple(entry["addresses"]) in wanted for entry in get_list(found, "endpoints"))
        return get_list(found, "ports") == ports, shared

    same_family = [found for found in slices if found.get("addressType") == family]
    return max(same_family, key=rank, default=None)


def _equal(
    found: JsonObject, target: JsonObject, ports: list[JsonObject], endpoints: list[JsonObject]
) -> bool:
    return (
        get_list(found, "endpoints") == endpoints
        and get_list(found, "ports") == ports
        and meta.labels(found) == target["metadata"]["labels"]
        and meta.owner_references(found) == target["metadata"]["ownerReferences"]
    )


def service_index(found: JsonObject) -> list[str]:
    """The index function of slices by namespace, service and manager."""
    labels = meta.labels(found)
    return [index_key(meta.namespace(found), labels.get(SERVICE_LABEL, ""), labels.get(MANAGED_BY, ""))]


def index_key(namespace: str, service: str, manager: str) -> str:
    """The index value of a service's slices."""
    return f"{namespace}/{service}/{manager}"


def services_of(manager: str) -> Callable[[JsonObject], list[Key]]:
    """The mapper from the slices of `manager` to their services."""

    def key(found: JsonObject) -> list[Key]:
        labels = meta.labels(found)
        is_own = labels.get(MANAGED_BY) == manager
        return [(meta.namespace(found), labels.get(SERVICE_LABEL, ""))] if is_own else []

    return key


class EndpointSliceController:
    """Keyed by service."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        manager = environment.manager
        self._services = manager.informer(SERVICES)
        self._pods = manager.informer(PODS)
        self._nodes = manager.informer(NODES)
        self._slices = manager.informer(ENDPOINT_SLICES, indexers={"service": service_index})
        controller = environment.controller(NAME, self.reconcile, workers=5)
        controller.watch(self._services)
        controller.watch(self._pods, lambda pod: selecting_services(self._services, pod))
        controller.watch(self._slices, services_of(MANAGER))
        controller.depend(self._nodes)

    async def reconcile(self, key: Key) -> Result:
        """Update the slices of one service."""
        service = self._services.get(*key)
        if service is None or not facts.is_selected(service) or meta.is_being_deleted(service):
            return DONE
        existing = self._slices.by_index("service", index_key(*key, MANAGER))
        blank: dict[str, JsonObject] = {}
        for family in facts.families(service):
            blank[family] = template(service, SERVICES, key[1], MANAGER, family)
            metadata = blank[family]["metadata"]
            metadata["labels"] = labels_of(service, metadata["labels"])
        zones = {
            meta.name(node): meta.labels(node).get("topology.kubernetes.io/zone", "")
            for node in self._nodes.list()
        }
        pods = facts.pods_of(service, self._pods.list(key[0]))
        await carry_out(self._client, changes(existing, blank, groups(service, pods, zones)))
        return DONE


async def carry_out(client: Client, wanted: Changes) -> None:
    """Create, update and delete slices. A service or namespace that is deleted meanwhile is no error."""
    with ignoring(403, 404):
        for found in wanted.create:
            await client.create(ENDPOINT_SLICES, found)
        for found in wanted.update:
            await client.update(ENDPOINT_SLICES, found)
        for found in wanted.delete:
            await client.delete(ENDPOINT_SLICES, meta.name(found), meta.namespace(found))

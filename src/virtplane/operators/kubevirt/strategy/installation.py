"""The installation as a whole, in stages; each stage rests on the ones before it."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.json import JsonObject, get_object
from virtplane.api import crds, labels, resources
from virtplane.operators.kubevirt.strategy.component_roles import component_roles
from virtplane.operators.kubevirt.strategy.instancetypes import common_instancetypes
from virtplane.operators.kubevirt.strategy.monitoring import monitoring
from virtplane.operators.kubevirt.strategy.parameters import Parameters
from virtplane.operators.kubevirt.strategy.policies import launcher_restriction, node_restriction
from virtplane.operators.kubevirt.strategy.services import priority_class, services
from virtplane.operators.kubevirt.strategy.user_roles import user_roles
from virtplane.operators.kubevirt.strategy.webhooks import api_services, api_webhooks, operator_webhooks
from virtplane.operators.kubevirt.strategy.workloads import workloads


@dataclass(frozen=True, slots=True)
class Installation:
    """Objects by stage. Certificates come between `foundation` and `components`."""

    foundation: tuple[JsonObject, ...]
    """Definitions, accounts, roles, services, policies."""
    components: tuple[JsonObject, ...]
    """What runs."""
    entry: tuple[JsonObject, ...]
    """Webhooks and aggregated services: they need components that answer."""
    content: tuple[JsonObject, ...]
    """Instance types and preferences: they pass through the webhooks."""


def installation(parameters: Parameters) -> Installation:
    """Everything to install, each object with the operator's labels."""
    aggregate = parameters.config.raw.get("roleAggregationStrategy") != "Manual"
    foundation = [
        *_definitions(),
        priority_class(),
        *component_roles(parameters.namespace),
        *user_roles(aggregate=aggregate),
        *services(parameters),
        *monitoring(parameters),
        *node_restriction(parameters.namespace),
        *launcher_restriction(parameters.namespace),
        *operator_webhooks(parameters),
    ]
    content = common_instancetypes() if parameters.config.common_instancetypes else []
    return Installation(
        _managed(foundation, parameters),
        _managed(workloads(parameters), parameters),
        _managed([*api_webhooks(parameters), *api_services(parameters)], parameters),
        _managed(content, parameters),
    )


def _definitions() -> list[JsonObject]:
    own = resources.KUBEVIRTS.group_resource
    return [crd for crd in crds.custom_resource_definitions() if crd["metadata"]["name"] != own]


def _managed(objects: list[JsonObject], parameters: Parameters) -> tuple[JsonObject, ...]:
    for document in objects:
        mark_managed(document, parameters.spec)
    return tuple(objects)


def mark_managed(document: JsonObject, spec: JsonObject) -> None:
    """Label an object as the operator's."""
    own = document["metadata"].setdefault("labels", {})
    own[labels.MANAGED_BY] = labels.MANAGED_BY_OPERATOR
    own[labels.MANAGED_COMPONENT] = spec.get("productComponent") or "kubevirt"
    if spec.get("productVersion"):
        own[labels.MANAGED_VERSION] = spec["productVersion"]
    if spec.get("productName"):
        own[labels.MANAGED_PART_OF] = spec["productName"]
    template = get_object(document, "spec", "template", "metadata", "labels")
    if document["kind"] in ("Deployment", "DaemonSet"):
        template[labels.MANAGED_BY] = labels.MANAGED_BY_OPERATOR

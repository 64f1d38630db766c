"""All objects of KubeVirt's installation."""

from __future__ import annotations

from collections.abc import Callable

from kubecore.json import JsonObject, get_list
from virtplane.api import crds, labels, resources, vnc_access
from virtplane.operators.kit.customize import customizer
from virtplane.operators.kit.installation import Installation
from virtplane.operators.kubevirt.product import KUBEVIRT
from virtplane.operators.kubevirt.strategy.components import INSTALLED
from virtplane.operators.kubevirt.strategy.consoleproxy import console_proxy
from virtplane.operators.kubevirt.strategy.instancetypes import common_instancetypes
from virtplane.operators.kubevirt.strategy.monitoring import monitoring
from virtplane.operators.kubevirt.strategy.parameters import Parameters
from virtplane.operators.kubevirt.strategy.pluginpolicies import plugin_policies
from virtplane.operators.kubevirt.strategy.policies import (
    launcher_restriction,
    node_restriction,
    node_status_restriction,
)
from virtplane.operators.kubevirt.strategy.services import priority_class, services
from virtplane.operators.kubevirt.strategy.user_roles import user_roles
from virtplane.operators.kubevirt.strategy.webhooks import (
    api_services,
    api_webhooks,
    operator_webhooks,
    pod_webhooks,
    token_services,
)
from virtplane.operators.kubevirt.strategy.workloads import workloads


def installation(parameters: Parameters) -> Installation:
    """Everything to install, each object with the operator's labels."""
    aggregate = parameters.config.configuration.role_aggregation_strategy != "Manual"
    foundation = [
        *_definitions(),
        priority_class(),
        *(each for component in INSTALLED for each in component.access(parameters.namespace)),
        *user_roles(aggregate=aggregate),
        *services(parameters),
        *monitoring(parameters),
        *node_restriction(parameters.namespace),
        *node_status_restriction(parameters.namespace),
        *launcher_restriction(parameters.namespace),
        *operator_webhooks(parameters),
    ]
    gated = {
        "ContainerPathVolumes": pod_webhooks(parameters),
        "Plugins": plugin_policies(),
        vnc_access.GATE: [*console_proxy(parameters.namespace), *token_services(parameters)],
    }
    entry, withdrawn = [*api_webhooks(parameters), *api_services(parameters)], list[JsonObject]()
    for gate, objects in gated.items():
        (entry if parameters.config.gate(gate) else withdrawn).extend(objects)
    content = common_instancetypes() if parameters.config.common_instancetypes else []
    return Installation(
        _managed(foundation, parameters),
        _of_generation(_managed(workloads(parameters), parameters), parameters.generation),
        _managed(entry, parameters),
        _managed(content, parameters),
        _managed(withdrawn, parameters),
    )


def user_patches(spec: JsonObject) -> Callable[[JsonObject], JsonObject]:
    """Returns a function that applies ``spec.customizeComponents.patches``; it raises BadCustomization."""
    return customizer(get_list(spec, "customizeComponents", "patches"), KUBEVIRT.customizer_annotation)


def _definitions() -> list[JsonObject]:
    own = resources.KUBEVIRTS.group_resource
    return [crd for crd in crds.custom_resource_definitions() if crd["metadata"]["name"] != own]


def _managed(objects: list[JsonObject], parameters: Parameters) -> tuple[JsonObject, ...]:
    for document in objects:
        KUBEVIRT.mark_managed(document, parameters.spec, parameters.marks)
    return tuple(objects)


def _of_generation(objects: tuple[JsonObject, ...], generation: int) -> tuple[JsonObject, ...]:
    """Objects that tell which generation of the KubeVirt object they follow; their pods stay as they are."""
    if generation:
        for document in objects:
            annotations = document["metadata"].setdefault("annotations", {})
            annotations[labels.KUBEVIRT_GENERATION] = str(generation)
    return objects

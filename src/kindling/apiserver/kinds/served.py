"""The definitions of all built-in kinds."""

from __future__ import annotations

from kindling.apiserver.registry.definition import ResourceDefinition

from . import apiregistration, coordination, discovery, events, flowcontrol, node, policy, rbac, scheduling
from .admissionregistration import strategy as admissionregistration
from .apps import strategy as apps
from .autoscaling import strategy as autoscaling
from .batch import strategy as batch
from .certificates import strategy as certificates
from .core import configmaps, endpoints, limits, namespaces, nodes, secrets, serviceaccounts
from .core.pods import strategy as pods
from .core.services import strategy as services
from .core.volumes import strategy as volumes
from .networking import strategy as networking
from .resource import strategy as resource
from .storage import strategy as storage


def builtin_definitions() -> list[ResourceDefinition]:
    """Definitions of all built-in kinds, in the order in which discovery lists their groups."""
    modules = (
        configmaps,
        secrets,
        serviceaccounts,
        endpoints,
        discovery,
        limits,
        namespaces,
        nodes,
        pods,
        services,
        volumes,
        apiregistration,
        apps,
        events,
        autoscaling,
        batch,
        certificates,
        networking,
        policy,
        rbac,
        storage,
        admissionregistration,
        coordination,
        scheduling,
        node,
        resource,
        flowcontrol,
    )
    return [definition for module in modules for definition in module.definitions()]

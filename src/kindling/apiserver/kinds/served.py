"""The definitions of all built-in kinds."""

from __future__ import annotations

from kindling.apiserver.registry.definition import ResourceDefinition

from .admissionregistration import strategy as admissionregistration
from .apiregistration import strategy as apiregistration
from .apps import strategy as apps
from .autoscaling import strategy as autoscaling
from .batch import strategy as batch
from .certificates import strategy as certificates
from .coordination import strategy as coordination
from .core import configmaps, namespaces, secrets, serviceaccounts
from .core.endpoints import strategy as endpoints
from .core.limits import strategy as limits
from .core.nodes import strategy as nodes
from .core.pods import strategy as pods
from .core.services import strategy as services
from .core.volumes import strategy as volumes
from .discovery import strategy as discovery
from .events import strategy as events
from .flowcontrol import strategy as flowcontrol
from .networking import strategy as networking
from .node import strategy as node
from .policy import strategy as policy
from .rbac import strategy as rbac
from .scheduling import strategy as scheduling
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
        flowcontrol,
    )
    return [definition for module in modules for definition in module.definitions()]

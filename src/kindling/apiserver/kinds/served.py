"""The definitions of all built-in kinds."""

from __future__ import annotations

from kindling.apiserver.registry.definition import ResourceDefinition

from . import (
    admissionregistration,
    apiregistration,
    apps,
    autoscaling,
    batch,
    certificates,
    configuration,
    coordination,
    endpoints,
    events,
    flowcontrol,
    limits,
    namespaces,
    networking,
    nodes,
    pods,
    policy,
    rbac,
    services,
    storage,
    volumes,
)


def builtin_definitions() -> list[ResourceDefinition]:
    """Definitions of all built-in kinds, in the order in which discovery lists their groups."""
    modules = (
        configuration,
        endpoints,
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
        flowcontrol,
    )
    return [definition for module in modules for definition in module.definitions()]

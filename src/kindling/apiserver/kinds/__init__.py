"""The built-in kinds: schemas, defaults, validation, strategies, tables. One module per group or large kind.

``builtin_definitions`` is what the server wires up. A kind's objects reach its strategy decoded and pruned by
its schema (``schemas``); ``wire`` brings them into the form that Kubernetes' own encoder gives them; modules
named ``*_validation`` are pure. Kinds that live elsewhere: CustomResourceDefinition (``crds``), reviews and
tokens (the server's own).
"""

from __future__ import annotations

from kindling.apiserver.registry.definition import ResourceDefinition


def builtin_definitions() -> list[ResourceDefinition]:
    """Definitions of all built-in kinds, in the order in which discovery lists their groups."""
    from . import (  # noqa: PLC0415 - the schemas alone are needed to build the package
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

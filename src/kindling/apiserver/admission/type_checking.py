"""Checking validating policies against the schemas of what they match.

A policy is accepted whatever its expressions do with fields, because it may match many kinds. Where it names
its resources, its status tells which expressions cannot work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kindling.apiserver.registry.admission import AdmissionEnvironment
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.errors import ignoring
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import meta
from kubecore.resources import VALIDATING_ADMISSION_POLICIES

_MAX_TYPES = 10
_UNTYPED = {
    "request": "dyn",
    "namespaceObject": "dyn",
    "variables": "dyn",
    "params": "dyn",
    "authorizer": "kubernetes.authorization.Authorizer",
    "authorizer.requestResource": "kubernetes.authorization.ResourceCheck",
}


class TypeChecking:
    """Type-checks policies when they change, and writes the result into their status."""

    def __init__(self, environment: AdmissionEnvironment) -> None:
        self._environment = environment
        environment.on_change("admissionregistration.k8s.io/validatingadmissionpolicies", self._changed)

    def _changed(self, event: str, policy: JsonObject) -> None:
        generation = meta.generation(policy)
        if event == "DELETED" or not generation:
            return
        if get_object(policy, "status").get("observedGeneration") != generation:
            name = meta.name(policy)
            self._environment.spawn(self._check(name), f"type checking of policy {name}")

    async def _check(self, name: str) -> None:
        def change(policy: JsonObject) -> JsonObject:
            warnings = list(expression_warnings(policy, self._environment.definitions()))
            policy["status"] = {
                **get_object(policy, "status"),
                "observedGeneration": meta.generation(policy),
                "typeChecking": {"expressionWarnings": warnings} if warnings else {},
            }
            return policy

        with ignoring(404, 409):
            await self._environment.objects.modify(VALIDATING_ADMISSION_POLICIES, None, name, change)


def expression_warnings(
    policy: JsonObject, definitions: Sequence[ResourceDefinition]
) -> Iterator[JsonObject]:
    """The type errors in the expressions of a policy, for the resources that it names."""
    types = list(_types(policy, definitions))[:_MAX_TYPES]
    for index, validation in enumerate(get_list(policy, "spec", "validations")):
        for field in ("expression", "messageExpression"):
            text = validation.get(field)
            if not text:
                continue
            found = "".join(_warning(str(text), definition) for definition in types)
            if found:
                yield {"fieldRef": f"spec.validations[{index}].{field}", "warning": found}


def _warning(text: str, definition: ResourceDefinition) -> str:
    if definition.schema is None:
        return ""
    from kubecore.cel.type_checking import check_types  # noqa: PLC0415 (loads the interpreter)

    schemas = {"object": definition.schema, "oldObject": definition.schema}
    problem = check_types(text, schemas, _UNTYPED, type_name=definition.resource.kind).problem
    resource = definition.resource
    shown = f"{resource.group}/{resource.version}, Kind={resource.kind}"
    return f"{shown}: {problem}\n" if problem else ""


def _types(policy: JsonObject, definitions: Sequence[ResourceDefinition]) -> Iterator[ResourceDefinition]:
    """The kinds that the rules name one by one; wildcards are not followed."""
    by_name = {
        (each.resource.group, each.resource.version, each.resource.plural): each for each in definitions
    }
    for rule in get_list(policy, "spec", "matchConstraints", "resourceRules"):
        for group in rule.get("apiGroups") or ():
            for version in rule.get("apiVersions") or ():
                for resource in rule.get("resources") or ():
                    if found := by_name.get((group, version, resource)):
                        yield found

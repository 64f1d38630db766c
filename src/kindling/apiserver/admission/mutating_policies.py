"""MutatingAdmissionPolicy: expressions that change the object of a request."""

from __future__ import annotations

import asyncio
from typing import Any

from kindling.apiserver.registry.admission import Admission, AdmissionAttributes, AdmissionEnvironment
from kubecore import errors
from kubecore.cel import EvaluationError
from kubecore.cel.documents import document
from kubecore.cel.literals import plain_maps
from kubecore.json import JsonObject, get_list, get_str
from kubecore.patch import field_types, typed
from kubecore.patch.jsonpatch import JsonPatchError, apply_json_patch, decode_json_patch
from kubecore.patch.mergepatch import apply_merge_patch
from kubecore.schema.model import Schema

from .base import refuse
from .conditions import ConditionError
from .matching import is_exempt
from .policies import Binding, ParameterError, Policy, PolicyEngine, Scope
from .reinvocation import Reinvocation


class MutationError(Exception):
    """A mutation cannot be carried out; the text is what users see."""


class _MutatingPolicy(Policy):
    """A policy with its mutations."""

    def __init__(self, raw: JsonObject) -> None:
        super().__init__(raw)
        self.mutations = get_list(raw, "spec", "mutations")
        self.reinvoked_if_needed = get_str(raw, "spec", "reinvocationPolicy") == "IfNeeded"

    def mutate(
        self, mutation: JsonObject, obj: JsonObject, schema: Schema | None, scope: Scope
    ) -> JsonObject:
        """The object after one mutation. Raises EvaluationError, MutationError."""
        if mutation.get("patchType") == "JSONPatch":
            return _patched(obj, self._document(mutation, "jsonPatch", scope))
        configuration = self._document(mutation, "applyConfiguration", scope)
        if not isinstance(configuration, dict):
            raise MutationError("applyConfiguration must evaluate to an Object")
        return merged(obj, configuration, schema)

    def _document(self, mutation: JsonObject, kind: str, scope: Scope) -> Any:
        return document(self.evaluate(plain_maps(get_str(mutation, kind, "expression")), scope))


def _patched(obj: JsonObject, operations: Any) -> JsonObject:
    try:
        patched = apply_json_patch(obj, decode_json_patch(operations))
    except JsonPatchError as error:
        raise MutationError(str(error)) from error
    except errors.StatusError as error:
        raise MutationError(error.message) from error
    if not isinstance(patched, dict):
        raise MutationError("the patched object is no object")
    return patched


def merged(obj: JsonObject, configuration: JsonObject, schema: Schema | None) -> JsonObject:
    """`obj` with the fields that `configuration` sets, merged as server-side apply merges."""
    if schema is None:
        return dict(apply_merge_patch(obj, configuration))
    try:
        result = typed.merge(field_types.object_type(schema), obj, configuration)
    except field_types.TypedError as error:
        raise MutationError(str(error)) from error
    return dict(result)


class MutatingPolicies(Admission):
    """See the module."""

    def __init__(self, environment: AdmissionEnvironment) -> None:
        self._engine = PolicyEngine(
            environment,
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
            _MutatingPolicy,
        )

    async def mutate(self, attributes: AdmissionAttributes) -> None:
        """One round without a second."""
        await self.mutate_round(attributes, Reinvocation())

    async def mutate_round(self, attributes: AdmissionAttributes, reinvocation: Reinvocation) -> None:
        """Apply policies and bindings in the order of their names; each sees the changes of those before
        it.
        """
        if is_exempt(attributes) or attributes.object is None:
            return
        for policy, binding, _ in list(self._engine.matching(attributes)):
            key = f"policy {policy.name} by {binding.name}"
            if not isinstance(policy, _MutatingPolicy) or not reinvocation.is_due(key):
                continue
            before = attributes.object
            try:
                await self._apply(attributes, policy, binding)
            except (ParameterError, ConditionError, EvaluationError, MutationError) as error:
                if policy.ignores_failure:
                    continue
                raise refuse(
                    attributes,
                    f"policy '{policy.name}' with binding '{binding.name}' denied request: {error}",
                ) from error
            if attributes.object is not before:
                reinvocation.changed(key, attributes.object)
            if policy.reinvoked_if_needed:
                reinvocation.note(key, attributes.object)

    async def _apply(
        self, attributes: AdmissionAttributes, policy: _MutatingPolicy, binding: Binding
    ) -> None:
        definition = attributes.definition
        scopes = self._engine.scopes(
            policy, binding, attributes, definition, attributes.object, attributes.old_object
        )
        for scope in list(scopes):
            for mutation in policy.mutations:
                await asyncio.sleep(0)  # others are served between two expressions
                current = attributes.object or {}
                scope.variables["object"] = current
                changed = policy.mutate(mutation, current, definition.schema, scope)
                if changed != current:
                    changed = document(changed)  # many small changes may make it too large, too
                    attributes.redefault(changed)
                    attributes.object = changed

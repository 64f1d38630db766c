"""What validating and mutating admission policies share: bindings, parameters, variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kindling.apiserver.registry.admission import AdmissionAttributes, AdmissionEnvironment
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.cel import Budget, CompileError, CostExceededError, EvaluationError, Program
from kubecore.cel.access_checks import Authorize
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.selectors import from_label_selector_object
from kubecore.resources import NAMESPACES

from . import conditions
from .conditions import MatchConditions
from .configurations import Configurations
from .matching import ResourceMatcher

_VARIABLE = re.compile(r"\bvariables\s*\.\s*([A-Za-z_]\w*)")


class ParameterError(Exception):
    """The parameters of a binding cannot be had; the text is what users see."""


class Policy:
    """What both kinds of policies have: constraints, conditions, variables, parameters."""

    def __init__(self, raw: JsonObject) -> None:
        spec = get_object(raw, "spec")
        self.name = get_str(raw, "metadata", "name")
        self.matcher = ResourceMatcher(get_object(spec, "matchConstraints"), "resourceRules")
        self.ignores_failure = spec.get("failurePolicy") == "Ignore"
        self.parameter_kind: JsonObject | None = spec.get("paramKind")
        self._variables = {
            str(each.get("name")): str(each.get("expression")) for each in get_list(spec, "variables")
        }
        self.names: tuple[str, ...] = ("namespaceObject",)
        if self.parameter_kind is not None:
            self.names += ("params",)
        if self._variables:
            self.names += ("variables",)
        self.conditions = MatchConditions(get_list(spec, "matchConditions"), *self.names)
        self._programs: dict[str, Program | CompileError] = {}

    def evaluate(self, text: str, scope: Scope) -> Any:
        """The value of one of the policy's expressions. Raises EvaluationError."""
        program = self._programs.get(text)
        if program is None:
            program = self._programs[text] = conditions.compiled(text, *self.names)
        if isinstance(program, CompileError):
            raise EvaluationError(f"compilation error: {program}")
        failures = self._compute_variables(text, scope)
        try:
            return program.evaluate(scope.variables, scope.authorize, scope.budget)
        except EvaluationError as error:
            for name, why in failures.items():
                if str(error) == f"no such key: {name}":
                    text = f'composited variable "{name}" fails to evaluate: {why}'
                    raise EvaluationError(text) from error
            raise

    def _compute_variables(self, text: str, scope: Scope) -> dict[str, EvaluationError]:
        """Compute the variables that an expression names, where that is not done yet.

        One that has no value is left out and returned: it only matters when the expression gets to it.
        """
        failures: dict[str, EvaluationError] = {}
        if not self._variables:
            return failures
        values: JsonObject = scope.variables.setdefault("variables", {})
        for name in _VARIABLE.findall(text):
            if name in self._variables and name not in values:
                try:
                    values[name] = self.evaluate(self._variables[name], scope)
                except CostExceededError:
                    raise
                except EvaluationError as error:
                    failures[name] = error
        return failures


@dataclass(slots=True)
class Scope:
    """The variables of one policy's expressions for one request and one set of parameters."""

    variables: dict[str, Any]
    authorize: Authorize
    budget: Budget = field(default_factory=Budget)


class Binding:
    """The use of a policy, with parameters, for a part of the cluster."""

    def __init__(self, raw: JsonObject) -> None:
        spec = get_object(raw, "spec")
        self.name = get_str(raw, "metadata", "name")
        self.policy_name = get_str(spec, "policyName")
        self.parameters: JsonObject | None = spec.get("paramRef")
        self.actions = tuple(str(each) for each in get_list(spec, "validationActions"))
        resources = spec.get("matchResources")
        self.matcher = ResourceMatcher(resources, "resourceRules") if isinstance(resources, dict) else None

    def matches(self, attributes: AdmissionAttributes, environment: AdmissionEnvironment) -> bool:
        """Whether the binding includes the request, which its policy already does."""
        if self.matcher is None:
            return True
        if not self.matcher.has_rules:
            return self.matcher.match_selectors(attributes, environment.objects)
        equivalents = environment.equivalents(attributes.definition)
        return self.matcher.match(attributes, equivalents, environment.objects) is not None


class PolicyEngine:
    """Finds the policies and bindings that concern a request, and what their expressions see."""

    def __init__(
        self,
        environment: AdmissionEnvironment,
        policies: str,
        bindings: str,
        compile_policy: Callable[[JsonObject], Policy],
    ) -> None:
        self._environment = environment
        self._policies = Configurations(environment, policies, compile_policy)
        self._bindings = Configurations(environment, bindings, Binding)

    def matching(
        self, attributes: AdmissionAttributes
    ) -> Iterator[tuple[Policy, Binding, ResourceDefinition]]:
        """Policies by name with their bindings by name."""
        equivalents = self._environment.equivalents(attributes.definition)
        for policy in self._policies.all():
            bindings = [each for each in self._bindings.all() if each.policy_name == policy.name]
            if not bindings:
                continue
            match = policy.matcher.match(attributes, equivalents, self._environment.objects)
            if match is None:
                continue
            for binding in bindings:
                if binding.matches(attributes, self._environment):
                    yield policy, binding, match.definition

    def scopes(
        self,
        policy: Policy,
        binding: Binding,
        attributes: AdmissionAttributes,
        shown: ResourceDefinition,
        new: JsonObject | None,
        old: JsonObject | None,
    ) -> Iterator[Scope]:
        """One scope for each object of parameters. Raises ParameterError, ConditionError."""
        variables = conditions.request_variables(attributes, shown.resource, new, old)
        variables["namespaceObject"] = self._namespace(attributes)
        authorize = conditions.authorization(attributes, self._environment)
        if policy.parameter_kind is None:
            scopes = [Scope(variables, authorize)]
        else:
            found = self._parameters(policy.parameter_kind, binding, attributes)
            scopes = [Scope({**variables, "params": each}, authorize) for each in found]
        for scope in scopes:
            if policy.conditions.hold({**scope.variables, "variables": {}}, authorize):
                yield scope

    def _namespace(self, attributes: AdmissionAttributes) -> JsonObject | None:
        namespace = attributes.ctx.namespace
        if not namespace or not attributes.definition.resource.namespaced:
            return None
        return self._environment.objects.get(NAMESPACES, None, namespace)

    def _parameters(
        self, kind: JsonObject, binding: Binding, attributes: AdmissionAttributes
    ) -> list[JsonObject | None]:
        reference = binding.parameters
        if reference is None:
            return [None]
        definition = self._definition(kind)
        if definition is None:
            raise ParameterError(
                f"failed to find resource referenced by paramKind: '{_group_version_kind(kind)}'"
            )
        namespace: str | None = None
        if definition.resource.namespaced:
            namespace = str(reference.get("namespace") or attributes.ctx.namespace or "")
            if not namespace:
                raise ParameterError(
                    "failed to configure binding: cannot use namespaced paramRef in policy binding that "
                    "matches cluster-scoped resources"
                )
        objects = self._environment.objects
        found: list[JsonObject | None]
        if reference.get("name"):
            one = objects.get(definition.resource, namespace, str(reference["name"]))
            found = [one] if one is not None else []
        else:
            selector = from_label_selector_object(get_object(reference, "selector"))
            found = [
                each
                for each in objects.list(definition.resource, namespace)
                if selector.matches(get_object(each, "metadata", "labels"))
            ]
        if not found and reference.get("parameterNotFoundAction") != "Allow":
            raise ParameterError("no params found for policy binding with `Deny` parameterNotFoundAction")
        return found

    def _definition(self, kind: JsonObject) -> ResourceDefinition | None:
        for definition in self._environment.definitions():
            resource = definition.resource
            if (resource.api_version, resource.kind) == (kind.get("apiVersion"), kind.get("kind")):
                return definition
        return None


def _group_version_kind(kind: JsonObject) -> str:
    return f"{kind.get('apiVersion')}, Kind={kind.get('kind')}"

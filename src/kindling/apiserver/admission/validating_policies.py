"""ValidatingAdmissionPolicy: expressions that must be true of a request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from kindling.apiserver.registry.admission import Admission, AdmissionAttributes, AdmissionEnvironment
from kubecore.cel import Budget, BudgetExceededError, EvaluationError
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object

from .base import object_name
from .conditions import ConditionError
from .matching import is_exempt
from .policies import Binding, ParameterError, Policy, PolicyEngine, Scope
from .webhooks import in_version

_CODES = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}


@dataclass(frozen=True, slots=True)
class _Denial:
    """Why a policy refuses."""

    message: str
    reason: str = "Invalid"


class _ValidatingPolicy(Policy):
    """A policy with its validations and audit annotations."""

    def __init__(self, raw: JsonObject) -> None:
        super().__init__(raw)
        spec = get_object(raw, "spec")
        self._validations = get_list(spec, "validations")
        self._audit = get_list(spec, "auditAnnotations")

    async def denials(self, scope: Scope) -> list[_Denial]:
        """The failed validations of the policy. Other requests are served between two evaluations."""
        found = []
        for validation in self._validations:
            await asyncio.sleep(0)
            expression = str(validation.get("expression") or "")
            try:
                if self.evaluate(expression, scope) is True:
                    continue
            except BudgetExceededError as error:
                return [] if self.ignores_failure else [_Denial(str(error))]
            except EvaluationError as error:
                if not self.ignores_failure:
                    found.append(_Denial(f"expression '{expression.strip()}' resulted in error: {error}"))
                continue
            reason = str(validation.get("reason") or "Invalid")
            try:
                message = self._message(validation, expression, scope)
            except BudgetExceededError as error:
                return [] if self.ignores_failure else [_Denial(str(error))]
            found.append(_Denial(message, reason))
        return found

    def _message(self, validation: JsonObject, expression: str, scope: Scope) -> str:
        message_expression = validation.get("messageExpression")
        if message_expression:
            try:
                text = self.evaluate(str(message_expression), scope)
            except BudgetExceededError:
                raise
            except EvaluationError:
                text = None
            if isinstance(text, str) and text.strip() and "\n" not in text:
                return text.strip()
        return str(validation.get("message") or "").strip() or f"failed expression: {expression.strip()}"

    def audit_annotations(self, scope: Scope) -> dict[str, str]:
        """What the policy wants to have recorded about the request."""
        found: dict[str, str] = {}
        scope = replace(scope, budget=Budget())
        for annotation in self._audit:
            try:
                value = self.evaluate(str(annotation.get("valueExpression")), scope)
            except EvaluationError as error:
                value = f"failed to evaluate: {error}"
            if isinstance(value, str) and value.strip():
                found[f"{self.name}/{annotation.get('key')}"] = value.strip()
        return found


class ValidatingPolicies(Admission):
    """See the module."""

    def __init__(self, environment: AdmissionEnvironment) -> None:
        self._engine = PolicyEngine(
            environment,
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            _ValidatingPolicy,
        )

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """The first denial is the answer; warnings of all bindings are sent."""
        if is_exempt(attributes):
            return
        denied: StatusError | None = None
        for policy, binding, shown in self._engine.matching(attributes):
            new = await in_version(attributes.object, shown, attributes)
            old = await in_version(attributes.old_object, shown, attributes)
            try:
                scopes = list(self._engine.scopes(policy, binding, attributes, shown, new, old))
            except (ParameterError, ConditionError) as error:
                if not policy.ignores_failure:
                    denied = denied or _refusal(attributes, policy, binding, _Denial(str(error)))
                continue
            for scope in scopes:
                refusal = await self._evaluate(attributes, policy, binding, scope)
                denied = denied or refusal
        if denied is not None:
            raise denied

    async def _evaluate(
        self, attributes: AdmissionAttributes, policy: Policy, binding: Binding, scope: Scope
    ) -> StatusError | None:
        if not isinstance(policy, _ValidatingPolicy):
            return None
        attributes.audit_annotations |= policy.audit_annotations(scope)
        refusal = None
        for denial in await policy.denials(scope):
            if "Warn" in binding.actions:
                attributes.ctx.warn(
                    f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding "
                    f"'{binding.name}': {denial.message}"
                )
            if "Audit" in binding.actions:
                key = "validation.policy.admission.k8s.io/validation_failure"
                attributes.audit_annotations[key] = denial.message
            if "Deny" in binding.actions and refusal is None:
                refusal = _refusal(attributes, policy, binding, denial)
        return refusal


def _refusal(
    attributes: AdmissionAttributes, policy: Policy, binding: Binding, denial: _Denial
) -> StatusError:
    resource, name = attributes.definition.resource, object_name(attributes)
    message = (
        f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}' "
        f"denied request: {denial.message}"
    )
    details: JsonObject = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details |= {"kind": resource.plural, "causes": [{"message": message}]}
    return StatusError(
        _CODES.get(denial.reason, 422),
        denial.reason,
        f'{resource.group_resource} "{name}" is forbidden: {message}',
        details,
    )

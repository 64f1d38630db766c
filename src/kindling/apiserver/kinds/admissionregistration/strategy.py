"""Webhook configurations and admission policies as objects. Their evaluation is admission's."""

from __future__ import annotations

from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_object
from kubecore.resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    ResourceType,
)

from . import validation

_GROUP = "admissionregistration.k8s.io"
MUTATING_POLICIES = ResourceType(_GROUP, "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", False)
MUTATING_POLICY_BINDINGS = ResourceType(
    _GROUP, "v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", False
)
_CATEGORIES = ("api-extensions",)


class WebhookStrategy(BuiltinStrategy):
    """Webhook configurations of either kind."""

    metadata_checks = (0, 1)
    has_status = False
    allow_unconditional_update = False

    def __init__(self, *, mutating: bool) -> None:
        self.mutating = mutating
        table = validation.MUTATING_WEBHOOKS if mutating else validation.VALIDATING_WEBHOOKS
        self.rules = Rules(table)

    def complete(self, obj: JsonObject) -> None:
        """Default to failurePolicy Fail, matchPolicy Equivalent and a timeout of ten seconds."""
        for webhook in get_list(obj, "webhooks"):
            webhook.setdefault("failurePolicy", "Fail")
            webhook.setdefault("matchPolicy", "Equivalent")
            webhook.setdefault("namespaceSelector", {})
            webhook.setdefault("objectSelector", {})
            webhook.setdefault("timeoutSeconds", 10)
            if self.mutating:
                webhook.setdefault("reinvocationPolicy", "Never")
            for rule in get_list(webhook, "rules"):
                rule.setdefault("scope", "*")
            service = get_object(webhook, "clientConfig").get("service")
            if isinstance(service, dict):
                service.setdefault("port", 443)


class PolicyStrategy(BuiltinStrategy):
    """Admission policies of either kind."""

    metadata_checks = (0, 1)
    allow_unconditional_update = False

    def __init__(self, *, mutating: bool) -> None:
        self.has_status = not mutating
        judge = validation.validate_mutating_policy if mutating else validation.validate_validating_policy
        self.rules = Rules(judge)

    def complete(self, obj: JsonObject) -> None:
        """Default to failurePolicy Fail, and set the defaults of the match constraints."""
        spec = obj["spec"]
        spec.setdefault("failurePolicy", "Fail")
        constraints = spec.get("matchConstraints")
        if isinstance(constraints, dict):
            default_match_resources(constraints)


class PolicyBindingStrategy(BuiltinStrategy):
    """Bindings of policies to resources and parameters."""

    metadata_checks = (0, 1)
    has_status = False
    allow_unconditional_update = False

    def __init__(self, *, mutating: bool) -> None:
        self.rules = Rules(validation.MUTATING_BINDING if mutating else validation.VALIDATING_BINDING)

    def complete(self, obj: JsonObject) -> None:
        """Set the defaults of the matched resources."""
        resources = obj["spec"].get("matchResources")
        if isinstance(resources, dict):
            default_match_resources(resources)


def default_match_resources(resources: JsonObject) -> None:
    """Defaults of MatchResources."""
    resources.setdefault("matchPolicy", "Equivalent")
    resources.setdefault("namespaceSelector", {})
    resources.setdefault("objectSelector", {})
    for field in ("resourceRules", "excludeResourceRules"):
        for rule in get_list(resources, field):
            rule.setdefault("scope", "*")


def _param_kind(obj: JsonObject) -> str:
    kind = get_object(obj, "spec").get("paramKind")
    return f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if isinstance(kind, dict) else p.UNSET


def _param_ref(obj: JsonObject) -> str:
    reference = get_object(obj, "spec").get("paramRef")
    if not isinstance(reference, dict):
        return p.UNSET
    if reference.get("name"):
        namespace = reference.get("namespace")
        return f"{namespace}/{reference['name']}" if namespace else f"*/{reference['name']}"
    return p.go_selector(reference["selector"]) if reference.get("selector") is not None else p.UNSET


def definitions() -> list[ResourceDefinition]:
    """Everything of admissionregistration.k8s.io."""
    webhooks = p.Table(
        p.NAME, p.plain("Webhooks", lambda obj: len(get_list(obj, "webhooks")), kind="integer"), p.AGE
    )
    bindings = p.Table(
        p.NAME, p.plain("PolicyName", "spec.policyName"), p.plain("ParamRef", _param_ref), p.AGE
    )
    policies = p.Table(
        p.NAME,
        p.plain("Validations", lambda obj: len(get_list(obj, "spec", "validations")), kind="integer"),
        p.plain("ParamKind", _param_kind),
        p.AGE,
    )
    mutating = p.Table(
        p.NAME,
        p.plain("Mutations", lambda obj: len(get_list(obj, "spec", "mutations")), kind="integer"),
        p.plain("ParamKind", _param_kind),
        p.AGE,
    )
    rows = (
        (MUTATING_POLICIES, PolicyStrategy(mutating=True), mutating),
        (MUTATING_POLICY_BINDINGS, PolicyBindingStrategy(mutating=True), bindings),
        (MUTATING_WEBHOOK_CONFIGURATIONS, WebhookStrategy(mutating=True), webhooks),
        (VALIDATING_ADMISSION_POLICIES, PolicyStrategy(mutating=False), policies),
        (VALIDATING_ADMISSION_POLICY_BINDINGS, PolicyBindingStrategy(mutating=False), bindings),
        (VALIDATING_WEBHOOK_CONFIGURATIONS, WebhookStrategy(mutating=False), webhooks),
    )
    return [
        builtin(resource, strategy, table=table, categories=_CATEGORIES) for resource, strategy, table in rows
    ]

"""Webhook configurations and admission policies: their form. Expressions are compiled by admission."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from kindling.apiserver.kinds.machinery.checks import messages, one_of
from kindling.apiserver.kinds.machinery.fields import Field, check_fields, choice, given, must, named, needed
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)
from kubecore.objects.selectors import validate_label_selector_object

OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
SCOPES = ("*", "Cluster", "Namespaced")
REVIEW_VERSIONS = ("v1", "v1beta1")
MAX_CONDITIONS = 64


def _timeout(path: FieldPath, seconds: int) -> list[FieldError]:
    if 1 <= seconds <= 30:
        return []
    return [invalid(path, seconds, "the timeout value must be between 1 and 30 seconds")]


_FAILURE_POLICY = given("failurePolicy", choice("Fail", "Ignore"))
_MATCH_POLICY = given("matchPolicy", choice("Equivalent", "Exact"))
_SIDE_EFFECTS = Field(
    "sideEffects",
    choice("None", "NoneOnDryRun"),
    required=True,
    detail="must specify one of None, NoneOnDryRun",
    empty_is_set=True,
)
_TIMEOUT = given("timeoutSeconds", _timeout)
_REINVOCATIONS = choice("IfNeeded", "Never")
_REASON = given("reason", choice("Forbidden", "Invalid", "RequestEntityTooLarge"))


def validate_webhooks(obj: JsonObject, *, mutating: bool) -> Iterator[FieldError]:
    """All webhooks of a configuration."""
    seen: set[str] = set()
    for position, webhook in enumerate(get_list(obj, "webhooks")):
        here = FieldPath("webhooks").index(position)
        yield from _validate_webhook(webhook, here, mutating=mutating)
        name = webhook.get("name", "")
        if name in seen:
            yield duplicate(here.child("name"), name)
        seen.add(name)


def _validate_webhook(webhook: JsonObject, path: FieldPath, *, mutating: bool) -> Iterator[FieldError]:
    yield from fully_qualified(webhook.get("name", ""), path.child("name"))
    for position, rule in enumerate(get_list(webhook, "rules")):
        yield from validate_rule(rule, path.child("rules").index(position))
    yield from _validate_review_versions(webhook.get("admissionReviewVersions") or [], path)
    yield from check_fields(webhook, path, _FAILURE_POLICY, _MATCH_POLICY, _SIDE_EFFECTS, _TIMEOUT)
    for field in ("namespaceSelector", "objectSelector"):
        yield from validate_label_selector_object(webhook.get(field), path.child(field))
    if mutating:
        yield from check_fields(webhook, path, given("reinvocationPolicy", _REINVOCATIONS))
    yield from validate_client_config(get_object(webhook, "clientConfig"), path.child("clientConfig"))
    yield from validate_match_conditions(get_list(webhook, "matchConditions"), path.child("matchConditions"))


def fully_qualified(name: str, path: FieldPath) -> list[FieldError]:
    """A domain of at least three segments."""
    if not name:
        return [required(path)]
    found = messages(path, name, names.is_dns1123_subdomain)
    if not found and len(name.split(".")) < 3:
        found.append(invalid(path, name, "should be a domain with at least three segments separated by dots"))
    return found


def _validate_review_versions(versions: list[str], path: FieldPath) -> Iterator[FieldError]:
    at = path.child("admissionReviewVersions")
    if not versions:
        yield required(at, f"must specify one of {', '.join(REVIEW_VERSIONS)}")
        return
    seen: set[str] = set()
    for position, version in enumerate(versions):
        here = at.index(position)
        if version in seen:
            yield invalid(here, version, "duplicate version")
        seen.add(version)
        yield from messages(here, version, names.is_dns1035_label)
    if not seen & set(REVIEW_VERSIONS):
        yield invalid(at, versions, f"must include at least one of {', '.join(REVIEW_VERSIONS)}")


def validate_rule(rule: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """Operations and resources; a wildcard stands alone."""
    operations = get_list(rule, "operations")
    if not operations:
        yield required(path.child("operations"))
    if len(operations) > 1 and "*" in operations:
        text = "if '*' is present, must not specify other operations"
        yield invalid(path.child("operations"), operations, text)
    for position, operation in enumerate(operations):
        yield from one_of(path.child("operations").index(position), operation, OPERATIONS)
    yield from _validate_list(rule, "apiGroups", path, "groups", allow_empty=True)
    yield from _validate_list(rule, "apiVersions", path, "versions", allow_empty=False)
    yield from _validate_resources(get_list(rule, "resources"), path.child("resources"))
    yield from check_fields(rule, path, given("scope", choice(*SCOPES)))


def _validate_list(
    rule: JsonObject, field: str, path: FieldPath, what: str, *, allow_empty: bool
) -> Iterator[FieldError]:
    values, at = get_list(rule, field), path.child(field)
    if not values:
        yield required(at)
        return
    if len(values) > 1 and "*" in values:
        yield invalid(at, values, f"if '*' is present, must not specify other API {what}")
    if not allow_empty:
        yield from (required(at.index(position)) for position, value in enumerate(values) if not value)


def _validate_resources(resources: list[str], path: FieldPath) -> Iterator[FieldError]:
    if not resources:
        yield required(path)
        return
    everything = "*/*" in resources
    for position, resource in enumerate(resources):
        here = path.index(position)
        if not resource:
            yield required(here)
        name, slash, part = resource.partition("/")
        if everything and len(resources) > 1 and resource == "*/*":
            yield invalid(path, resources, "if '*/*' is present, must not specify other resources")
        if slash and part != "*" and f"{name}/*" in resources and name != "*":
            yield invalid(here, resource, f"if '{name}/*' is present, must not specify {resource}")
        if slash and f"*/{part}" in resources and name != "*":
            yield invalid(here, resource, f"if '*/{part}' is present, must not specify {resource}")
    if "*" in resources and any(resource != "*" and "/" not in resource for resource in resources):
        text = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, resources, text)


def validate_client_config(config: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """Exactly one of a URL and a service."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
        return
    if url is not None:
        yield from _validate_url(url, path.child("url"))
        return
    service = get_object(config, "service")
    at = path.child("service")
    yield from check_fields(service, at, *needed("name", "namespace"))
    where = service.get("path")
    if where and not where.startswith("/"):
        yield invalid(at.child("path"), where, "must start with a '/'")
    number = service.get("port", 443)
    if not 1 <= number <= 65535:
        yield invalid(at.child("port"), number, "port is not valid: must be between 1 and 65535, inclusive")


def _validate_url(url: str, path: FieldPath) -> Iterator[FieldError]:
    form = "; desired format: https://host[/path]"
    parts = urlsplit(url)
    if not url:
        yield required(path, "url must not be empty" + form)
        return
    if parts.scheme != "https":
        yield invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{form}")
    if not parts.netloc:
        yield invalid(path, parts.netloc, f"host must be specified{form}")
    if parts.username is not None:
        yield invalid(path, parts.username, "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(path, parts.query, "query parameters are not permitted in the URL")


def validate_match_conditions(conditions: list[JsonObject], path: FieldPath) -> Iterator[FieldError]:
    """Named expressions."""
    seen: set[str] = set()
    if len(conditions) > MAX_CONDITIONS:
        yield too_many(path, len(conditions), MAX_CONDITIONS)
    for position, condition in enumerate(conditions):
        here = path.index(position)
        if not str(condition.get("expression", "")).strip():
            yield required(here.child("expression"))
        yield from check_fields(condition, here, must("name", named(names.is_qualified_name)))
        name = condition.get("name", "")
        if name in seen:
            yield duplicate(here.child("name"), name)
        seen.add(name)


def validate_policy(obj: JsonObject, *, mutating: bool) -> Iterator[FieldError]:
    """An admission policy."""
    spec, path = get_object(obj, "spec"), FieldPath("spec")
    yield from check_fields(spec, path, _FAILURE_POLICY)
    kind = spec.get("paramKind")
    if isinstance(kind, dict):
        yield from _validate_param_kind(kind, path.child("paramKind"))
    constraints = spec.get("matchConstraints")
    at = path.child("matchConstraints")
    if not isinstance(constraints, dict):
        yield required(at)
    else:
        yield from validate_match_resources(constraints, at)
        if not get_list(constraints, "resourceRules"):
            yield required(at.child("resourceRules"))
    if mutating:
        yield from _validate_mutations(spec, path)
    else:
        yield from _validate_validations(spec, path)
    yield from _validate_variables(get_list(spec, "variables"), path.child("variables"))
    yield from validate_match_conditions(get_list(spec, "matchConditions"), path.child("matchConditions"))


def _validate_param_kind(kind: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    version = kind.get("apiVersion", "")
    if not version:
        yield required(path.child("apiVersion"))
    elif version.count("/") > 1:
        yield invalid(path.child("apiVersion"), version, f"unexpected GroupVersion string: {version}")
    yield from check_fields(kind, path, *needed("kind"))


def _validate_validations(spec: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    validations, annotations = get_list(spec, "validations"), get_list(spec, "auditAnnotations")
    if not validations and not annotations:
        text = "validations or auditAnnotations must contain at least one item"
        yield required(path.child("validations"), text)
        yield required(path.child("auditAnnotations"), text)
    for position, rule in enumerate(validations):
        here = path.child("validations").index(position)
        if not str(rule.get("expression", "")).strip():
            yield required(here.child("expression"), "expression is not specified")
        message = rule.get("message", "")
        if message and not message.strip():
            yield invalid(here.child("message"), message, "message must be non-empty if specified")
        elif "\n" in message:
            yield invalid(here.child("message"), message, "message must not contain line breaks")
        yield from check_fields(rule, here, _REASON)
    for position, annotation in enumerate(annotations):
        here = path.child("auditAnnotations").index(position)
        yield from check_fields(annotation, here, *needed("key"))
        if not str(annotation.get("valueExpression", "")).strip():
            yield required(here.child("valueExpression"), "valueExpression is not specified")


def _validate_mutations(spec: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    mutations = get_list(spec, "mutations")
    if not mutations:
        yield required(path.child("mutations"), "mutations must contain at least one item")
    for position, mutation in enumerate(mutations):
        here = path.child("mutations").index(position)
        kind = mutation.get("patchType", "")
        field = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}.get(kind)
        if not kind:
            yield required(here.child("patchType"))
        elif field is None:
            yield not_supported(here.child("patchType"), kind, ["ApplyConfiguration", "JSONPatch"])
        elif not isinstance(mutation.get(field), dict):
            yield required(here.child(field), f"must be specified when patchType is {kind}")
        elif not str(mutation[field].get("expression", "")).strip():
            yield required(here.child(field, "expression"))
    yield from check_fields(spec, path, must("reinvocationPolicy", _REINVOCATIONS))


def _validate_variables(variables: list[JsonObject], path: FieldPath) -> Iterator[FieldError]:
    seen: set[str] = set()
    for position, variable in enumerate(variables):
        here = path.index(position)
        name = variable.get("name", "")
        if not name:
            yield required(here.child("name"), "name is not specified")
        elif names.is_c_identifier(name):
            yield invalid(here.child("name"), name, "must be a valid CEL identifier")
        if name in seen:
            yield duplicate(here.child("name"), name)
        seen.add(name)
        if not str(variable.get("expression", "")).strip():
            yield required(here.child("expression"), "expression is not specified")


def validate_match_resources(resources: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """Which requests a policy or binding is for."""
    yield from check_fields(resources, path, _MATCH_POLICY)
    for field in ("namespaceSelector", "objectSelector"):
        yield from validate_label_selector_object(resources.get(field), path.child(field))
    for field in ("resourceRules", "excludeResourceRules"):
        for position, rule in enumerate(get_list(resources, field)):
            here = path.child(field).index(position)
            yield from _validate_resource_names(get_list(rule, "resourceNames"), here.child("resourceNames"))
            yield from validate_rule(rule, here)


def _validate_resource_names(values: list[str], path: FieldPath) -> Iterator[FieldError]:
    for position, name in enumerate(values):
        yield from messages(path.index(position), name, names.is_path_segment_name)
        if name in values[:position]:
            yield duplicate(path.index(position), name)


def validate_policy_binding(obj: JsonObject, *, mutating: bool) -> list[FieldError]:
    """A binding of a policy."""
    spec, path = get_object(obj, "spec"), FieldPath("spec")
    found = check_fields(spec, path, must("policyName", named(names.is_dns1123_subdomain)))
    reference = spec.get("paramRef")
    if isinstance(reference, dict):
        found += _validate_param_ref(reference, path.child("paramRef"))
    if isinstance(spec.get("matchResources"), dict):
        found += validate_match_resources(spec["matchResources"], path.child("matchResources"))
    if not mutating:
        found += _validate_actions(get_list(spec, "validationActions"), path.child("validationActions"))
    return found


def _validate_param_ref(reference: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    name, selector = reference.get("name"), reference.get("selector")
    exclusive = "name and selector are mutually exclusive"
    if name and selector is not None:
        yield forbidden(path.child("name"), exclusive)
    if selector is not None:
        yield from validate_label_selector_object(selector, path.child("selector"))
    if name and selector is not None:
        yield forbidden(path.child("selector"), exclusive)
    elif not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    action = Field("parameterNotFoundAction", choice("Allow", "Deny"), required=True)
    yield from check_fields(reference, path, action)


def _validate_actions(actions: list[str], path: FieldPath) -> Iterator[FieldError]:
    if not actions:
        yield required(path, "at least one validation action is required")
    for position, action in enumerate(actions):
        yield from one_of(path.index(position), action, ("Audit", "Deny", "Warn"))
        if action in actions[:position]:
            yield duplicate(path.index(position), action)
    if {"Deny", "Warn"} <= set(actions):
        text = (
            "must not contain both Deny and Warn (repeating the same validation failure information "
            "in the API response and headers serves no purpose)"
        )
        yield invalid(path, actions, text)

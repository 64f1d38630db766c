"""Webhook configurations and admission policies: their form. Expressions are compiled by admission."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import not_

from kindling.apiserver.admission.expression_rules import Expressions
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import messages
from kindling.apiserver.kinds.machinery.webhook_clients import webhook_client
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, required

OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
REVIEW_VERSIONS = ("v1", "v1beta1")
MAX_CONDITIONS = 64
_KNOWN_VERSIONS = ", ".join(REVIEW_VERSIONS)
_DENY_AND_WARN = (
    "must not contain both Deny and Warn (repeating the same validation failure information "
    "in the API response and headers serves no purpose)"
)
_EXCLUSIVE = "name and selector are mutually exclusive"


def _three_segments(path: FieldPath, name: str) -> list[FieldError]:
    found = list(f.SUBDOMAIN(path, name))
    if not found and len(name.split(".")) < 3:
        found.append(invalid(path, name, "should be a domain with at least three segments separated by dots"))
    return found


def _review_versions(path: FieldPath, versions: list[str]) -> Iterator[FieldError]:
    for position, version in enumerate(versions):
        if version in versions[:position]:
            yield invalid(path.index(position), version, "duplicate version")
        yield from messages(path.index(position), version, names.is_dns1035_label)
    if not set(versions) & set(REVIEW_VERSIONS):
        yield invalid(path, versions, f"must include at least one of {_KNOWN_VERSIONS}")


def _alone(what: str) -> f.Check:
    """A list in which ``*`` stands alone."""
    text = f"if '*' is present, must not specify other {what}"
    return f.refused(lambda values: len(values) > 1 and "*" in values, text)


def _written(detail: str = "") -> f.Check:
    """A text that is more than white space."""
    return f.lacking(lambda value: not value.strip(), detail)


def _resources(path: FieldPath, resources: list[str]) -> Iterator[FieldError]:
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


_RULE: tuple[f.Row, ...] = (
    f.must("operations", _alone("operations"), f.items(f.choice(*OPERATIONS))),
    f.must("apiGroups", _alone("API groups")),
    f.must("apiVersions", _alone("API versions"), f.items(f.lacking(not_))),
    f.must("resources", _resources),
    f.given("scope", f.choice("*", "Cluster", "Namespaced")),
)
_FAILURE_POLICY = f.given("failurePolicy", f.choice("Fail", "Ignore"))
_MATCH_POLICY = f.given("matchPolicy", f.choice("Equivalent", "Exact"))
_SELECTORS = (f.given("namespaceSelector", f.selector), f.given("objectSelector", f.selector))
_REINVOCATIONS = f.choice("IfNeeded", "Never")


def _code(check: f.Check, detail: str = "") -> f.Check:
    """An expression, which is more than white space and satisfies `check`."""
    return lambda path, text: check(path, text) if text.strip() else [required(path, detail)]


def _match_conditions(check: f.Check) -> f.Row:
    """Expressions, of which all must be true for an admission to matter; `check` compiles them."""

    def trimmed(path: FieldPath, text: str) -> Iterable[FieldError]:
        return check(path, text.strip())

    return f.may(
        "matchConditions",
        f.fewer(MAX_CONDITIONS),
        f.items(f.always("expression", "", _code(trimmed)), f.must("name", f.QUALIFIED), f.Once("name")),
    )


_SIDE_EFFECTS = f.must(
    "sideEffects",
    f.choice("None", "NoneOnDryRun"),
    detail="must specify one of None, NoneOnDryRun",
    given=True,
)
_WEBHOOK_HEAD: tuple[f.Row, ...] = (
    f.must("name", _three_segments),
    f.may("rules", f.items(*_RULE)),
    _FAILURE_POLICY,
    _MATCH_POLICY,
    _SIDE_EFFECTS,
    f.given("timeoutSeconds", f.between(1, 30, "the timeout value must be between 1 and 30 seconds")),
    *_SELECTORS,
)
_WEBHOOK_TAIL = (
    f.part("clientConfig", webhook_client),
    f.must("admissionReviewVersions", _review_versions, detail=f"must specify one of {_KNOWN_VERSIONS}"),
    _match_conditions(Expressions(()).condition),
)
_REINVOKED = f.given("reinvocationPolicy", _REINVOCATIONS)
VALIDATING_WEBHOOKS = f.document(f.may("webhooks", f.items(*_WEBHOOK_HEAD, *_WEBHOOK_TAIL, f.Once("name"))))
MUTATING_WEBHOOKS = f.document(
    f.may("webhooks", f.items(*_WEBHOOK_HEAD, _REINVOKED, *_WEBHOOK_TAIL, f.Once("name")))
)


def _group_version(path: FieldPath, version: str) -> Iterator[FieldError]:
    if version.count("/") > 1:
        yield invalid(path, version, f"unexpected GroupVersion string: {version}")
        return
    group, _, name = version.rpartition("/")
    if group and (problems := names.is_dns1123_subdomain(group)):
        yield invalid(path, group, ",".join(problems))
    if not name:
        yield invalid(path, version, "version must be specified")
    elif problems := names.is_dns1035_label(name):
        yield invalid(path, name, ",".join(problems))


def _kind(path: FieldPath, kind: str) -> Iterator[FieldError]:
    if problems := names.is_dns1035_label(kind.lower()):
        yield invalid(path, kind, f"may have mixed case, but should otherwise match: {','.join(problems)}")


def _message(path: FieldPath, message: str) -> Iterator[FieldError]:
    if not message.strip():
        yield invalid(path, message, "message must be non-empty if specified")
    elif "\n" in message:
        yield invalid(path, message, "message must not contain line breaks")


def _mutation(expressions: Expressions) -> f.Check:
    """What a policy changes, by a patch of one of two types."""

    def check(path: FieldPath, mutation: JsonObject) -> Iterable[FieldError]:
        kind = mutation.get("patchType", "")
        field = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}.get(kind)
        if field is None:
            types = f.choice("ApplyConfiguration", "JSONPatch")
            return f.check_fields(mutation, path, f.must("patchType", types))
        expression = f.always("expression", "", _code(expressions.mutation))
        missing = f"must be specified when patchType is {kind}"
        return f.check_fields(mutation, path, f.must(field, expression, detail=missing, given=True))

    return check


_IDENTIFIER = f.refused(names.is_c_identifier, "must be a valid CEL identifier")
_NO_EXPRESSION = "expression is not specified"
_NAMED_RULES = f.items(f.may("resourceNames", f.items(f.PATH_SEGMENT, f.Once())), *_RULE)
_MATCH_RESOURCES: tuple[f.Row, ...] = (
    _MATCH_POLICY,
    *_SELECTORS,
    f.may("resourceRules", _NAMED_RULES),
    f.may("excludeResourceRules", _NAMED_RULES),
)
_POLICY_HEAD: tuple[f.Row, ...] = (
    _FAILURE_POLICY,
    f.given("paramKind", f.must("apiVersion", _group_version), f.must("kind", _kind)),
    f.must("matchConstraints", *_MATCH_RESOURCES, f.must("resourceRules"), given=True),
)


def _conditions_and_variables(expressions: Expressions) -> tuple[f.Row, ...]:
    """When a policy matters, and what its expressions share."""
    return (
        _match_conditions(expressions.condition),
        f.may(
            "variables",
            f.items(
                f.must("name", _IDENTIFIER, detail="name is not specified"),
                f.Once("name"),
                f.always("expression", "", _code(expressions.variable, _NO_EXPRESSION)),
                expressions.note_type,
            ),
        ),
    )


def _validation(expressions: Expressions) -> tuple[f.Row, ...]:
    """What must be true, and what is said where it is not."""

    def message_expression(path: FieldPath, text: str) -> Iterable[FieldError]:
        return expressions.text(path, text) if text.strip() else [invalid(path, text, _NON_EMPTY)]

    return (
        f.always("expression", "", _code(expressions.truth, _NO_EXPRESSION)),
        f.may("messageExpression", message_expression),
        f.may("message", _message),
        f.given("reason", f.choice("Forbidden", "Invalid", "RequestEntityTooLarge")),
    )


def _annotation(policy: str, expressions: Expressions) -> tuple[f.Row | f.Once, ...]:
    """A value for the audit log, under a key that starts with the name of the policy."""

    def key(path: FieldPath, key: str) -> list[FieldError]:
        if not policy:
            return [invalid(path, key, "requires metadata.name be non-empty")]
        return messages(path, f"{policy}/{key}", names.is_qualified_name)

    def value(path: FieldPath, text: str) -> Iterable[FieldError]:
        if len(text.strip().encode()) > MAX_VALUE_EXPRESSION:
            return [required(path, f"must not exceed {MAX_VALUE_EXPRESSION} bytes in length")]
        return expressions.text_or_null(path, text)

    missing = "valueExpression is not specified"
    return f.always("key", "", key), f.always("valueExpression", "", _code(value, missing)), f.Once("key")


def _few_annotations(path: FieldPath, annotations: list[JsonObject]) -> list[FieldError]:
    text = f"must not have more than {MAX_ANNOTATIONS} auditAnnotations"
    return [invalid(path, annotations, text)] if len(annotations) > MAX_ANNOTATIONS else []


MAX_ANNOTATIONS, MAX_VALUE_EXPRESSION = 20, 5 * 1024
_NON_EMPTY = "must be non-empty if specified"
_NOTHING = "validations or auditAnnotations must contain at least one item"


def validate_validating_policy(policy: JsonObject) -> Iterable[FieldError]:
    """A policy that refuses, its expressions compiled."""
    spec, name = get_object(policy, "spec"), get_str(policy, "metadata", "name")
    expressions = Expressions.of_policy(spec)
    idle = not spec.get("validations") and not spec.get("auditAnnotations")
    return f.spec(
        *_POLICY_HEAD,
        *_conditions_and_variables(expressions),
        f.lacking(lambda spec: idle, _NOTHING, "validations", "auditAnnotations"),
        f.may("validations", f.items(*_validation(expressions))),
        f.may("auditAnnotations", _few_annotations, f.items(*_annotation(name, expressions))),
    )(policy)


def validate_mutating_policy(policy: JsonObject) -> Iterable[FieldError]:
    """A policy that changes objects, its expressions compiled."""
    expressions = Expressions.of_policy(get_object(policy, "spec"))
    mutations = f.items(_mutation(expressions))
    return f.spec(
        *_POLICY_HEAD,
        *_conditions_and_variables(expressions),
        f.must("mutations", mutations, detail="mutations must contain at least one item"),
        f.must("reinvocationPolicy", _REINVOCATIONS),
    )(policy)


def _param_ref(path: FieldPath, reference: JsonObject) -> Iterator[FieldError]:
    name, picks = reference.get("name"), reference.get("selector")
    yield from f.check_fields(reference, path, f.may("name", f.PATH_SEGMENT))
    if name and picks is not None:
        yield forbidden(path.child("name"), _EXCLUSIVE)
    yield from f.check_fields(reference, path, f.given("selector", f.selector))
    if name and picks is not None:
        yield forbidden(path.child("selector"), _EXCLUSIVE)
    elif not name and picks is None:
        yield required(path, "one of name or selector must be specified")


_BINDING: tuple[f.Row, ...] = (
    f.must("policyName", f.SUBDOMAIN),
    f.given("paramRef", _param_ref, f.must("parameterNotFoundAction", f.choice("Allow", "Deny"))),
    f.given("matchResources", *_MATCH_RESOURCES),
)
MUTATING_BINDING = f.spec(*_BINDING)
VALIDATING_BINDING = f.spec(
    *_BINDING,
    f.must(
        "validationActions",
        f.items(f.choice("Audit", "Deny", "Warn"), f.Once()),
        f.refused(lambda actions: {"Deny", "Warn"} <= set(actions), _DENY_AND_WARN),
        detail="at least one validation action is required",
    ),
)

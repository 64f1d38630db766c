"""``flowcontrol.apiserver.k8s.io``: FlowSchemas and PriorityLevelConfigurations.

They are stored only: this server does not limit requests by them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.checks import messages
from kindling.apiserver.kinds.machinery.internal import internal_form
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, not_supported, required
from kubecore.resources import ResourceType

_GROUP = "flowcontrol.apiserver.k8s.io"
FLOW_SCHEMAS = ResourceType(_GROUP, "v1", "flowschemas", "FlowSchema", False)
PRIORITY_LEVELS = ResourceType(
    _GROUP, "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", False
)
NOT_ENFORCED = (
    "this object has no effect: the server does not limit requests by flow schemas and priority levels"
)
_SPEC = FieldPath("spec")
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
_SUBJECTS = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}
_IN_NAMESPACES = "each member of this list must be '*' or a DNS-1123 label; "


def _alone(what: str, rest: f.Check | None = None) -> f.Check:
    """A list in which ``*`` stands alone; `rest` judges lists without it."""

    def check(path: FieldPath, value: list[str]) -> Iterable[FieldError]:
        if "*" in value:
            text = f"if '*' is present, must not specify other {what}"
            return [invalid(path, value, text)] if len(value) > 1 else []
        return rest(path, value) if rest is not None else []

    return check


def _known_verbs(path: FieldPath, verbs: list[str]) -> list[FieldError]:
    return [] if set(verbs) <= set(_VERBS) else [not_supported(path, verbs, _VERBS)]


def _namespace(path: FieldPath, name: str) -> list[FieldError]:
    return [invalid(path, name, _IN_NAMESPACES + text) for text in names.is_dns1123_label(name)]


def _url(path: FieldPath, url: str) -> list[FieldError]:
    if not url:
        return [required(path, "must not be empty")]
    text = ""
    if url != "/" and not url.startswith("/"):
        text = "must start with slash"
    elif " " in url:
        text = "must not contain white-space"
    elif "//" in url:
        text = "must not contain double slash"
    elif "*" in url.removesuffix("/*"):
        text = "wildcard can only do suffix matching"
    return [invalid(path, url, text)] if text else []


_VERB_RULE = f.must("verbs", _alone("verbs", _known_verbs), detail="verbs must contain at least one value")
_URL_RULE = f.must(
    "nonResourceURLs",
    _alone("non-resource URLs", f.items(_url)),
    detail="nonResourceURLs must contain at least one value",
)
_RESOURCE_RULES = (
    _VERB_RULE,
    f.must("apiGroups", _alone("api groups"), detail="resource rules must supply at least one api group"),
    f.must("resources", _alone("resources"), detail="resource rules must supply at least one resource"),
)


_NAMESPACES = _alone("namespaces", f.items(_namespace))
_IN_SOME_NAMESPACE = "resource rules that are not cluster scoped must supply at least one namespace"


def _resource_rule(path: FieldPath, rule: JsonObject) -> Iterable[FieldError]:
    namespaces = f.must("namespaces", _NAMESPACES, detail=_IN_SOME_NAMESPACE)
    if rule.get("clusterScope"):
        namespaces = f.given("namespaces", _NAMESPACES)
    return f.check_fields(rule, path, *_RESOURCE_RULES, namespaces)


def _service_account(path: FieldPath, name: str) -> list[FieldError]:
    return [] if name == "*" else messages(path, name, names.is_dns1123_subdomain)


_SUBJECT_RULES: dict[str, f.Check] = {
    "Group": f.within(f.must("name")),
    "User": f.within(f.must("name")),
    "ServiceAccount": f.within(
        f.must("name", _service_account),
        f.must("namespace", f.LABEL, detail="must specify namespace for service account"),
    ),
}


def _subject(path: FieldPath, subject: JsonObject) -> Iterator[FieldError]:
    kind = subject.get("kind", "")
    if kind not in _SUBJECTS:
        yield not_supported(path.child("kind"), kind, sorted(_SUBJECTS))
        return
    field = _SUBJECTS[kind]
    text = f"{field} is required when subject kind is '{kind}'"
    yield from f.check_fields(subject, path, f.must(field, _SUBJECT_RULES[kind], detail=text, given=True))
    for other in ("ServiceAccount", "User", "Group"):
        name = _SUBJECTS[other]
        if other != kind and subject.get(name) is not None:
            yield forbidden(path.child(name), f"{name} is forbidden when subject kind is not '{other}'")


def _rule(path: FieldPath, rule: JsonObject) -> Iterator[FieldError]:
    yield from f.check_fields(
        rule, path, f.must("subjects", f.items(_subject), detail="subjects must contain at least one value")
    )
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        yield required(path, "at least one of resourceRules and nonResourceRules has to be non-empty")
    yield from f.check_fields(
        rule,
        path,
        f.given("resourceRules", f.items(_resource_rule)),
        f.given("nonResourceRules", f.items(_VERB_RULE, _URL_RULE)),
    )


def _only_exempt_is_first(obj: JsonObject) -> Iterator[FieldError]:
    precedence = get_object(obj, "spec").get("matchingPrecedence", 0)
    if precedence == 1 and get_str(obj, "metadata", "name") != "exempt":
        text = "only the schema named 'exempt' may have matchingPrecedence 1"
        yield invalid(_SPEC.child("matchingPrecedence"), precedence, text)


def _distinguisher(path: FieldPath, method: JsonObject) -> Iterator[FieldError]:
    if method.get("type") not in ("ByNamespace", "ByUser"):
        shown = internal_form(method, {"Type": ""})
        yield not_supported(path.child("type"), shown, ["ByNamespace", "ByUser"])


def validate_flow_schema(obj: JsonObject) -> Iterator[FieldError]:
    """Precedence, level, and rules that match something."""
    yield from _PRECEDENCE(obj)
    yield from _only_exempt_is_first(obj)
    yield from _FLOWS(obj)
    yield from _CONDITIONS(obj, obj)


_CONDITIONS = f.status(
    f.may("conditions", f.items(f.Once("type"), f.must("type", detail="must not be empty")))
)
_PRECEDENCE = f.spec(
    f.always(
        "matchingPrecedence",
        0,
        f.at_least(1, "must be a positive value"),
        f.at_most(10000, "must not be greater than 10000"),
    )
)
_FLOWS = f.spec(
    f.given("distinguisherMethod", _distinguisher),
    f.part(
        "priorityLevelConfiguration", f.must("name", f.SUBDOMAIN, detail="must reference a priority level")
    ),
    f.given("rules", f.items(_rule)),
)
_POSITIVE = f.at_least(1, "must be positive")


def _queuing(path: FieldPath, queuing: JsonObject) -> Iterator[FieldError]:
    yield from f.check_fields(
        queuing, path, f.given("queueLengthLimit", _POSITIVE), f.given("queues", _POSITIVE)
    )
    queues, hand = queuing.get("queues", 0), queuing.get("handSize", 0)
    if queues > 10_000_000:
        yield invalid(path.child("queues"), queues, "must not be greater than 10000000")
    if hand <= 0:
        yield invalid(path.child("handSize"), hand, "must be positive")
    elif hand > queues:
        yield invalid(path.child("handSize"), hand, f"should not be greater than queues ({queues})")
    elif math.ceil(math.log2(queues) * hand) > _MAX_ENTROPY:
        text = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than"
        yield invalid(path.child("handSize"), hand, f"{text} {_MAX_ENTROPY}")


_MAX_ENTROPY = 60
"""Bits of the hash by which requests are dealt to queues."""


def _response(path: FieldPath, response: JsonObject) -> Iterable[FieldError]:
    kind, queuing, at = response.get("type", ""), response.get("queuing"), path.child("queuing")
    if kind == "Reject" and queuing is not None:
        return [forbidden(at, "must be nil if limited.limitResponse.type is not Limited")]
    if kind == "Queue" and queuing is None:
        return [required(at, "must not be empty if limited.limitResponse.type is Limited")]
    if kind == "Queue":
        return _queuing(at, queuing or {})
    return [] if kind == "Reject" else [not_supported(path.child("type"), kind, ["Queue", "Reject"])]


_SHARES = f.given("nominalConcurrencyShares", f.at_least(0, "must be a non-negative integer"))
_LENDABLE = f.given("lendablePercent", f.between(0, 100))
_BORROWED = f.given("borrowingLimitPercent", f.at_least(0, "if specified, must be a non-negative integer"))


def validate_priority_level(obj: JsonObject) -> Iterator[FieldError]:
    """The type is known, and only the field of this type is set."""
    spec = get_object(obj, "spec")
    kind, limited = spec.get("type", ""), spec.get("limited")
    is_exempt = get_str(obj, "metadata", "name") == "exempt"
    if is_exempt != (kind == "Exempt"):
        yield invalid(_SPEC.child("type"), kind, "type must be 'Exempt' if and only if `name` is 'exempt'")
    if kind == "Exempt":
        if limited is not None:
            yield forbidden(_SPEC.child("limited"), "must be nil if the type is not Limited")
        yield from f.check_fields(spec, _SPEC, f.given("exempt", _SHARES, _LENDABLE))
        return
    if kind != "Limited":
        yield from f.choice("Exempt", "Limited")(_SPEC.child("type"), kind)
        return
    if spec.get("exempt") is not None:
        yield forbidden(_SPEC.child("exempt"), "must be nil if the type is Limited")
    if limited is None:
        yield required(_SPEC.child("limited"), "must not be empty when type is Limited")
        return
    yield from f.check_fields(
        limited, _SPEC.child("limited"), _SHARES, f.part("limitResponse", _response), _LENDABLE, _BORROWED
    )


def _not_enforced(obj: JsonObject, old: JsonObject | None) -> list[str]:
    return [NOT_ENFORCED] if old is None else []


class FlowSchemaStrategy(BuiltinStrategy):
    """Which requests share a priority level."""

    metadata_checks = (0, 1)
    rules = Rules(validate_flow_schema, status=_CONDITIONS, warnings=_not_enforced)

    def complete(self, obj: JsonObject) -> None:
        """Default to precedence 1000."""
        if not obj["spec"].get("matchingPrecedence"):
            obj["spec"]["matchingPrecedence"] = 1000


class PriorityLevelStrategy(BuiltinStrategy):
    """How many requests run at once."""

    metadata_checks = (0, 1)
    rules = Rules(validate_priority_level, status=_CONDITIONS, warnings=_not_enforced)

    def complete(self, obj: JsonObject) -> None:
        """Default the shares and limits of both types."""
        spec = obj["spec"]
        limited = spec.get("limited")
        if isinstance(limited, dict):
            if limited.get("nominalConcurrencyShares") is None:
                limited["nominalConcurrencyShares"] = 30
            limited.setdefault("lendablePercent", 0)
            response = limited.get("limitResponse") or {}
            queuing = response.get("queuing")
            if isinstance(queuing, dict):
                for field, value in (("queues", 64), ("queueLengthLimit", 50), ("handSize", 8)):
                    if not queuing.get(field):
                        queuing[field] = value
        exempt = spec.get("exempt")
        if isinstance(exempt, dict):
            exempt.setdefault("nominalConcurrencyShares", 0)
            exempt.setdefault("lendablePercent", 0)


def _dangling(obj: JsonObject) -> Any:
    conditions = get_list(obj, "status", "conditions")
    return next((item.get("status") for item in conditions if item.get("type") == "Dangling"), "?")


def _shares(obj: JsonObject) -> Any:
    limited = get_object(obj, "spec", "limited")
    return limited.get("nominalConcurrencyShares") if limited else p.NONE


def definitions() -> list[ResourceDefinition]:
    """Flow schemas and priority levels."""
    schemas = p.Table(
        p.NAME,
        p.plain("PriorityLevel", "spec.priorityLevelConfiguration.name"),
        p.plain("MatchingPrecedence", "spec.matchingPrecedence", absent=0),
        p.plain("DistinguisherMethod", "spec.distinguisherMethod.type", empty=p.NONE),
        p.AGE,
        p.plain("MissingPL", _dangling),
    )
    queuing = "spec.limited.limitResponse.queuing"
    levels = p.Table(
        p.NAME,
        p.plain("Type", "spec.type"),
        p.plain("NominalConcurrencyShares", _shares),
        p.plain("Queues", f"{queuing}.queues", absent=p.NONE),
        p.plain("HandSize", f"{queuing}.handSize", absent=p.NONE),
        p.plain("QueueLengthLimit", f"{queuing}.queueLengthLimit", absent=p.NONE),
        p.AGE,
    )
    return [
        builtin(FLOW_SCHEMAS, FlowSchemaStrategy(), table=schemas),
        builtin(PRIORITY_LEVELS, PriorityLevelStrategy(), table=levels),
    ]

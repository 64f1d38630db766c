"""Which requests a webhook or a policy wants to see: rules, match policy, selectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kindling.apiserver.registry.admission import AdmissionAttributes
from kindling.apiserver.registry.context import ObjectReader
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore import errors
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import meta
from kubecore.objects.selectors import LabelSelector, from_label_selector_object
from kubecore.resources import NAMESPACES, ResourceType

_EXEMPT = frozenset(
    {
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    }
)


def is_exempt(attributes: AdmissionAttributes) -> bool:
    """The objects that configure admission are never shown to it: a broken one could not be repaired."""
    resource = attributes.definition.resource
    return resource.group == "admissionregistration.k8s.io" and resource.plural in _EXEMPT


@dataclass(frozen=True, slots=True)
class Match:
    """How a request matched: `definition` is the version in which the object is to be shown."""

    definition: ResourceDefinition


class ResourceMatcher:
    """Compiled rules and selectors of one webhook, or of one ``matchResources`` of a policy."""

    def __init__(self, raw: JsonObject, rules_field: str = "rules") -> None:
        self._rules = get_list(raw, rules_field)
        self._excluded = get_list(raw, "excludeResourceRules")
        self._equivalent = raw.get("matchPolicy") != "Exact"
        self._namespaces = from_label_selector_object(get_object(raw, "namespaceSelector"))
        self._objects = from_label_selector_object(get_object(raw, "objectSelector"))

    @property
    def has_rules(self) -> bool:
        """Whether any rule is given; a binding without rules leaves the choice to its policy."""
        return bool(self._rules)

    def match(
        self,
        attributes: AdmissionAttributes,
        equivalents: Sequence[ResourceDefinition],
        objects: ObjectReader,
    ) -> Match | None:
        """How the request matches, or None. Raises StatusError when its namespace cannot be found.

        `equivalents` serve the objects of the request, in all versions.
        """
        if any(_matches_rule(rule, attributes, attributes.definition.resource) for rule in self._excluded):
            return None
        found = self.match_rules(attributes, equivalents)
        if found is None:
            return None
        return found if self.match_selectors(attributes, objects) else None

    def match_rules(
        self, attributes: AdmissionAttributes, equivalents: Sequence[ResourceDefinition]
    ) -> Match | None:
        """How the rules match, selectors left aside."""
        asked = attributes.definition
        if any(_matches_rule(rule, attributes, asked.resource) for rule in self._rules):
            return Match(asked)
        if not self._equivalent:
            return None
        for other in equivalents:
            if other is not asked and any(
                _matches_rule(rule, attributes, other.resource) for rule in self._rules
            ):
                return Match(other)
        return None

    def match_selectors(self, attributes: AdmissionAttributes, objects: ObjectReader) -> bool:
        """Whether namespace and object have the wanted labels."""
        return _matches_namespace(self._namespaces, attributes, objects) and _matches_object(
            self._objects, attributes
        )


def _matches_rule(rule: JsonObject, attributes: AdmissionAttributes, resource: ResourceType) -> bool:
    operations = rule.get("operations") or ()
    if "*" not in operations and attributes.operation not in operations:
        return False
    if not _listed(rule.get("apiGroups") or (), resource.group):
        return False
    if not _listed(rule.get("apiVersions") or (), resource.version):
        return False
    names = rule.get("resourceNames") or ()
    if names and attributes.ctx.name not in names:
        return False
    scope = rule.get("scope") or "*"
    if scope != "*" and (scope == "Namespaced") != (resource.namespaced and bool(attributes.ctx.namespace)):
        return False
    return any(
        _matches_resource(str(pattern), resource.plural, attributes.ctx.subresource)
        for pattern in rule.get("resources") or ()
    )


def _listed(patterns: Sequence[str], value: str) -> bool:
    return "*" in patterns or value in patterns


def _matches_resource(pattern: str, plural: str, subresource: str) -> bool:
    wanted, _, part = pattern.partition("/")
    return wanted in ("*", plural) and part in ((subresource, "*") if subresource or part else ("",))


def _matches_namespace(
    selector: LabelSelector, attributes: AdmissionAttributes, objects: ObjectReader
) -> bool:
    """Namespaces are judged by their own labels; objects outside namespaces always match."""
    if selector.is_everything:
        return True
    resource = attributes.definition.resource
    if resource.group == "" and resource.plural == "namespaces" and not attributes.ctx.subresource:
        shown = attributes.object if attributes.object is not None else attributes.old_object
        return selector.matches(meta.labels(shown or {}))
    namespace = attributes.ctx.namespace
    if not resource.namespaced or not namespace:
        return True
    found = objects.get(NAMESPACES, None, namespace)
    if found is None:
        raise errors.not_found(NAMESPACES, namespace)
    return selector.matches(meta.labels(found))


def _matches_object(selector: LabelSelector, attributes: AdmissionAttributes) -> bool:
    """Either the new or the old object has the labels."""
    if selector.is_everything:
        return True
    shown = (attributes.object, attributes.old_object)
    return any(obj is not None and selector.matches(meta.labels(obj)) for obj in shown)

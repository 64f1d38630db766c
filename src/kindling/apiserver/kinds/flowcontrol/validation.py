"""FlowSchemas and PriorityLevelConfigurations."""

from __future__ import annotations

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, not_supported, required


def validate_flow_schema(obj: JsonObject) -> list[FieldError]:
    """Precedence, level, and rules that match something."""
    spec = get_object(obj, "spec")
    path = FieldPath("spec")
    found: list[FieldError] = []
    precedence = spec.get("matchingPrecedence", 0)
    if precedence <= 0:
        found.append(invalid(path.child("matchingPrecedence"), precedence, "must be a positive value"))
    if precedence > 10000:
        text = "must not be greater than 10000"
        found.append(invalid(path.child("matchingPrecedence"), precedence, text))
    if not get_str(spec, "priorityLevelConfiguration", "name"):
        text = "must reference a priority level"
        found.append(required(path.child("priorityLevelConfiguration", "name"), text))
    for position, rule in enumerate(get_list(spec, "rules")):
        at = path.child("rules").index(position)
        if not rule.get("subjects"):
            found.append(required(at.child("subjects"), "subjects must contain at least one value"))
        if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
            text = "at least one of resourceRules and nonResourceRules has to be non-empty"
            found.append(required(at, text))
    return found


def validate_priority_level(obj: JsonObject) -> list[FieldError]:
    """The type is known, and only the field of this type is set."""
    spec = get_object(obj, "spec")
    path = FieldPath("spec")
    kind = spec.get("type", "")
    if kind not in ("Exempt", "Limited"):
        return [not_supported(path.child("type"), kind, ["Exempt", "Limited"])]
    if kind == "Limited" and "limited" not in spec:
        return [required(path.child("limited"), "must not be empty when type is Limited")]
    if kind == "Exempt" and "limited" in spec:
        return [forbidden(path.child("limited"), "must be nil if the type is not Limited")]
    return []

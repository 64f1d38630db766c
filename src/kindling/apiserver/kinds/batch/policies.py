"""What a job makes of pods that failed, and when it has succeeded before all of them have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import are_repeats, not_negative, one_of
from kindling.apiserver.kinds.machinery.internal import internal_form
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.fields import OMITTED, FieldError, FieldPath, duplicate, go_quote, invalid, required

from .indexes import count_indexes

_MAX_RULES, _MAX_INDEX_TEXT = 20, 64 * 1024
_FAILURE_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")


def failure_policy(path: FieldPath, spec: JsonObject) -> Iterable[FieldError]:
    """What is done about failed pods, by rules that name containers of the template."""
    pod = get_object(spec, "template", "spec")
    containers = {item.get("name") for field in _CONTAINERS for item in get_list(pod, field)}

    def container(path: FieldPath, name: str) -> Iterator[FieldError]:
        if name not in containers:
            yield invalid(
                path, name, "must be one of the container or initContainer names in the pod template"
            )

    def action(path: FieldPath, action: str) -> Iterable[FieldError]:
        if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            return [invalid(path, action, "requires the backoffLimitPerIndex to be set")]
        return one_of(path, action, _FAILURE_ACTIONS)

    rule = (
        f.must("action", action, detail=_valid(*_FAILURE_ACTIONS)),
        f.given("onExitCodes", _OPERATOR, f.given("containerName", container), _exit_codes),
        f.may("onPodConditions", f.fewer(_MAX_RULES), f.items(*_POD_CONDITION)),
        _one_condition,
    )
    return f.check_fields(
        spec, path, f.part("podFailurePolicy", f.may("rules", f.fewer(_MAX_RULES), f.items(*rule)))
    )


_CONTAINERS = ("containers", "initContainers")


def _valid(*values: str) -> str:
    """What the error of a missing value offers, as the server writes its lists."""
    return f"valid values: [{' '.join(map(go_quote, values))}]"


_OPERATOR = f.must("operator", f.choice("In", "NotIn"), detail=_valid("In", "NotIn"))
_STATUSES = ("False", "True", "Unknown")
_POD_CONDITION = (
    f.always("type", "", f.QUALIFIED),
    f.must("status", f.choice(*_STATUSES), detail=_valid(*_STATUSES)),
)


def _one_condition(path: FieldPath, rule: JsonObject) -> Iterator[FieldError]:
    codes, conditions = rule.get("onExitCodes"), get_list(rule, "onPodConditions")
    if codes is not None and conditions:
        yield invalid(path, OMITTED, "specifying both OnExitCodes and OnPodConditions is not supported")
    if codes is None and not conditions:
        yield invalid(path, OMITTED, "specifying one of OnExitCodes and OnPodConditions is required")


def _exit_codes(path: FieldPath, codes: JsonObject) -> Iterator[FieldError]:
    values, at = codes.get("values") or [], path.child("values")
    if not values:
        yield invalid(at, codes.get("values"), "at least one value is required")
    yield from f.fewer(255)(at, values)
    for position, (value, is_repeat) in enumerate(zip(values, are_repeats(values), strict=True)):
        if codes.get("operator") == "In" and value == 0:
            yield invalid(at.index(position), value, "must not be 0 for the In operator")
        if is_repeat:
            yield duplicate(at.index(position), value)
    if values != sorted(values):
        yield invalid(at, values, "must be ordered")


def success_policy(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    """When a job that counts by index has succeeded before all indexes have."""
    policy, at = spec.get("successPolicy"), path.child("successPolicy")
    if policy is None:
        return
    if spec.get("completionMode") != "Indexed":
        yield invalid(at, internal_form(policy, INTERNAL_SUCCESS), "requires indexed completion mode")
        return
    completions = spec.get("completions") or 0
    text = "at least one rules must be specified when the successPolicy is specified"
    rules = (f.fewer(_MAX_RULES), f.items(partial(_success_rule, completions)))
    yield from f.check_fields(policy, at, f.must("rules", *rules, detail=text))


INTERNAL_SUCCESS = {"Rules": [{"SucceededIndexes": None, "SucceededCount": None}]}
INTERNAL_FAILURE = {
    "Rules": [
        {
            "Action": "",
            "OnExitCodes": {"ContainerName": None, "Operator": "", "Values": None},
            "OnPodConditions": [{"Type": "", "Status": ""}],
        }
    ]
}


def _success_rule(completions: int, path: FieldPath, rule: JsonObject) -> Iterator[FieldError]:
    indexes, count = rule.get("succeededIndexes"), rule.get("succeededCount")
    at, total = path.child("succeededIndexes"), 0
    if indexes is None and count is None:
        yield required(path, "at least one of succeededCount or succeededIndexes must be specified")
    if indexes is not None:
        yield from f.shorter(_MAX_INDEX_TEXT)(at, indexes)
        try:
            total = count_indexes(indexes, completions)
        except ValueError as error:
            yield invalid(at, indexes, f"error parsing succeededIndexes: {error}")
    if count is None:
        return
    at, text = path.child("succeededCount"), "must be less than or equal to"
    yield from not_negative(at, count)
    if count > completions:
        yield invalid(at, count, f"{text} {completions} (the number of specified completions)")
    if indexes is not None and count > total:
        where = "the number of indexes in the specified succeededIndexes field"
        yield invalid(at, count, f"{text} {total} ({where})")

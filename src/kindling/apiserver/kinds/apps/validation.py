"""Workloads: counts, selectors, templates, update strategies; what may change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kindling.apiserver.kinds.core.pods.validation import validate_template
from kindling.apiserver.kinds.core.volumes.claim_validation import validate_claim_spec
from kindling.apiserver.kinds.machinery.checks import (
    NOT_NEGATIVE,
    at_most_100_percent,
    counts,
    int_or_percent,
    is_percent,
    not_negative,
    scaled,
)
from kindling.apiserver.kinds.machinery.fields import check_fields, needed
from kindling.apiserver.kinds.machinery.internal import internal_form
from kindling.apiserver.registry.context import RequestContext
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, not_supported, required
from kubecore.objects.selectors import from_label_selector_object, validate_label_selector_object

_SPEC = FieldPath("spec")
_TEMPLATE = _SPEC.child("template")
NO_MATCH = "`selector` does not match template `labels`"
STATEFUL_MUTABLE = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_STATEFUL_FIELDS = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def validate_scale(ctx: RequestContext, scale: JsonObject) -> list[FieldError]:
    """A Scale: no negative number of pods."""
    return not_negative(_SPEC.child("replicas"), get_object(scale, "spec").get("replicas"))


def _validate_selector(spec: JsonObject, what: str) -> Iterator[FieldError]:
    """The selector itself."""
    selector, at = spec.get("selector"), _SPEC.child("selector")
    if selector is None:
        yield required(at)
        return
    yield from validate_label_selector_object(selector, at)
    yield from _validate_not_empty(selector, what)


def _validate_not_empty(selector: JsonObject | None, what: str) -> list[FieldError]:
    if selector is None or selector.get("matchLabels") or selector.get("matchExpressions"):
        return []
    return [invalid(_SPEC.child("selector"), selector, f"empty selector is invalid for {what}")]


def _validate_match(spec: JsonObject, detail: str | None = "invalid label selector") -> list[FieldError]:
    """The template carries labels that the selector picks. `detail` is said of a selector that is none."""
    selector, labels = spec.get("selector"), get_object(spec, "template", "metadata", "labels")
    if selector is not None and validate_label_selector_object(selector, _SPEC):
        return [] if detail is None else [invalid(_SPEC.child("selector"), selector, detail)]
    if selector is not None and from_label_selector_object(selector).matches(labels):
        return []
    return [_no_match(labels)]


def _validate_matched(spec: JsonObject) -> list[FieldError]:
    """The template, unless the selector that it should match is none."""
    found = _validate_match(spec)
    if any(error.field == "spec.selector" for error in found):
        return found
    return [*found, *_validate_kept_template(spec.get("template") or {})]


def _no_match(labels: JsonObject) -> FieldError:
    return invalid(_TEMPLATE.child("metadata", "labels"), labels or None, NO_MATCH)


def _validate_kept_template(template: JsonObject, what: str = "ReplicaSet") -> Iterator[FieldError]:
    """The template of pods that are kept running."""
    yield from validate_template(template, _TEMPLATE)
    spec = get_object(template, "spec")
    policy, at = spec.get("restartPolicy", ""), _TEMPLATE.child("spec")
    if policy != "Always":
        yield not_supported(at.child("restartPolicy"), policy, ["Always"])
    if spec.get("activeDeadlineSeconds") is not None:
        text = f"activeDeadlineSeconds in {what} is not Supported"
        yield forbidden(at.child("activeDeadlineSeconds"), text)


def validate_replication_controller(obj: JsonObject) -> Iterator[FieldError]:
    """A ReplicationController."""
    spec = get_object(obj, "spec")
    yield from not_negative(_SPEC.child("minReadySeconds"), spec.get("minReadySeconds", 0))
    selector = spec.get("selector") or {}
    yield from check_fields(spec, _SPEC, *needed("selector"))
    yield from not_negative(_SPEC.child("replicas"), spec.get("replicas"))
    template = spec.get("template")
    if not isinstance(template, dict):
        yield required(_TEMPLATE)
        return
    labels = get_object(template, "metadata", "labels")
    if selector and any(labels.get(key) != value for key, value in selector.items()):
        yield _no_match(labels)
    yield from _validate_kept_template(template, "ReplicationController")


def validate_replica_set(obj: JsonObject) -> Iterator[FieldError]:
    """A ReplicaSet."""
    spec = get_object(obj, "spec")
    yield from not_negative(_SPEC.child("replicas"), spec.get("replicas"))
    yield from not_negative(_SPEC.child("minReadySeconds"), spec.get("minReadySeconds", 0))
    yield from _validate_selector(spec, "deployment")
    yield from _validate_matched(spec)


def validate_deployment(obj: JsonObject) -> Iterator[FieldError]:
    """A Deployment."""
    spec = get_object(obj, "spec")
    yield from not_negative(_SPEC.child("replicas"), spec.get("replicas"))
    yield from _validate_selector(spec, "deployment")
    yield from _validate_matched(spec)
    yield from _validate_deployment_strategy(get_object(spec, "strategy"), _SPEC.child("strategy"))
    ready = spec.get("minReadySeconds", 0)
    yield from not_negative(_SPEC.child("minReadySeconds"), ready)
    yield from counts(spec, _SPEC, "revisionHistoryLimit")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        at = _SPEC.child("progressDeadlineSeconds")
        yield from not_negative(at, deadline)
        if deadline <= ready:
            yield invalid(at, deadline, "must be greater than minReadySeconds")


def _validate_deployment_strategy(strategy: JsonObject, path: FieldPath) -> Iterable[FieldError]:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            text = "may not be specified when strategy `type` is 'Recreate'"
            return [forbidden(path.child("rollingUpdate"), text)]
        return []
    if kind != "RollingUpdate":
        return [
            not_supported(path, internal_form(strategy, _INTERNAL_STRATEGY), ["Recreate", "RollingUpdate"])
        ]
    if rolling is None:
        return [required(path.child("rollingUpdate"), "this should be defaulted and never be nil")]
    return _validate_rolling(rolling, path.child("rollingUpdate"))


def _validate_rolling(rolling: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    yield from int_or_percent(path.child("maxUnavailable"), unavailable)
    yield from int_or_percent(path.child("maxSurge"), surge)
    broken = any(isinstance(value, str) and not is_percent(value) for value in (unavailable, surge))
    if not broken and scaled(unavailable) == 0 and scaled(surge) == 0:
        yield invalid(path.child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0")
    yield from at_most_100_percent(path.child("maxUnavailable"), unavailable)


def validate_daemon_set(obj: JsonObject) -> Iterator[FieldError]:
    """A DaemonSet."""
    spec = get_object(obj, "spec")
    selector = spec.get("selector")
    if selector is not None:
        yield from validate_label_selector_object(selector, _SPEC.child("selector"))
    yield from _validate_match(spec, None)
    yield from _validate_not_empty(selector, "daemonset")
    yield from _validate_kept_template(spec.get("template") or {}, "DaemonSet")
    yield from counts(spec, _SPEC, "minReadySeconds", "revisionHistoryLimit")
    strategy, at = get_object(spec, "updateStrategy"), _SPEC.child("updateStrategy")
    kind = strategy.get("type", "")
    if kind == "RollingUpdate":
        rolling = strategy.get("rollingUpdate")
        if rolling is None:
            yield required(at.child("rollingUpdate"))
        else:
            yield from _validate_daemon_rolling(rolling, at.child("rollingUpdate"))
    elif kind != "OnDelete":
        yield not_supported(at, internal_form(strategy, _INTERNAL_STRATEGY), ["RollingUpdate", "OnDelete"])


_INTERNAL_STRATEGY = {"Type": "", "RollingUpdate": {"MaxUnavailable": 0, "MaxSurge": 0}}


def _validate_daemon_rolling(rolling: JsonObject, path: FieldPath) -> list[FieldError]:
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    found = int_or_percent(path.child("maxUnavailable"), unavailable)
    found += int_or_percent(path.child("maxSurge"), surge)
    found += at_most_100_percent(path.child("maxUnavailable"), unavailable)
    found += at_most_100_percent(path.child("maxSurge"), surge)
    some_unavailable, some_surge = scaled(unavailable) != 0, scaled(surge) != 0
    if some_unavailable and some_surge:
        found.append(invalid(path.child("maxSurge"), surge, "may not be set when maxUnavailable is non-zero"))
    elif not some_unavailable and not some_surge and not found:
        found.append(required(path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
    return found


def validate_stateful_set(obj: JsonObject, *, is_new: bool = True) -> Iterator[FieldError]:
    """A StatefulSet; claims of one that is there stay as they were."""
    spec = get_object(obj, "spec")
    policy = spec.get("podManagementPolicy", "")
    if policy not in ("OrderedReady", "Parallel"):
        yield invalid(_SPEC.child("podManagementPolicy"), policy, "must be 'OrderedReady' or 'Parallel'")
    yield from _validate_stateful_strategy(get_object(spec, "updateStrategy"), _SPEC.child("updateStrategy"))
    retention = get_object(spec, "persistentVolumeClaimRetentionPolicy")
    for field in ("whenDeleted", "whenScaled"):
        value = retention.get(field, "")
        if value not in ("Retain", "Delete"):
            at = _SPEC.child("persistentVolumeClaimRetentionPolicy", field)
            yield not_supported(at, value, ["Retain", "Delete"])
    yield from not_negative(_SPEC.child("replicas"), spec.get("replicas"))
    yield from not_negative(_SPEC.child("minReadySeconds"), spec.get("minReadySeconds", 0))
    yield from not_negative(_SPEC.child("ordinals", "start"), get_object(spec, "ordinals").get("start", 0))
    claims = get_list(spec, "volumeClaimTemplates")
    for position, claim in enumerate(claims if is_new else ()):
        at = _SPEC.child("volumeClaimTemplates").index(position).child("spec")
        yield from validate_claim_spec(get_object(claim, "spec"), at)
    yield from _validate_selector(spec, "statefulset")
    yield from _validate_match(spec, "")
    yield from _validate_kept_template(_with_claims(spec.get("template") or {}, claims), "StatefulSet")
    yield from counts(spec, _SPEC, "revisionHistoryLimit")


def _with_claims(template: JsonObject, claims: Sequence[JsonObject]) -> JsonObject:
    """The template as its pods will be: every claim is a volume, in place of one of the same name."""
    pod = get_object(template, "spec")
    names = [get_str(claim, "metadata", "name") for claim in claims]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    volumes += [volume for volume in get_list(pod, "volumes") if volume.get("name") not in names]
    return {**template, "spec": {**pod, "volumes": volumes}}


def _validate_stateful_strategy(strategy: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if not kind:
        yield required(path)
        return
    if kind == "OnDelete":
        if rolling is not None:
            text = "only allowed for updateStrategy 'RollingUpdate'"
            yield invalid(path.child("rollingUpdate"), rolling, text)
            return
        return
    if kind != "RollingUpdate":
        text = "must be 'RollingUpdate' or 'OnDelete'"
        shown = {"Type": kind, "RollingUpdate": internal_form(rolling, _INTERNAL_PARTITION)}
        yield invalid(path, shown, text)
        return
    yield from not_negative(path.child("rollingUpdate", "partition"), (rolling or {}).get("partition"))
    unavailable = (rolling or {}).get("maxUnavailable")
    if unavailable is not None:
        at = path.child("rollingUpdate", "maxUnavailable")
        yield from int_or_percent(at, unavailable)
        if scaled(unavailable) == 0:
            yield invalid(at, unavailable, "cannot be 0")
        yield from at_most_100_percent(at, unavailable)


_INTERNAL_PARTITION = {"Partition": 0, "MaxUnavailable": None}


def validate_stateful_set_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A change of what can be changed while pods with names exist."""
    yield from validate_stateful_set(new, is_new=False)
    spec, before = get_object(new, "spec"), get_object(old, "spec")
    keys = (spec.keys() | before.keys()) - set(_STATEFUL_FIELDS)
    if any(spec.get(key) != before.get(key) for key in keys):
        yield forbidden(_SPEC, STATEFUL_MUTABLE)


_COUNTS = (
    "replicas",
    "fullyLabeledReplicas",
    "readyReplicas",
    "availableReplicas",
    "updatedReplicas",
    "unavailableReplicas",
)


def validate_replica_counts(obj: JsonObject) -> Iterator[FieldError]:
    """Counts in the status of a replica set or deployment."""
    status, path = get_object(obj, "status"), FieldPath("status")
    yield from counts(status, path, *_COUNTS, "terminatingReplicas", "observedGeneration", "collisionCount")
    total = status.get("replicas", 0)
    text = "cannot be greater than status.replicas"
    for field in ("fullyLabeledReplicas", "readyReplicas", "availableReplicas", "updatedReplicas"):
        value = status.get(field, 0)
        if value > total:
            yield invalid(path.child(field), value, text)
    ready, available = status.get("readyReplicas", 0), status.get("availableReplicas", 0)
    if available > ready:
        yield invalid(path.child("availableReplicas"), available, "cannot be greater than readyReplicas")


def validate_stateful_counts(obj: JsonObject) -> Iterator[FieldError]:
    """Counts in the status of a stateful set."""
    status, path = get_object(obj, "status"), FieldPath("status")
    fields = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    yield from counts(status, path, *fields, "observedGeneration", "collisionCount")
    total = status.get("replicas", 0)
    for field in fields[1:]:
        value = status.get(field, 0)
        if value > total:
            yield invalid(path.child(field), value, "cannot be greater than status.replicas")


def validate_revision(obj: JsonObject) -> Iterator[FieldError]:
    """A ControllerRevision."""
    if obj.get("data") is None:
        yield required("data", "data is mandatory")
    revision: Any = obj.get("revision", 0)
    if revision < 0:
        yield invalid("revision", revision, NOT_NEGATIVE)

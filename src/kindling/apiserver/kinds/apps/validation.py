"""Workloads: counts, selectors, templates, update strategies; what may change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from kindling.apiserver.kinds.core.pods.validation import validate_template
from kindling.apiserver.kinds.core.volumes.claim_validation import validate_claim_spec
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import (
    at_most_100_percent,
    immutable,
    int_or_percent,
    scaled,
)
from kindling.apiserver.kinds.machinery.internal import internal_form
from kindling.apiserver.kinds.machinery.rules import Change, Judge
from kindling.apiserver.registry.context import RequestContext
from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, not_supported, required
from kubecore.objects.selectors import from_label_selector_object, validate_label_selector_object

_SPEC = FieldPath("spec")
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
    return f.check_fields(get_object(scale, "spec"), _SPEC, *f.counts("replicas"))


def selector_kept(judge: Judge) -> Change:
    """The rules of a change: the selector stays, and the rest is judged like that of a new object."""

    def change(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
        wanted, known = (get_object(each, "spec").get("selector") for each in (new, old))
        yield from immutable(_SPEC.child("selector"), wanted, known)
        yield from judge(new)

    return change


def _not_empty(what: str) -> f.Check:
    """A selector that selects by something."""
    return f.refused(
        lambda selector: not selector.get("matchLabels") and not selector.get("matchExpressions"),
        f"empty selector is invalid for {what}",
    )


def _selector(what: str) -> f.Field:
    return f.must("selector", f.selector, _not_empty(what), given=True)


def _no_match(path: FieldPath, labels: JsonObject) -> FieldError:
    return invalid(path.child("template", "metadata", "labels"), labels or None, NO_MATCH)


def _match(
    path: FieldPath, spec: JsonObject, detail: str | None = "invalid label selector"
) -> list[FieldError]:
    """The selector must match the template's labels. `detail` is the message about an invalid selector."""
    found, labels = spec.get("selector"), get_object(spec, "template", "metadata", "labels")
    if found is not None and validate_label_selector_object(found, path):
        return [] if detail is None else [invalid(path.child("selector"), found, detail)]
    if found is not None and from_label_selector_object(found).matches(labels):
        return []
    return [_no_match(path, labels)]


def _matched(path: FieldPath, spec: JsonObject) -> list[FieldError]:
    """Validate the template, and that it matches the selector if that is valid."""
    found = _match(path, spec)
    if any(error.field == "spec.selector" for error in found):
        return found
    return [*found, *f.check_fields(spec, path, f.part("template", _kept("ReplicaSet")))]


def _kept(what: str) -> f.Check:
    """The template of pods that are kept running by a controller of this kind."""
    text = f"activeDeadlineSeconds in {what} is not Supported"
    spec = f.part(
        "spec", f.always("restartPolicy", "", f.choice("Always")), f.absent(text, "activeDeadlineSeconds")
    )
    return f.within(validate_template, spec)


def _controller_match(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    labels, wanted = get_object(spec, "template", "metadata", "labels"), get_object(spec, "selector")
    if spec.get("template") is not None and any(labels.get(key) != wanted[key] for key in wanted):
        yield _no_match(path, labels)


validate_replication_controller = f.spec(
    *f.counts("minReadySeconds"),
    f.must("selector"),
    *f.counts("replicas"),
    f.must("template", given=True),
    _controller_match,
    f.given("template", _kept("ReplicationController")),
)
"""A ReplicationController."""
validate_replica_set = f.spec(*f.counts("replicas", "minReadySeconds"), _selector("deployment"), _matched)
"""A ReplicaSet."""


def _strategy(path: FieldPath, strategy: JsonObject) -> Iterator[FieldError]:
    kind, rolling, at = strategy.get("type"), strategy.get("rollingUpdate"), path.child("rollingUpdate")
    if kind not in ("Recreate", "RollingUpdate"):
        yield not_supported(path, internal_form(strategy, _INTERNAL_STRATEGY), ["Recreate", "RollingUpdate"])
    elif kind == "RollingUpdate" and rolling is None:
        yield required(at, "this should be defaulted and never be nil")
    elif kind == "Recreate" and rolling is not None:
        yield forbidden(at, "may not be specified when strategy `type` is 'Recreate'")
    elif rolling is not None:
        yield from _ROLLING(at, rolling)


def _some_move(path: FieldPath, rolling: JsonObject) -> Iterator[FieldError]:
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    if scaled(unavailable) == 0 and scaled(surge) == 0:
        yield invalid(path.child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0")


_INTERNAL_STRATEGY = {"Type": "", "RollingUpdate": {"MaxUnavailable": 0, "MaxSurge": 0}}
_MOVES = (f.given("maxUnavailable", int_or_percent), f.given("maxSurge", int_or_percent))
_ROLLING = f.within(*_MOVES, _some_move, f.given("maxUnavailable", at_most_100_percent))


def _deadline(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        yield invalid(path.child("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds")


validate_deployment = f.spec(
    *f.counts("replicas"),
    _selector("deployment"),
    _matched,
    f.part("strategy", _strategy),
    *f.counts("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"),
    _deadline,
)
"""A Deployment."""


def _daemon_strategy(path: FieldPath, strategy: JsonObject) -> Iterable[FieldError]:
    kind = strategy.get("type")
    if kind == "RollingUpdate":
        return f.check_fields(strategy, path, f.must("rollingUpdate", _daemon_rolling, given=True))
    shown = internal_form(strategy, _INTERNAL_STRATEGY)
    return [] if kind == "OnDelete" else [not_supported(path, shown, ["RollingUpdate", "OnDelete"])]


def _daemon_rolling(path: FieldPath, rolling: JsonObject) -> list[FieldError]:
    parts = (f.given("maxUnavailable", at_most_100_percent), f.given("maxSurge", at_most_100_percent))
    found = f.check_fields(rolling, path, *_MOVES, *parts)
    surge = rolling.get("maxSurge")
    some_unavailable, some_surge = scaled(rolling.get("maxUnavailable")) != 0, scaled(surge) != 0
    if some_unavailable and some_surge:
        found.append(invalid(path.child("maxSurge"), surge, "may not be set when maxUnavailable is non-zero"))
    elif not some_unavailable and not some_surge:
        found.append(required(path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
    return found


validate_daemon_set = f.spec(
    f.given("selector", f.selector),
    partial(_match, detail=None),
    f.given("selector", _not_empty("daemonset")),
    f.part("template", _kept("DaemonSet")),
    *f.counts("minReadySeconds", "revisionHistoryLimit"),
    f.part("updateStrategy", _daemon_strategy),
)
"""A DaemonSet."""


def _stateful_strategy(path: FieldPath, strategy: JsonObject) -> Iterator[FieldError]:
    kind, rolling, at = strategy.get("type"), strategy.get("rollingUpdate"), path.child("rollingUpdate")
    if not kind:
        yield required(path)
    elif kind not in ("RollingUpdate", "OnDelete"):
        shown = {"Type": kind, "RollingUpdate": internal_form(rolling, _INTERNAL_PARTITION)}
        yield invalid(path, shown, "must be 'RollingUpdate' or 'OnDelete'")
    elif kind == "OnDelete" and rolling is not None:
        shown = internal_form(rolling, _INTERNAL_PARTITION)
        yield invalid(at, shown, "only allowed for updateStrategy 'RollingUpdate'")
    elif rolling is not None:
        yield from _STATEFUL_ROLLING(at, rolling)


_INTERNAL_PARTITION = {"Partition": 0, "MaxUnavailable": None}
_NOT_NOTHING = f.refused(lambda value: scaled(value) == 0, "cannot be 0")
_STATEFUL_ROLLING = f.within(
    *f.counts("partition"), f.given("maxUnavailable", int_or_percent, _NOT_NOTHING, at_most_100_percent)
)


def _stateful_template(path: FieldPath, spec: JsonObject) -> Iterable[FieldError]:
    template = _with_claims(get_object(spec, "template"), get_list(spec, "volumeClaimTemplates"))
    return _kept("StatefulSet")(path.child("template"), template)


def _with_claims(template: JsonObject, claims: Sequence[JsonObject]) -> JsonObject:
    """The template of the pods: each volumeClaimTemplate adds a volume or replaces one of its name."""
    pod = get_object(template, "spec")
    names = [get_str(claim, "metadata", "name") for claim in claims]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    volumes += [volume for volume in get_list(pod, "volumes") if volume.get("name") not in names]
    return {**template, "spec": {**pod, "volumes": volumes}}


_POLICIES = ("OrderedReady", "Parallel")
_MANAGEMENT = f.refused(lambda policy: policy not in _POLICIES, "must be 'OrderedReady' or 'Parallel'")
_KEEP_OR_DELETE = f.choice("Retain", "Delete")
_STATEFUL_HEAD: tuple[f.Row, ...] = (
    f.always("podManagementPolicy", "", _MANAGEMENT),
    f.part("updateStrategy", _stateful_strategy),
    f.part(
        "persistentVolumeClaimRetentionPolicy",
        f.always("whenDeleted", "", _KEEP_OR_DELETE),
        f.always("whenScaled", "", _KEEP_OR_DELETE),
    ),
    *f.counts("replicas", "minReadySeconds"),
    f.part("ordinals", *f.counts("start")),
)
_STATEFUL_TAIL: tuple[f.Row, ...] = (
    _selector("statefulset"),
    partial(_match, detail=""),
    _stateful_template,
    *f.counts("revisionHistoryLimit"),
)
validate_stateful_set = f.spec(
    *_STATEFUL_HEAD,
    f.may("serviceName", f.LABEL),
    f.may("volumeClaimTemplates", f.items(f.part("spec", validate_claim_spec))),
    *_STATEFUL_TAIL,
)
"""A StatefulSet."""
_CHANGED_STATEFUL_SET = f.spec(*_STATEFUL_HEAD, *_STATEFUL_TAIL)
"""Claims and the service of one that is there stay as they were."""


def validate_stateful_set_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """On updates, only some fields may change."""
    yield from _CHANGED_STATEFUL_SET(new)
    spec, before = get_object(new, "spec"), get_object(old, "spec")
    keys = (spec.keys() | before.keys()) - set(_STATEFUL_FIELDS)
    if any(spec.get(key) != before.get(key) for key in keys):
        yield forbidden(_SPEC, STATEFUL_MUTABLE)


def _no_more_than(total: str, where: str, *fields: str) -> f.Check:
    """Counts that are parts of another one, which errors call `where`."""

    def check(path: FieldPath, status: JsonObject) -> Iterator[FieldError]:
        for field in fields:
            value = status.get(field, 0)
            if value > status.get(total, 0):
                yield invalid(path.child(field), value, f"cannot be greater than {where}")

    return check


def _not_decremented(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Names that were taken stay so."""
    count, before = get_int(new, "status", "collisionCount"), get_object(old, "status").get("collisionCount")
    if before is not None and count < before:
        yield invalid(FieldPath("status", "collisionCount"), count, "cannot be decremented")


def _with_collisions(counts: Change) -> Change:
    return lambda new, old: [*counts(new, old), *_not_decremented(new, old)]


_READY = ("readyReplicas", "availableReplicas")
_LABELED = ("fullyLabeledReplicas", *_READY)
_UPDATED = ("updatedReplicas", *_READY)
_AVAILABLE = _no_more_than("readyReplicas", "readyReplicas", "availableReplicas")
validate_replica_set_counts = f.status(
    *f.counts("replicas", *_LABELED, "observedGeneration", "terminatingReplicas"),
    _no_more_than("replicas", "status.replicas", *_LABELED),
    _AVAILABLE,
)
"""Counts in the status of a replica set or replication controller."""
validate_deployment_counts = _with_collisions(
    f.status(
        *f.counts("observedGeneration", "replicas", *_UPDATED, "unavailableReplicas"),
        *f.counts("terminatingReplicas", "collisionCount"),
        _no_more_than("replicas", "status.replicas", *_UPDATED),
        _AVAILABLE,
    )
)
"""Counts in the status of a deployment."""
_STATEFUL_COUNTS = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
validate_stateful_counts = _with_collisions(
    f.status(
        *f.counts("replicas", *_STATEFUL_COUNTS, "observedGeneration", "collisionCount"),
        _no_more_than("replicas", "status.replicas", *_STATEFUL_COUNTS),
        _no_more_than("readyReplicas", "status.readyReplicas", "availableReplicas"),
    )
)
"""Counts in the status of a stateful set."""
validate_daemon_counts = _with_collisions(
    f.status(
        *f.counts("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"),
        *f.counts("observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable"),
        *f.counts("collisionCount"),
    )
)
"""Counts in the status of a daemon set."""
validate_revision = f.document(f.must("data", detail="data is mandatory", given=True), *f.counts("revision"))
"""A ControllerRevision."""

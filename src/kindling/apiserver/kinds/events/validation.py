"""Events of both groups."""

from __future__ import annotations

from collections.abc import Iterator

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import IMMUTABLE
from kindling.apiserver.kinds.machinery.internal import internal_form
from kubecore.json import JsonObject, get_str
from kubecore.objects.fields import FieldError, FieldPath, invalid

NAME_LIMIT = 128
NOTE_LIMIT = 1024
_FROZEN = {
    "regarding": "involvedObject",
    "reason": "reason",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "type": "type",
    "eventTime": "eventTime",
    "action": "action",
    "related": "related",
    "reportingController": "reportingController",
    "reportingInstance": "reportingInstance",
}
"""What happened stays; only a series may start and go on. Errors use the names of the core group."""
_INTERNAL_REFERENCE = dict.fromkeys(
    ("Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath"), ""
)


def validate_event_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A change of an event of events.k8s.io."""
    yield from validate_event(new)
    for field, name in _FROZEN.items():
        value = new.get(field)
        if value != old.get(field):
            about = field in ("regarding", "related")
            shown = internal_form(value, _INTERNAL_REFERENCE) if about else value
            yield invalid(name, shown, IMMUTABLE)


def validate_core_event(event: JsonObject) -> list[FieldError]:
    """An event is in the namespace of its object, or in ``default`` where the object has none."""
    namespace = get_str(event, "metadata", "namespace")
    about = get_str(event, "involvedObject", "namespace")
    return _validate_namespace(namespace, about, FieldPath("involvedObject", "namespace"))


def _validate_namespace(namespace: str, about: str, path: FieldPath) -> list[FieldError]:
    if about and namespace != about:
        return [invalid(path, about, "does not match event.namespace")]
    if not about and namespace not in ("default", "kube-system"):
        return [invalid(path, about, "does not match event.namespace")]
    return []


def validate_event(event: JsonObject) -> Iterator[FieldError]:
    """The stricter form of events.k8s.io."""
    about = get_str(event, "regarding", "namespace")
    namespace = get_str(event, "metadata", "namespace")
    yield from _validate_namespace(namespace, about, FieldPath("involvedObject", "namespace"))
    yield from _EVENT(event)


def _characters(limit: int) -> f.Check:
    text = f"can have at most {limit} characters"
    return lambda path, value: [invalid(path, "", text)] if len(value) > limit else []


def _several(path: FieldPath, series: JsonObject) -> Iterator[FieldError]:
    if series.get("count", 0) < 2:
        yield invalid(path.child("count"), "", "should be at least 2")


def _kind(path: FieldPath, kind: str) -> Iterator[FieldError]:
    if kind not in ("Normal", "Warning"):
        yield invalid(path, "", f"has invalid value: {kind}")


_NAME = _characters(NAME_LIMIT)
_EVENT = f.document(
    f.must("eventTime"),
    f.given("series", _several, f.must("lastObservedTime")),
    f.when(
        lambda event: event.get("eventTime"),
        f.must("reportingController"),
        f.must("reportingInstance", _NAME),
        f.must("action", _NAME),
        f.must("reason", _NAME),
        f.may("note", _characters(NOTE_LIMIT)),
    ),
    f.always("type", "", _kind),
)

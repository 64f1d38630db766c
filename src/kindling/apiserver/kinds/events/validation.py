"""Events of both groups."""

from __future__ import annotations

from collections.abc import Iterator

from kindling.apiserver.kinds.machinery.checks import IMMUTABLE
from kindling.apiserver.kinds.machinery.internal import internal_form
from kubecore.json import JsonObject, get_str
from kubecore.objects.fields import FieldError, FieldPath, invalid, required

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
    if not event.get("eventTime"):
        yield required("eventTime")
    kind = event.get("type", "")
    series = event.get("series")
    if isinstance(series, dict):
        if series.get("count", 0) < 2:
            yield invalid("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            yield required("series.lastObservedTime")
    if event.get("eventTime"):
        yield from _validate_reporter(event)
    if kind not in ("Normal", "Warning"):
        yield invalid("type", "", f"has invalid value: {kind}")


def _validate_reporter(event: JsonObject) -> Iterator[FieldError]:
    for field in ("reportingController", "reportingInstance", "action", "reason"):
        value = event.get(field, "")
        if not value:
            yield required(field)
        elif field != "reportingController" and len(value) > NAME_LIMIT:
            yield invalid(field, "", f"can have at most {NAME_LIMIT} characters")
    if len(event.get("note", "")) > NOTE_LIMIT:
        yield invalid("note", "", f"can have at most {NOTE_LIMIT} characters")

"""Events of ``events.k8s.io`` and of the core group: one storage, two spellings of the same fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.checks import immutable, messages
from kindling.apiserver.kinds.machinery.internal import Inline, internal_form
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.fields import FieldError, FieldPath, invalid, required
from kubecore.objects.names import is_qualified_name
from kubecore.resources import EVENTS, ResourceType

EVENTS_V1 = ResourceType("events.k8s.io", "v1", "events", "Event")
PREFIX = "core/events"
_TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_TO_EVENTS = {core: other for other, core in _TO_CORE.items()}
FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
NAME_LIMIT = 128
NOTE_LIMIT = 1024
_REFERENCE = dict.fromkeys(
    ("Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath"), ""
)
_FROZEN: tuple[tuple[str, str, Any], ...] = (
    ("regarding", "involvedObject", Inline(_REFERENCE)),
    ("reason", "reason", ""),
    ("note", "message", ""),
    ("deprecatedSource", "source", Inline(Component="", Host="")),
    ("deprecatedFirstTimestamp", "firstTimestamp", None),
    ("deprecatedLastTimestamp", "lastTimestamp", None),
    ("deprecatedCount", "count", 0),
    ("reason", "reason", ""),
    ("type", "type", ""),
    ("eventTime", "eventTime", None),
    ("action", "action", ""),
    ("related", "related", _REFERENCE),
    ("reportingController", "reportingController", ""),
    ("reportingInstance", "reportingInstance", ""),
)
"""What happened stays; only a series may start and go on. In the order in which the server compares (it looks
at the reason twice): the field, its name in errors, which is that of the core group, and how it is quoted."""


def validate_core_event(event: JsonObject) -> Iterator[FieldError]:
    """An event of the core group: only one with an eventTime is judged beyond its namespace."""
    return _judge(event, "involvedObject", "message", "reportingComponent")


def validate_event(event: JsonObject) -> Iterator[FieldError]:
    """A new event of events.k8s.io, which has nothing that only old clients set."""
    yield from _judge(event, "regarding", "note", "reportingController")
    yield from _SERIES(event)
    yield from _NEW(event)
    for field in ("firstTimestamp", "lastTimestamp", "count"):
        if event.get(_TO_EVENTS[field]):
            yield invalid(field, "", _UNSET)
    if any(get_object(event, "deprecatedSource").values()):
        yield invalid("source", "", _UNSET)


def validate_event_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A change of an event of events.k8s.io."""
    yield from _judge(new, "regarding", "note", "reportingController")
    if new.get("series") != old.get("series"):
        yield from _SERIES(new)
    for field, name, shape in _FROZEN:
        yield from immutable(name, internal_form(new.get(field), shape), internal_form(old.get(field), shape))


def _judge(event: JsonObject, about: str, text: str, controller: str) -> Iterator[FieldError]:
    """What both groups ask of an event; errors use the names of the core group."""
    namespace, theirs = get_str(event, "metadata", "namespace"), get_str(event, about, "namespace")
    if not event.get("eventTime"):
        fits = namespace == (theirs or "default")
    else:
        fits = bool(theirs) or namespace in ("default", "kube-system")
    if not fits:
        at = FieldPath("involvedObject", "namespace")
        yield invalid(at, theirs, "does not match event.namespace")
    if not event.get("eventTime"):
        return
    name = event.get("reportingController" if text == "note" else "reportingComponent") or ""
    if not name:
        yield required(controller)
    yield from messages(controller, name, is_qualified_name)
    yield from _NAMED(event)
    if len(event.get(text) or "") > NOTE_LIMIT:
        yield invalid("message", "", f"can have at most {NOTE_LIMIT} characters")


def _characters(limit: int) -> f.Check:
    text = f"can have at most {limit} characters"
    return lambda path, value: [invalid(path, "", text)] if len(value) > limit else []


def _several(path: FieldPath, series: JsonObject) -> Iterator[FieldError]:
    if series.get("count", 0) < 2:
        yield invalid(path.child("count"), "", "should be at least 2")


def _kind(path: FieldPath, kind: str) -> Iterator[FieldError]:
    if kind not in ("Normal", "Warning"):
        yield invalid(path, "", f"has invalid value: {kind}")


_UNSET = "needs to be unset"
_NAME = _characters(NAME_LIMIT)
_NAMED = f.document(*(f.must(field, _NAME) for field in ("reportingInstance", "action", "reason")))
_SERIES = f.document(f.given("series", _several, f.must("lastObservedTime")))
_NEW = f.document(f.must("eventTime"), f.always("type", "", _kind))


def _field_v1(name: str) -> str:
    renamed = name.replace("involvedObject", "regarding")
    return renamed.replace("reportingComponent", "reportingController")


_FIELDS_V1 = tuple(_field_v1(name) for name in FIELDS if name != "source")


def to_core(obj: JsonObject) -> JsonObject:
    """Convert an event of events.k8s.io to the core group."""
    core = {_TO_CORE.get(key, key): value for key, value in obj.items()}
    core.setdefault("reportingComponent", "")
    core.setdefault("reportingInstance", "")
    return {**core, "apiVersion": EVENTS.api_version}


def to_events(obj: JsonObject) -> JsonObject:
    """Convert an event of the core group to events.k8s.io."""
    found = {_TO_EVENTS.get(key, key): value for key, value in obj.items()}
    for key in ("reportingController", "reportingInstance"):
        if not found.get(key):
            found.pop(key, None)
    return {**found, "apiVersion": EVENTS_V1.api_version}


class EventConverter:
    """Conversion between the two groups."""

    async def convert(self, objects: Sequence[JsonObject], api_version: str) -> list[JsonObject]:
        """See Converter.convert."""
        change = to_core if api_version == EVENTS.api_version else to_events
        return [obj if obj.get("apiVersion") == api_version else change(obj) for obj in objects]


class _EventStrategy(BuiltinStrategy):
    has_status = False
    tracks_generation = False
    allow_create_on_update = True

    def selectable_fields(self, obj: JsonObject) -> Mapping[str, str]:
        """The selectable fields in the names of both groups, which share their objects."""
        core = event_fields(to_core(dict(obj)))
        return {**core, **{_field_v1(name): value for name, value in core.items()}}


class CoreEventStrategy(_EventStrategy):
    """Events as most clients write them."""

    metadata_checks = (0, 0)
    standard_finalizers = False
    rules = Rules(validate_core_event)


class EventStrategy(_EventStrategy):
    """Events of events.k8s.io: stricter."""

    rules = Rules(validate_event, update=validate_event_update)


def event_fields(obj: JsonObject) -> dict[str, str]:
    """Field labels of an event of the core group."""
    about = get_object(obj, "involvedObject")
    found = {f"involvedObject.{key}": str(about.get(key) or "") for key in _ABOUT}
    component = get_str(obj, "source", "component") or get_str(obj, "reportingComponent")
    return {
        **found,
        "reason": get_str(obj, "reason"),
        "reportingComponent": get_str(obj, "reportingComponent"),
        "source": component,
        "type": get_str(obj, "type"),
    }


_ABOUT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _source(obj: JsonObject) -> str:
    source = get_object(obj, "source")
    component = source.get("component") or obj.get("reportingComponent") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {host}" if host else component


def _cells(obj: JsonObject) -> list[Any]:
    if obj.get("apiVersion") == EVENTS_V1.api_version:
        obj = to_core(dict(obj))
    about = get_object(obj, "involvedObject")
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    series = get_object(obj, "series")
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or first
    count = series.get("count") or obj.get("count") or 1
    first_seen = p.since(first) if first else p.UNKNOWN
    return [
        p.since(last) if last else first_seen,
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{about['kind'].lower()}/{about.get('name', '')}" if about.get("kind") else "",
        about.get("fieldPath", ""),
        _source(obj),
        str(obj.get("message", "")).strip(),
        first_seen,
        count,
        get_str(obj, "metadata", "name"),
    ]


_TABLE = p.Table(
    p.plain("Last Seen"),
    p.plain("Type"),
    p.plain("Reason"),
    p.plain("Object"),
    p.wide("Subobject"),
    p.wide("Source"),
    p.plain("Message"),
    p.wide("First Seen"),
    p.wide("Count"),
    p.Column("Name", format="name", priority=1),
    fill=_cells,
)


def definitions() -> list[ResourceDefinition]:
    """Events of both groups."""
    converter = EventConverter()
    found = []
    for resource, strategy, fields in (
        (EVENTS, CoreEventStrategy(), FIELDS),
        (EVENTS_V1, EventStrategy(), _FIELDS_V1),
    ):
        definition = builtin(
            resource,
            strategy,
            short=("ev",),
            table=_TABLE,
            fields=tuple(dict.fromkeys(fields)),
            storage_prefix=PREFIX,
            storage_version=EVENTS.api_version,
        )
        definition.converter = converter
        found.append(definition)
    return found

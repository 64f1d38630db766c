"""Watches of the in-memory API server, and the events that they get."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import orjson

from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.selectors import parse_label_selector
from kubecore.resources import ResourceType


@dataclass(slots=True)
class Watcher:
    """One watch; None in its queue ends it. `known` are the objects that it has seen and not seen deleted."""

    resource: ResourceType
    namespace: str
    selects: Callable[[JsonObject], bool]
    queue: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    known: set[tuple[str, str]] = field(default_factory=set)


def line(event: str, obj: JsonObject) -> bytes:
    """An event as it is sent."""
    return orjson.dumps({"type": event, "object": obj}) + b"\n"


def deliver(found: Iterable[Watcher], event: str, new: JsonObject, old: JsonObject | None) -> None:
    """Send a change to the watchers of a resource, as the event that follows from their selector."""
    known_as = key(new)
    encoded: dict[str, bytes] = {}

    def tell(watcher: Watcher, word: str, obj: JsonObject) -> None:
        if word not in encoded:
            encoded[word] = line(word, obj)
        watcher.queue.put_nowait(encoded[word])

    for watcher in found:
        if watcher.namespace and known_as[0] != watcher.namespace:
            continue
        before, after = known_as in watcher.known, event != "DELETED" and watcher.selects(new)
        if after:
            watcher.known.add(known_as)
            tell(watcher, "MODIFIED" if before else "ADDED", new)
        elif before:
            watcher.known.discard(known_as)
            gone = {**(old or new), "metadata": {**(old or new)["metadata"]}}
            gone["metadata"]["resourceVersion"] = new["metadata"]["resourceVersion"]
            tell(watcher, "DELETED", gone)


def key(obj: JsonObject) -> tuple[str, str]:
    """Namespace and name."""
    return get_str(obj, "metadata", "namespace"), get_str(obj, "metadata", "name")


def selector(query: Mapping[str, str]) -> Callable[[JsonObject], bool]:
    """The predicate of the selectors of a list or watch."""
    labels = parse_label_selector(query.get("labelSelector", ""))
    terms = [term for term in query.get("fieldSelector", "").split(",") if term]

    def selects(obj: JsonObject) -> bool:
        return labels.matches(get_object(obj, "metadata", "labels")) and all(
            _field_matches(obj, term) for term in terms
        )

    return selects


def _field_matches(obj: JsonObject, term: str) -> bool:
    path, operator, wanted = term.partition("!=") if "!=" in term else term.partition("=")
    actual = get_str(obj, *path.split("."))
    return (actual != wanted) if operator == "!=" else (actual == wanted.lstrip("="))

"""The dependencies of all controllers: client, caches, events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kindling.network.external import ExternalRanges
from kubecore.client import Client
from kubecore.json import JsonObject, get_object
from kubecore.objects.selectors import LabelSelector, from_label_selector_object
from kubecore.resources import ResourceType
from kubecore.runtime import (
    DONE,
    Controller,
    EventRecorder,
    Expectations,
    Informer,
    Manager,
    RequeueAfter,
    Result,
    key_of,
)
from kubecore.runtime.controller import Reconcile
from kubecore.runtime.store import Key

OWNER_INDEX = "controller"
"""Index of objects by the uid of their controlling owner."""
_ORPHAN_INDEX = "orphans"
"""Index of objects that have none, by their namespace."""


_LONGEST_BACKOFF_SECONDS = 60.0
"""Conflicts with a cache that lags count as failures, too: unbounded, they hold an object up for minutes."""


def controller_uid(obj: JsonObject) -> list[str]:
    """The index function of `OWNER_INDEX`."""
    return [reference["uid"] for reference in owner_references(obj) if reference.get("controller") is True]


def _orphanage(obj: JsonObject) -> list[str]:
    """The index function of `_ORPHAN_INDEX`: the namespace of an object that nobody controls."""
    return [] if controller_uid(obj) else [obj["metadata"].get("namespace", "")]


def owner_references(obj: JsonObject) -> list[JsonObject]:
    """The owner references of an object."""
    return list(obj["metadata"].get("ownerReferences") or [])


@dataclass(slots=True)
class Environment:
    """The surroundings of the controllers of one process.

    `root_ca` is the PEM of the authority that signs the API server's certificate, published into every
    namespace. `sign_token` makes the token of an account secret from the account and the secret;
    None where the process has no signing key. `clock` gives the time. `control_planes` names the nodes that
    have the control plane's role. `external` are the addresses that services may have from outside.
    """

    manager: Manager
    root_ca: str = ""
    sign_token: Callable[[JsonObject, JsonObject], str] | None = None
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    control_planes: frozenset[str] = frozenset()
    external: ExternalRanges = field(default_factory=ExternalRanges)
    deletion_listeners: list[Callable[[ResourceType, str], None]] = field(default_factory=list)
    """Told of every deleted object of any kind: its resource and namespace. The garbage collector, which
    watches them all, is who tells."""
    _recorders: dict[str, EventRecorder] = field(default_factory=dict)

    @property
    def client(self) -> Client:
        """The client of the controllers."""
        return self.manager.client

    def recorder(self, component: str) -> EventRecorder:
        """The recorder of events that come from `component`; it runs with the manager."""
        recorder = self._recorders.get(component)
        if recorder is None:
            recorder = self._recorders[component] = EventRecorder(self.client, component)
            self.manager.add_runnable(f"events-{component}", recorder.run)
        return recorder

    def controller(self, name: str, reconcile: Reconcile, workers: int = 2) -> Controller:
        """A new controller that runs with the manager."""
        controller = Controller(name, reconcile, workers, max_delay=_LONGEST_BACKOFF_SECONDS)
        self.manager.add(controller)
        return controller


@dataclass(slots=True)
class Owned:
    """The objects (mostly pods) that owners of one kind control, and the expectations about them."""

    informer: Informer
    expectations: Expectations

    def of(self, owner: JsonObject) -> list[JsonObject]:
        """The cached objects that `owner` controls."""
        return self.informer.by_index(OWNER_INDEX, owner["metadata"]["uid"])

    def orphans(self, namespace: str) -> list[JsonObject]:
        """The cached objects of a namespace that nobody controls."""
        return self.informer.by_index(_ORPHAN_INDEX, namespace)


def own_selector(owner: JsonObject) -> LabelSelector:
    """The labels of what belongs to a workload."""
    return from_label_selector_object(get_object(owner, "spec", "selector"))


def soonest(waits: Iterable[float | None]) -> Result:
    """Look again after the shortest of these times; None is none."""
    remaining = [wait for wait in waits if wait is not None]
    return RequeueAfter(min(remaining)) if remaining else DONE


def owned(
    controller: Controller,
    informer: Informer,
    owners: Informer,
    kind: str,
    selector_of: Callable[[JsonObject], LabelSelector] = own_selector,
) -> Owned:
    """The objects of `informer` that are controlled by objects of `kind`, the cache of which is `owners`.

    Changes of the objects enqueue in `controller` their owner, or for orphans the owners whose selector
    matches.
    """

    def owner_keys(obj: JsonObject) -> list[Key]:
        namespace = obj["metadata"].get("namespace", "")
        for reference in owner_references(obj):
            if reference.get("controller") is True:
                return [(namespace, reference["name"])] if reference["kind"] == kind else []
        return []

    def keys(obj: JsonObject) -> list[Key]:
        if controller_uid(obj):
            return owner_keys(obj)
        namespace = obj["metadata"].get("namespace", "")
        labels = obj["metadata"].get("labels") or {}
        return [key_of(owner) for owner in owners.list(namespace) if selector_of(owner).matches(labels)]

    informer.add_index(OWNER_INDEX, controller_uid)
    informer.add_index(_ORPHAN_INDEX, _orphanage)
    expectations = Expectations(controller, informer, owner_keys)
    controller.watch(informer, keys)
    return Owned(informer, expectations)

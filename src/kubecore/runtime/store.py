"""The objects of an informer by key, with indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias

from kubecore.json import JsonObject, get_object, get_str

if TYPE_CHECKING:
    # Python 3.13's, with a default: who names no type caches documents.
    from typing_extensions import TypeVar
else:
    from typing import TypeVar


class Metadata(Protocol):
    """What caches read of a struct's metadata."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def is_being_deleted(self) -> bool: ...


class TypedObject(Protocol):
    """An object decoded into a struct."""

    @property
    def metadata(self) -> Metadata: ...


if TYPE_CHECKING:
    Cached = TypeVar("Cached", bound=JsonObject | TypedObject, default=JsonObject)
else:
    Cached = TypeVar("Cached")

Key: TypeAlias = tuple[str, str]
"""Namespace ("" for objects outside namespaces) and name."""

IndexFunction: TypeAlias = Callable[[Cached], Iterable[str]]


def key_of(obj: JsonObject | TypedObject) -> Key:
    """The cache key of an object."""
    if isinstance(obj, dict):
        return get_str(obj, "metadata", "namespace"), get_str(obj, "metadata", "name")
    return obj.metadata.namespace, obj.metadata.name


def uid_of(obj: JsonObject | TypedObject) -> str:
    """The uid, which distinguishes an object from an earlier one of the same name."""
    return get_str(obj, "metadata", "uid") if isinstance(obj, dict) else obj.metadata.uid


def version_of(obj: JsonObject | TypedObject) -> str:
    """What changes with every write of an object."""
    if isinstance(obj, dict):
        return get_str(obj, "metadata", "resourceVersion")
    return obj.metadata.resource_version


def labels_of(obj: JsonObject | TypedObject) -> Mapping[str, str]:
    """The labels of an object."""
    return get_object(obj, "metadata", "labels") if isinstance(obj, dict) else obj.metadata.labels


def is_being_deleted(obj: JsonObject | TypedObject) -> bool:
    """Whether an object waits for its grace period or finalizers."""
    if isinstance(obj, dict):
        return bool(get_str(obj, "metadata", "deletionTimestamp"))
    return obj.metadata.is_being_deleted


class Store(Generic[Cached]):
    """Objects by key, with secondary indexes."""

    def __init__(self, indexers: Mapping[str, IndexFunction[Cached]]) -> None:
        self._objects: dict[Key, Cached] = {}
        self._indexers = dict(indexers)
        self._indexes: dict[str, dict[str, dict[Key, None]]] = {name: {} for name in indexers}
        self._by_namespace: dict[str, dict[Key, None]] = {}

    def add_index(self, name: str, function: IndexFunction[Cached]) -> None:
        """Add an index; existing objects are entered at once. An index may be added twice if both are the
        same.
        """
        if name in self._indexers:
            return
        self._indexers[name] = function
        self._indexes[name] = {}
        for key, obj in self._objects.items():
            for value in function(obj):
                self._indexes[name].setdefault(value, {})[key] = None

    def get(self, key: Key) -> Cached | None:
        """The object; None if there is none."""
        return self._objects.get(key)

    def all_keys(self) -> list[Key]:
        """The keys of all objects."""
        return list(self._objects)

    def values(self, namespace: str | None = None) -> list[Cached]:
        """All objects, of one namespace if it is named."""
        if namespace:
            return [self._objects[key] for key in self._by_namespace.get(namespace, ())]
        return list(self._objects.values())

    def by_index(self, index: str, value: str) -> list[Cached]:
        """The objects that an index has under `value`."""
        return [self._objects[key] for key in self._indexes[index].get(value, ())]

    def put(self, obj: Cached) -> Cached | None:
        """Store `obj` and return the object that it replaces."""
        key = key_of(obj)
        old = self._objects.get(key)
        if old is not None:
            self._unindex(key, old)
        self._objects[key] = obj
        self._by_namespace.setdefault(key[0], {})[key] = None
        for name, function in self._indexers.items():
            for value in function(obj):
                self._indexes[name].setdefault(value, {})[key] = None
        return old

    def remove(self, key: Key) -> Cached | None:
        """Remove the object under `key` and return it."""
        old = self._objects.pop(key, None)
        if old is not None:
            self._unindex(key, old)
            members = self._by_namespace[key[0]]
            members.pop(key, None)
            if not members:
                del self._by_namespace[key[0]]
        return old

    def _unindex(self, key: Key, obj: Cached) -> None:
        for name, function in self._indexers.items():
            index = self._indexes[name]
            for value in function(obj):
                members = index.get(value)
                if members is not None:
                    members.pop(key, None)
                    if not members:
                        del index[value]

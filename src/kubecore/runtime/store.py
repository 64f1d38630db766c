"""What an informer knows: objects by key, with indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from kubecore.json import JsonObject, get_str

Key: TypeAlias = tuple[str, str]
"""Namespace ("" for objects outside namespaces) and name."""

IndexFunction: TypeAlias = Callable[[JsonObject], Iterable[str]]


def key_of(obj: JsonObject) -> Key:
    """The cache key of an object."""
    return get_str(obj, "metadata", "namespace"), get_str(obj, "metadata", "name")


class Store:
    """Objects by key, with secondary indexes."""

    def __init__(self, indexers: Mapping[str, IndexFunction]) -> None:
        self._objects: dict[Key, JsonObject] = {}
        self._indexers = dict(indexers)
        self._indexes: dict[str, dict[str, dict[Key, None]]] = {name: {} for name in indexers}
        self._by_namespace: dict[str, dict[Key, None]] = {}

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Add an index; existing objects are entered at once. The same name twice must mean the same."""
        if name in self._indexers:
            return
        self._indexers[name] = function
        self._indexes[name] = {}
        for key, obj in self._objects.items():
            for value in function(obj):
                self._indexes[name].setdefault(value, {})[key] = None

    def get(self, key: Key) -> JsonObject | None:
        return self._objects.get(key)

    def all_keys(self) -> list[Key]:
        return list(self._objects)

    def values(self, namespace: str | None = None) -> list[JsonObject]:
        if namespace:
            return [self._objects[key] for key in self._by_namespace.get(namespace, ())]
        return list(self._objects.values())

    def by_index(self, index: str, value: str) -> list[JsonObject]:
        return [self._objects[key] for key in self._indexes[index].get(value, ())]

    def index_values(self, index: str) -> list[str]:
        return list(self._indexes[index])

    def put(self, obj: JsonObject) -> JsonObject | None:
        """Store `obj` and give what it replaced."""
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

    def remove(self, key: Key) -> JsonObject | None:
        """Forget the object under `key` and give it."""
        old = self._objects.pop(key, None)
        if old is not None:
            self._unindex(key, old)
            members = self._by_namespace[key[0]]
            members.pop(key, None)
            if not members:
                del self._by_namespace[key[0]]
        return old

    def _unindex(self, key: Key, obj: JsonObject) -> None:
        for name, function in self._indexers.items():
            index = self._indexes[name]
            for value in function(obj):
                members = index.get(value)
                if members is not None:
                    members.pop(key, None)
                    if not members:
                        del index[value]

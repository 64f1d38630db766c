"""What configures admission, kept compiled and in order, following the stored objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kindling.apiserver.registry.admission import AdmissionEnvironment
from kubecore.json import JsonObject
from kubecore.objects import meta

_T = TypeVar("_T")
_GROUP = "admissionregistration.k8s.io"


class Configurations(Generic[_T]):
    """The objects of one kind, compiled by `compile_object`, ordered by name."""

    def __init__(
        self, environment: AdmissionEnvironment, plural: str, compile_object: Callable[[JsonObject], _T]
    ) -> None:
        self._compile = compile_object
        self._by_name: dict[str, _T] = {}
        self._ordered: list[_T] | None = []
        environment.on_change(f"{_GROUP}/{plural}", self._changed)

    def _changed(self, event: str, obj: JsonObject) -> None:
        if event == "DELETED":
            self._by_name.pop(meta.name(obj), None)
        else:
            self._by_name[meta.name(obj)] = self._compile(obj)
        self._ordered = None

    def all(self) -> Sequence[_T]:
        """In the order of their names."""
        if self._ordered is None:
            self._ordered = [self._by_name[name] for name in sorted(self._by_name)]
        return self._ordered

    def get(self, name: str) -> _T | None:
        """The object with that name."""
        return self._by_name.get(name)

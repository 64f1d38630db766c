"""A kind's validation: the functions that judge a new object, a change and a status; what never changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kubecore.json import JsonObject
from kubecore.objects.fields import FieldError, FieldPath

from .checks import immutable

Judge = Callable[[JsonObject], Iterable[FieldError]]
"""The errors of an object."""


Change = Callable[[JsonObject, JsonObject], Iterable[FieldError]]
"""The errors of a change, from the new and the old object."""


def _no_errors(obj: JsonObject) -> Iterable[FieldError]:
    return ()


def _no_warnings(obj: JsonObject, old: JsonObject | None) -> Iterable[str]:
    return ()


def _no_status_warnings(obj: JsonObject) -> Iterable[str]:
    return ()


def unjudged(new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
    """The `update` of kinds whose changes are judged by their immutable fields alone."""
    return ()


@dataclass(frozen=True, slots=True)
class Rules:
    """Pure functions from objects to errors."""

    create: Judge = _no_errors
    """The errors of a new object."""
    update: Change | None = None
    """The errors of a change, from the new and the old object; None: those of the new object alone."""
    immutable: tuple[str, ...] = ()
    """Fields that never change, as dotted paths; their errors come after those of `update`."""
    immutable_texts: tuple[str, ...] = ()
    """The same of texts that are empty where they are absent."""
    status: Change = unjudged
    """The errors of a write of the status."""
    warnings: Callable[[JsonObject, JsonObject | None], Iterable[str]] = _no_warnings
    """The warnings about an object, from it and its old version; the old one is None on create."""
    status_warnings: Callable[[JsonObject], Iterable[str]] = _no_status_warnings
    """The warnings about a written status."""

    def changed(self, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """The errors about fields that never change."""
        found: list[FieldError] = []
        for dotted in self.immutable:
            names = dotted.split(".")
            found += immutable(FieldPath(*names), _value(new, names), _value(old, names))
        for dotted in self.immutable_texts:
            names = dotted.split(".")
            found += immutable(FieldPath(*names), _value(new, names) or "", _value(old, names) or "")
        return found


def _value(obj: Any, names: list[str]) -> Any:
    for name in names:
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return obj

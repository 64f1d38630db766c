"""One entry of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias


class State(StrEnum):
    """What the product does with a field."""

    ACTS = "acts"
    WARNS = "warns"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Field:
    """What a field does. `text` is for the documentation."""

    state: State
    text: str
    whole: bool = False
    """The entry stands for everything inside the field, too."""
    values: frozenset[str] = frozenset()
    """The only values that act, where not all do; others are warned of."""
    ineffective: frozenset[str] = frozenset()
    """Values that do nothing yet, where all others do what they do in KubeVirt."""
    keys: frozenset[str] = frozenset()
    """Of a map of plain values, the only keys that act, where not all do; others are warned of."""
    defaulted: bool = False
    """Admission fills it into instances itself: only templates are warned of."""
    warning: str = ""
    """What users are warned of, where it is not that the field has no effect."""
    inside: Mapping[str, Field] = field(default_factory=dict)
    """Of a list of objects that are copied: the entries of their fields."""


Table: TypeAlias = Mapping[str, Field]
"""Entries by path."""


def acts(text: str, *only: str, ineffective: str = "") -> Field:
    """A field that has an effect; `only` names the values that have, if others do not.

    `ineffective` is the one value without effect, where it would have one in KubeVirt.
    """
    return Field(State.ACTS, text, values=frozenset(only), ineffective=frozenset({ineffective} - {""}))


def acts_on_keys(text: str, *keys: str) -> Field:
    """A map of plain values of which the `keys` have an effect and no others."""
    return Field(State.ACTS, text, keys=frozenset(keys))


def copied(text: str, inside: Table | None = None) -> Field:
    """An object that is copied to another place, where all of it has an effect.

    A list of objects of which `inside` has the entries is warned of as they are.
    """
    return Field(State.ACTS, text, whole=True, inside=inside or {})


def warns(text: str = "", *, defaulted: bool = False, warning: str = "") -> Field:
    """A field that is accepted for compatibility with KubeVirt, but has no effect yet: admission warns.

    `warning` is what it says otherwise, where the field may have an effect.
    """
    return Field(State.WARNS, text, whole=True, defaulted=defaulted, warning=warning)


def refused(text: str) -> Field:
    """A field that admission refuses whenever it is set."""
    return Field(State.REFUSED, text, whole=True)


def prefixed(prefix: str, table: Table) -> dict[str, Field]:
    """The entries of `table` below another path."""
    return {f"{prefix}.{path}": field for path, field in table.items()}

"""nftables tables as values, and the commands that turn one into another; pure.

What changes is written, not the whole: a table of hundreds of services or policies stays fast, and what the
kernel has put into a set (clients with an affinity) outlives changes of everything else. The commands of one
call are one transaction: packets meet the table as it was or as it will be.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

_NAMES = 1 << 16
"""The same names are asked for at every change."""


@dataclass(frozen=True, slots=True)
class Collection:
    """A set or map. `declaration` is its type and flags; equal names have equal declarations.

    `elements` lead from keys to values, which are empty for sets. `is_dynamic`: the kernel adds elements, and
    those that are there stay.
    """

    kind: Literal["set", "map"]
    declaration: str
    elements: Mapping[str, str] = field(default_factory=dict)
    is_dynamic: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """What a table consists of. `hooks` are the hooks of base chains, by chain; all have an entry in
    `chains`, too.
    """

    family: str
    name: str
    hooks: Mapping[str, str] = field(default_factory=dict)
    chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    collections: Mapping[str, Collection] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Family and name, as commands name it."""
        return f"{self.family} {self.name}"


@dataclass(frozen=True, slots=True)
class Existing:
    """The names in a table that somebody loaded before."""

    chains: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    maps: tuple[str, ...] = ()


def changes(before: Table, after: Table) -> str:
    """The commands that make `after` of `before`; none if they are equal.

    Raises ValueError for another table, and for a collection or hook that changed its declaration.
    """
    if before.path != after.path or any(
        before.collections[name].declaration != item.declaration
        for name, item in after.collections.items()
        if name in before.collections
    ):
        raise ValueError(f"{after.path} cannot be made of {before.path} by changes")
    touched = [name for name, rules in after.chains.items() if before.chains.get(name) != rules]
    removed = [name for name in before.chains if name not in after.chains]
    commands = _declarations(after, before)
    commands += [f"flush chain {after.path} {name}" for name in [*touched, *removed] if name in before.chains]
    for name, item in before.collections.items():
        kept = after.collections.get(name)
        if kept is None:
            commands.append(f"delete {item.kind} {after.path} {name}")
        elif not item.is_dynamic:
            stale = [key for key, value in item.elements.items() if kept.elements.get(key) != value]
            commands += _elements("delete", after, name, stale)
    commands += _rules(after, touched)
    for name, item in after.collections.items():
        known = before.collections[name].elements if name in before.collections else {}
        fresh = {key: value for key, value in item.elements.items() if known.get(key) != value}
        commands += _elements("add", after, name, map(_element, fresh, fresh.values()))
    commands += [f"delete chain {after.path} {name}" for name in removed]
    return "".join(f"{command}\n" for command in commands)


def replacement(existing: Existing, after: Table) -> str:
    """The commands that make `after` of whatever is there.

    What the kernel added to dynamic sets that go on stays.
    """
    kept = {name for name, item in after.collections.items() if item.is_dynamic}
    commands = [f"add table {after.path}", f"flush table {after.path}"]
    for kind, names in (("map", existing.maps), ("set", existing.sets)):
        commands += [f"delete {kind} {after.path} {name}" for name in names if name not in kept]
    commands += [f"delete chain {after.path} {name}" for name in existing.chains]
    text = "".join(f"{command}\n" for command in commands)
    return text + changes(Table(after.family, after.name), after)


@lru_cache(maxsize=_NAMES)
def short_name(kind: str, *parts: str) -> str:
    """A name for a chain or collection that stands for what users named."""
    return f"{kind}-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}"


def _declarations(after: Table, before: Table) -> list[str]:
    commands = [
        f"add {item.kind} {after.path} {name} {{ {item.declaration} }}"
        for name, item in after.collections.items()
        if name not in before.collections
    ]
    for name in after.chains:
        if name not in before.chains:
            hook = f" {{ {after.hooks[name]} }}" if name in after.hooks else ""
            commands.append(f"add chain {after.path} {name}{hook}")
    return commands


def _rules(table: Table, chains: Iterable[str]) -> list[str]:
    """Several rules in one block: one line for each would be parsed more slowly."""
    blocks = [
        f"chain {name} {{\n" + "".join(f"{rule}\n" for rule in table.chains[name]) + "}" for name in chains
    ]
    return [f"table {table.path} {{\n" + "\n".join(blocks) + "\n}"] if blocks else []


def _elements(verb: str, table: Table, name: str, elements: Iterable[str]) -> list[str]:
    joined = ", ".join(elements)
    return [f"{verb} element {table.path} {name} {{ {joined} }}"] if joined else []


def _element(key: str, value: str) -> str:
    return f"{key} : {value}" if value else key

"""What to attach to a sandbox and what to detach from it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kindling.node.networks.problems import NetworkProblem
from kindling.node.networks.records import Attachment
from kindling.node.networks.selection import NetworkSelection


@dataclass(frozen=True, slots=True)
class Addition:
    """A network to attach as `interface`."""

    interface: str
    wanted: NetworkSelection


@dataclass(frozen=True, slots=True)
class Changes:
    """`remove` comes first, the latest attachment first; `order` has the interfaces as the pod lists them."""

    remove: tuple[Attachment, ...]
    add: tuple[Addition, ...]
    order: tuple[str, ...]


def compute(wanted: Sequence[NetworkSelection], attached: Sequence[Attachment]) -> Changes:
    """The changes that lead from what is attached to what is wanted. Raises NetworkProblem.

    An attachment without a result was interrupted: it is undone and made anew. One that stays keeps its
    interface, wherever the pod lists it now. Unnamed interfaces are ``net1`` for the first network of the
    list, ``net2`` for the second, ... or the next free number.
    """
    kept = {item.interface: item for item in attached if item.result is not None}
    free = list(kept.values())
    chosen: list[str | None] = []
    for item in wanted:
        match = next((known for known in free if known.wanted.identity == item.identity), None)
        if match is not None:
            free.remove(match)
        chosen.append(match.interface if match is not None else item.interface or None)
    staying = [name for name in chosen if name]
    twice = next((name for name in staying if staying.count(name) > 1), None)
    if twice is not None:
        raise NetworkProblem(f"two networks of the pod want the interface name {twice}")
    names: list[str] = []
    taken = set(staying)
    for index, name in enumerate(chosen):
        number = index + 1
        while name is None and f"net{number}" in taken:
            number += 1
        names.append(name or f"net{number}")
        taken.add(names[-1])
    gone = [item for item in attached if item.result is None or item in free]
    staying_records = {item.interface for item in attached if item not in gone}
    add = [
        Addition(name, item) for name, item in zip(names, wanted, strict=True) if name not in staying_records
    ]
    return Changes(tuple(reversed(gone)), tuple(add), tuple(names))

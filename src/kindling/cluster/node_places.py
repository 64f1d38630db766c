"""Names and places of nodes. A node's place decides its addresses, so that places of removed nodes stay empty
until another node takes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from kindling.cluster.errors import ExitCode, SetupError
from kubecore.objects.names import is_dns1123_label

_MOST = 200
"""Places whose pod networks the subnet of an instance holds."""
_RESERVED_ENDING = "-server"
"""The certificate of a node's server is called like its node with this at the end."""


def with_nodes(names: Sequence[str], count: int) -> tuple[str, ...]:
    """The nodes of `names` and as many new ones as are missing of `count`. Raises SetupError."""
    found = tuple(names)
    for _ in range(count - len(list(filter(None, names)))):
        found = with_node(found)
    return found


def with_node(names: Sequence[str], name: str = "") -> tuple[str, ...]:
    """One more node, in the first empty place; without a `name` it gets the next free one.

    Raises SetupError.
    """
    places = list(names) if "" in names else [*names, ""]
    if len(places) > _MOST:
        raise SetupError("adding a node", f"a cluster has {_MOST} at most", code=ExitCode.UNUSABLE)
    place = places.index("")
    numbers = (place + 1, *range(1, _MOST + 1))
    places[place] = name or next(free for n in numbers if (free := f"node{n:02d}") not in names)
    return tuple(places)


def without_node(names: Sequence[str], name: str) -> tuple[str, ...]:
    """One node less; the others keep their places."""
    return tuple("" if each == name else each for each in names)


def merged(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """The nodes of `first` in their places, and those of `second` in places that are empty in `first`."""
    places = [first[at] if at < len(first) else "" for at in range(max(len(first), len(second)))]
    for at, name in enumerate(second):
        if not places[at] and name not in first:
            places[at] = name
    return tuple(places)


def check_name(name: str) -> None:
    """Raise SetupError unless a node can be called `name`, which is a host's name and part of file names."""
    problems = is_dns1123_label(name)
    if name.endswith(_RESERVED_ENDING):
        problems = [f"it ends in {_RESERVED_ENDING}, which certificates of nodes' servers do"]
    if problems:
        raise SetupError(f"node {name!r}", problems[0], "choose another name", code=ExitCode.UNUSABLE)

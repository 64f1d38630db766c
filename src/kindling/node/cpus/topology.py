"""The machine's processors, and choosing among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kindling.node.options import parse_cpus

SYSTEM = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a processor is: socket and core. Those with the same are threads of one core."""

    socket: int
    core: int


def read(folder: Path = SYSTEM) -> dict[int, Place]:
    """The online processors of the machine. Raises OSError."""
    online = parse_cpus((folder / "online").read_text())
    return {number: _place(folder / f"cpu{number}" / "topology", number) for number in online}


def _place(folder: Path, number: int) -> Place:
    try:
        socket = int((folder / "physical_package_id").read_text())
        return Place(max(0, socket), int((folder / "core_id").read_text()))
    except (OSError, ValueError):
        return Place(0, number)  # a machine that tells nothing: each processor is a core


def choose(count: int, free: Iterable[int], places: Mapping[int, Place]) -> frozenset[int] | None:
    """`count` of the free processors: whole sockets, then whole cores, then threads of cores that are shared
    anyway; None when there are too few.
    """
    left = sorted(free, key=lambda number: (places[number], number))
    if count > len(left):
        return None
    chosen: list[int] = []
    for level in (lambda place: (place.socket,), lambda place: (place.socket, place.core)):
        whole: dict[tuple[int, ...], list[int]] = {}
        for number, place in places.items():
            whole.setdefault(level(place), []).append(number)
        for group in (sorted(whole[key]) for key in sorted(whole)):
            if len(group) <= count - len(chosen) and set(group) <= set(left):
                chosen += group
                left = [number for number in left if number not in group]
    siblings: dict[Place, int] = {}
    for number in left:
        siblings[places[number]] = siblings.get(places[number], 0) + 1
    left.sort(key=lambda number: (siblings[places[number]], places[number], number))
    return frozenset(chosen + left[: count - len(chosen)])


def written(numbers: Iterable[int]) -> str:
    """Processors as the kernel writes them: ``0-2,5``."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)

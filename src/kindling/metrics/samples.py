"""Usage of processors and memory from two readings of a node's counters; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

import msgspec

SHORTEST_SECONDS = 1.0
"""Two readings that are closer say too little."""

PodKey = tuple[str, str, str]
"""Namespace, name, uid."""


_Counter = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""Numbers of a node are believed within what is possible: with larger ones nothing can be reckoned."""

_Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class _Cpu(msgspec.Struct):
    core_nanoseconds: _Counter = msgspec.field(name="usageCoreNanoSeconds", default=0)


class _Memory(msgspec.Struct):
    working_set: _Counter = msgspec.field(name="workingSetBytes", default=0)


class _Container(msgspec.Struct):
    name: str
    started: _Moment | None = msgspec.field(name="startTime", default=None)
    cpu: _Cpu | None = None
    memory: _Memory | None = None


class _Reference(msgspec.Struct):
    name: str
    namespace: str
    uid: str


class _Pod(msgspec.Struct):
    reference: _Reference = msgspec.field(name="podRef")
    containers: list[_Container] = []


class _Node(msgspec.Struct):
    cpu: _Cpu = msgspec.field(default_factory=_Cpu)
    memory: _Memory = msgspec.field(default_factory=_Memory)


class Summary(msgspec.Struct):
    """What counts of a node's /stats/summary."""

    node: _Node
    pods: list[_Pod] = []


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters of a node at one moment: `at` on this process's clock, `moment` on everybody's."""

    at: float
    moment: datetime
    summary: Summary


@dataclass(frozen=True, slots=True)
class Usage:
    """Use of processors (nanocores) and memory (bytes)."""

    nanocores: int
    memory: int


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """The usage of a node and its pods' containers during `seconds` before `moment`."""

    moment: datetime
    seconds: float
    node: Usage
    pods: Mapping[PodKey, Mapping[str, Usage]] = field(default_factory=dict)


def usage(before: Reading, after: Reading) -> NodeUsage:
    """The usage between two readings. A container that started meanwhile counts from its start; a pod is
    left out while the usage of one of its containers is not known.
    """
    seconds = after.at - before.at
    known = {
        (pod.reference.uid, container.name): container
        for pod in before.summary.pods
        for container in pod.containers
    }
    pods: dict[PodKey, Mapping[str, Usage]] = {}
    for pod in after.summary.pods:
        reference = pod.reference
        found = {
            container.name: _of_container(
                known.get((reference.uid, container.name)), container, after, seconds
            )
            for container in pod.containers
        }
        complete = {name: each for name, each in found.items() if each is not None}
        if complete and len(complete) == len(found):
            pods[reference.namespace, reference.name, reference.uid] = complete
    spent = after.summary.node.cpu.core_nanoseconds - before.summary.node.cpu.core_nanoseconds
    node = Usage(_rate(spent, seconds), after.summary.node.memory.working_set)
    return NodeUsage(after.moment, seconds, node, pods)


def _of_container(
    before: _Container | None, after: _Container, reading: Reading, seconds: float
) -> Usage | None:
    if after.cpu is None or after.memory is None or after.started is None:
        return None
    now = after.cpu.core_nanoseconds
    if before is not None and before.cpu is not None and before.started == after.started:
        return Usage(_rate(now - before.cpu.core_nanoseconds, seconds), after.memory.working_set)
    # Times of starts are whole seconds.
    age = (reading.moment - after.started).total_seconds()
    if age < SHORTEST_SECONDS:
        return None
    return Usage(_rate(now, age), after.memory.working_set)


def _rate(nanoseconds: int, seconds: float) -> int:
    return max(0, int(nanoseconds / seconds))

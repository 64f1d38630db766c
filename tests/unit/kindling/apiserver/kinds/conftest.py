"""What tests of kinds share: a request, objects in memory, and addresses to hand out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.memory_objects import MemoryObjects

from kindling.apiserver.kinds.served import builtin_definitions
from kindling.apiserver.registry.addresses import AddressPool, AllocationError
from kindling.apiserver.registry.context import RequestContext, UserInfo
from kindling.apiserver.registry.definition import ResourceDefinition, Strategy, TableConverter
from kubecore.json import JsonObject, deep_copy
from kubecore.objects.fields import FieldError


@dataclass
class Addresses(AddressPool):
    """Addresses that count upwards."""

    ips: set[str] = field(default_factory=set)
    ports: set[int] = field(default_factory=set)
    ranges: str = "10.96.0.0/16"

    def __post_init__(self) -> None:
        super().__init__(self.ranges)

    def allocate_ip(self, family: str = "IPv4", namespace: str = "") -> str:
        form = {"IPv4": "10.96.0.{}", "IPv6": "fd00:96::{}"}[family]
        value = next(form.format(number) for number in range(2, 250) if form.format(number) not in self.ips)
        self.ips.add(value)
        return value

    def reserve_ip(self, address: str, namespace: str = "") -> None:
        if address in self.ips:
            raise AllocationError("provided IP is already allocated")
        self.ips.add(address)

    def release_ip(self, address: str) -> None:
        self.ips.discard(address)

    def allocate_port(self, namespace: str = "") -> int:
        number = next(number for number in range(30000, 32768) if number not in self.ports)
        self.ports.add(number)
        return number

    def reserve_port(self, port: int, namespace: str = "") -> None:
        if not 30000 <= port <= 32767:
            raise AllocationError(
                "provided port is not in the valid range. The range of valid ports is 30000-32767"
            )
        if port in self.ports:
            raise AllocationError("provided port is already allocated")
        self.ports.add(port)

    def release_port(self, port: int) -> None:
        self.ports.discard(port)


@dataclass
class Kinds:
    """The built-in kinds, and the way of a request through one of them."""

    definitions: dict[tuple[str, str], ResourceDefinition]
    memory: MemoryObjects = field(default_factory=MemoryObjects)
    addresses: Addresses = field(default_factory=Addresses)

    def definition(self, plural: str, api_version: str = "") -> ResourceDefinition:
        if api_version:
            return self.definitions[api_version, plural]
        return next(found for (_, name), found in self.definitions.items() if name == plural)

    def part(self, plural: str, subresource: str) -> Strategy:
        """The strategy of a subresource that has one."""
        strategy = self.definition(plural).subresources[subresource].strategy
        assert strategy is not None
        return strategy

    def table(self, plural: str, api_version: str = "") -> TableConverter:
        """The columns of a kind that has its own."""
        table = self.definition(plural, api_version).table
        assert table is not None
        return table

    def act(self, plural: str, subresource: str, name: str, body: JsonObject) -> JsonObject:
        """The answer of a subresource to which one can only post."""
        action = self.definition(plural).subresources[subresource].action
        assert action is not None

        async def answer() -> JsonObject:
            return await action(self.context(plural, name), body)

        return asyncio.run(answer())

    def context(self, plural: str, name: str = "x", **changes: Any) -> RequestContext:
        definition = self.definition(plural)
        return RequestContext(
            user=UserInfo("ann", groups=("system:masters",)),
            verb="create",
            resource=definition.resource,
            namespace="ns" if definition.resource.namespaced else "",
            name=name,
            subresource="",
            objects=self.memory,
            addresses=self.addresses,
            **changes,
        )

    def read(self, plural: str, document: JsonObject, api_version: str = "") -> JsonObject:
        """The document as the server takes it in: defaults set."""
        obj = deep_copy(document)
        obj.setdefault("metadata", {}).setdefault("name", "x")
        self.definition(plural, api_version).strategy.default(obj)
        return obj

    def create(self, plural: str, document: JsonObject) -> tuple[JsonObject, list[str]]:
        """The new object and the messages of what is wrong with it."""
        obj = self.read(plural, document)
        obj["metadata"].setdefault("uid", "11111111-2222-3333-4444-555555555555")
        strategy = self.definition(plural).strategy
        ctx = self.context(plural)
        strategy.prepare_for_create(ctx, obj)
        found = strategy.validate(ctx, obj)
        if not found:
            strategy.canonicalize(obj)
        return obj, told(found)

    def update(self, plural: str, old: JsonObject, change: JsonObject) -> tuple[JsonObject, list[str]]:
        """The object after a change of top-level fields, and what is wrong with the change."""
        new = deep_copy(old)
        new.update(deep_copy(change))
        strategy = self.definition(plural).strategy
        strategy.default(new)
        ctx = self.context(plural)
        strategy.prepare_for_update(ctx, new, deep_copy(old))
        return new, told(strategy.validate_update(ctx, new, deep_copy(old)))

    def row(self, plural: str, document: JsonObject) -> list[Any]:
        """The cells that print the document."""
        return self.table(plural).cells(self.read(plural, document))


def make(kinds: Kinds, plural: str, document: JsonObject) -> JsonObject:
    """The new object, with which nothing is wrong."""
    made, problems = kinds.create(plural, document)
    assert problems == []
    return made


def told(found: Sequence[FieldError]) -> list[str]:
    return [error.message() for error in found]


@pytest.fixture(scope="session")
def all_definitions() -> dict[tuple[str, str], ResourceDefinition]:
    return {
        (definition.resource.api_version, definition.resource.plural): definition
        for definition in builtin_definitions()
    }


@pytest.fixture
def kinds(all_definitions: dict[tuple[str, str], ResourceDefinition]) -> Kinds:
    return Kinds(all_definitions)

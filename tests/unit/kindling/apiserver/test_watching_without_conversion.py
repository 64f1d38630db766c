"""Watches of objects that can no longer be converted into the version that is watched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.apiserver import WIDGETS, generic_definition, running_server, sample_definitions

from kubecore import errors
from kubecore.client import Client, WatchEvent
from kubecore.json import JsonObject

_STORED = "example.com/v0"


@dataclass
class _Converter:
    """Converts until its webhook is away."""

    is_away: bool = False

    async def convert(self, objects: Sequence[JsonObject], api_version: str) -> list[JsonObject]:
        if self.is_away and api_version != _STORED:
            raise errors.internal("conversion webhook for example.com/v0, Kind=Widget failed: unreachable")
        return [{**obj, "apiVersion": api_version} for obj in objects]


@dataclass
class _Served:
    client: Client
    converter: _Converter = field(default_factory=_Converter)

    async def create(self, name: str) -> None:
        made = {"apiVersion": WIDGETS.api_version, "kind": "Widget", "metadata": {"name": name}}
        await self.client.create(WIDGETS, made, "default")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[_Served]:
    converter = _Converter()
    widgets = generic_definition(WIDGETS, custom=True, storage_version=_STORED, converter=converter)
    others = [each for each in sample_definitions() if each.resource != WIDGETS]
    async with running_server(tmp_path, [*others, widgets]) as running, running.client() as client:
        yield _Served(client, converter)


async def test_a_watch_ends_when_an_event_cannot_be_converted(served: _Served) -> None:
    await served.create("a")
    seen: list[WatchEvent] = []
    async with asyncio.timeout(10):
        async for event in served.client.watch(WIDGETS, "default"):
            seen.append(event)
            if len(seen) == 1:
                served.converter.is_away = True
                with pytest.raises(errors.StatusError):
                    await served.create("b")
    assert [event.object["metadata"]["name"] for event in seen] == ["a"]


async def test_a_watch_ends_when_what_is_there_cannot_be_converted(served: _Served) -> None:
    await served.create("a")
    served.converter.is_away = True
    async with asyncio.timeout(10):
        assert not [event async for event in served.client.watch(WIDGETS, "default")]

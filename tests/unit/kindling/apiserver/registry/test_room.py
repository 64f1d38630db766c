"""The objects of a namespace have so many bytes together, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.apiserver import running_server, sample_definitions

from kubecore import errors
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.resources import CONFIG_MAPS

_ROOM = 100_000
_FULL = "kube-public"


def _config_map(name: str, size: int) -> JsonObject:
    return {"metadata": {"name": name}, "data": {"k": "x" * size}}


async def _fill(client: Client, namespace: str) -> int:
    """Make objects until one is refused; returns how many there are."""
    for number in range(100):
        try:
            await client.create(CONFIG_MAPS, _config_map(f"c{number}", 9_000), namespace)
        except errors.StatusError as error:
            assert error.code == 403
            assert f"namespace {namespace} have more than {_ROOM} bytes" in error.message
            return number
    raise AssertionError("nothing was refused")


async def test_a_tenant_who_fills_his_namespace_takes_the_memory_of_nobody_else(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, sample_definitions(), namespace_bytes=_ROOM) as running,
        running.client() as client,
    ):
        made = await _fill(client, _FULL)
        assert 9 <= made <= 12
        await client.create(CONFIG_MAPS, _config_map("c", 9_000), "default")
        await client.delete(CONFIG_MAPS, "c0", _FULL)
        await client.delete(CONFIG_MAPS, "c1", _FULL)
        await client.create(CONFIG_MAPS, _config_map("again", 9_000), _FULL)


async def test_objects_of_a_full_namespace_grow_a_little_and_shrink_and_go(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, sample_definitions(), namespace_bytes=_ROOM) as running,
        running.client() as client,
    ):
        made = await _fill(client, _FULL)
        large: JsonObject = {"data": {"k": "x" * 12_000}}
        with pytest.raises(errors.StatusError, match="delete some"):
            for number in range(made):
                await client.patch(CONFIG_MAPS, f"c{number}", large, _FULL, type="merge")
        label: JsonObject = {"metadata": {"finalizers": ["example.com/held"]}}
        small: JsonObject = {"data": {"k": "x"}}
        await client.patch(CONFIG_MAPS, f"c{made - 1}", small, _FULL, type="merge")
        await client.patch(CONFIG_MAPS, f"c{made - 1}", label, _FULL, type="merge")
        for number in range(made):
            await client.delete(CONFIG_MAPS, f"c{number}", _FULL)
        free: JsonObject = {"metadata": {"finalizers": None}}
        await client.patch(CONFIG_MAPS, f"c{made - 1}", free, _FULL, type="merge")
        assert (await client.list(CONFIG_MAPS, _FULL))["items"] == []


async def test_what_a_namespace_holds_is_known_after_a_restart(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"namespace_bytes": _ROOM, "storage": tmp_path / "objects.db"}
    async with running_server(tmp_path, sample_definitions(), **settings) as first, first.client() as client:
        made = await _fill(client, _FULL)
        for number in range(made):
            await client.patch(CONFIG_MAPS, f"c{number}", {"data": {"a": "b"}}, _FULL, type="merge")
        await client.delete(CONFIG_MAPS, "c0", _FULL)
        held = first.server.store.bytes_of(_FULL)
    async with running_server(tmp_path, sample_definitions(), **settings) as again, again.client() as client:
        assert again.server.store.bytes_of(_FULL) == held
        for number in range(1, made):
            await client.delete(CONFIG_MAPS, f"c{number}", _FULL)
        assert again.server.store.bytes_of(_FULL) == 0
